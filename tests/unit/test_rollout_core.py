"""The rollout's decision: given how things are, what the status says and what is done."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from controllers.kube import LEADER_WORKER_SETS
from controllers.rollout.core import Status, decide
from controllers.rollout.phases import Phase
from controllers.rollout.plan import ApplyService, ApplyWorkload, Plan, Remove
from controllers.rollout.pods import Problem
from controllers.rollout.view import Condition, EndpointView, Entry, RevisionView, Sizing

NOW_S = 10_000.0
A, B, C = "iris-aaaaaaaa", "iris-bbbbbbbb", "iris-cccccccc"

ENDPOINT = EndpointView(
    namespace="team-alpha",
    name="iris",
    uid="u1",
    team="alpha",
    generation=4,
    deleted=False,
    spec_digest="new",
    declared=A,
    model_version="1",
    concurrency_min=1,
    drain_s=65.0,
    hold_s=300.0,
    start_timeout_s=600.0,
    traffic=None,
    entries=(),
    conditions=(),
    ready_spec_digest="old",
    sizing={},
    routed=None,
    routed_generation=0,
)
SIZED = Sizing(target=51.2, desired=2, sized=True)


def entry(name: str, phase: Phase, age_s: float = 10.0) -> Entry:
    return Entry(name, phase, name[-1], NOW_S - age_s)


def live(name: str, ready: int = 2, replicas: int = 2, problem: Problem | None = None) -> RevisionView:
    return RevisionView(name, f"uid-{name}", name[-1], replicas, ready, True, True, problem)


def serving_a(declared: str = A, *more: Entry, **changes: object) -> EndpointView:
    """A serves and has the traffic; the template names `declared`."""
    settled = replace(
        ENDPOINT,
        declared=declared,
        traffic=A,
        routed=A,
        routed_generation=4,
        entries=(entry(A, Phase.SERVING, 1000.0), *more),
        sizing={A: SIZED, B: SIZED, C: SIZED},
    )
    return replace(settled, **changes)  # type: ignore[arg-type]


def after(endpoint: EndpointView, *revisions: RevisionView, now_s: float = NOW_S) -> tuple[Status, Plan]:
    return decide(endpoint, {revision.name: revision for revision in revisions}, now_s)


def phases(status: Status) -> dict[str, Phase]:
    return {e.name: e.phase for e in status.revisions}


def verdict(status: Status, kind: str) -> tuple[bool, str]:
    found = next(c for c in status.conditions if c.type == kind)
    return found.status, found.reason


def removed(plan: Plan) -> set[str]:
    return {action.revision for action in plan.actions if isinstance(action, Remove)}


def test_a_new_endpoint_gets_its_deployment_and_service() -> None:
    status, plan = after(ENDPOINT)
    assert plan.actions == (ApplyWorkload(A), ApplyService(A))
    assert phases(status) == {A: Phase.STARTING}
    assert status.traffic_revision is None
    assert verdict(status, "Ready") == (False, "Starting")
    assert verdict(status, "Available") == (False, "NotRouted")
    assert verdict(status, "Progressing") == (True, "Starting")


def test_the_first_revision_gets_the_traffic_once_ready_at_its_floor() -> None:
    begun = replace(ENDPOINT, entries=(entry(A, Phase.STARTING),), sizing={A: SIZED}, concurrency_min=100)
    assert after(begun, live(A, ready=1))[0].traffic_revision is None
    status, _ = after(begun, live(A, ready=2))
    assert status.traffic_revision == A
    assert verdict(status, "Ready") == (False, "MovingTraffic")


@pytest.mark.parametrize(
    ("sizing", "ready", "replicas"),
    [
        ({}, 2, 2),
        ({A: SIZED, B: Sizing(51.2, 2, False)}, 2, 2),
        ({A: SIZED, B: Sizing(51.2, 3, True)}, 2, 2),
        ({A: SIZED, B: SIZED}, 1, 2),
        ({A: SIZED, B: SIZED}, 2, 5),
        ({A: SIZED, B: Sizing(10.0, 2, True)}, 2, 2),
    ],
    ids=["not seen by the autoscaler", "not sized", "more asked for", "one not ready", "still growing", "below floor"],
)
@pytest.mark.case("autoscaler-D5")
def test_traffic_does_not_move_before_the_successor_is_sized_and_wholly_ready(
    sizing: dict[str, Sizing], ready: int, replicas: int
) -> None:
    endpoint = serving_a(B, entry(B, Phase.STARTING), sizing=sizing, concurrency_min=25)
    status, plan = after(endpoint, live(A), live(B, ready, replicas))
    assert status.traffic_revision == A
    assert phases(status) == {A: Phase.SERVING, B: Phase.STARTING}
    assert plan.actions == ()


def test_traffic_is_offered_to_a_sized_and_ready_successor_and_the_old_one_still_serves() -> None:
    status, plan = after(serving_a(B, entry(B, Phase.STARTING)), live(A), live(B))
    assert status.traffic_revision == B
    assert phases(status) == {A: Phase.SERVING, B: Phase.READY}
    assert plan.actions == ()


def test_the_old_one_drains_only_after_the_gateway_has_said_so() -> None:
    offered = serving_a(B, entry(B, Phase.READY), traffic=B)
    assert phases(after(offered, live(A), live(B))[0])[A] is Phase.SERVING
    status, _ = after(replace(offered, routed=B), live(A), live(B))
    assert phases(status) == {A: Phase.DRAINING, B: Phase.SERVING}
    assert verdict(status, "Ready") == (True, "Serving")


def test_a_drained_one_is_held_with_its_pods_and_removed_after_the_hold() -> None:
    moved = serving_a(B, traffic=B, routed=B, entries=(entry(A, Phase.DRAINING, 65.0), entry(B, Phase.SERVING)))
    status, plan = after(moved, live(A), live(B))
    assert phases(status) == {A: Phase.HELD, B: Phase.SERVING}
    assert removed(plan) == set()
    held = replace(moved, entries=(entry(A, Phase.HELD, 300.0), entry(B, Phase.SERVING)))
    status, plan = after(held, live(A), live(B))
    assert phases(status) == {B: Phase.SERVING}
    assert plan.actions == (Remove(A, f"uid-{A}"),)


def test_each_wait_says_when_to_look_again() -> None:
    draining = serving_a(B, traffic=B, routed=B, entries=(entry(A, Phase.DRAINING, 5.0), entry(B, Phase.SERVING)))
    assert after(draining, live(A), live(B))[1].wake_at_s == NOW_S + 60.0
    assert after(serving_a(B, entry(B, Phase.STARTING)), live(A), live(B, ready=0))[1].wake_at_s == NOW_S + 590.0
    assert after(serving_a(), live(A))[1].wake_at_s is None


@pytest.mark.parametrize("phase", [Phase.DRAINING, Phase.HELD])
def test_a_revert_to_one_that_is_still_there_moves_traffic_at_once(phase: Phase) -> None:
    endpoint = serving_a(A, traffic=B, routed=B, entries=(entry(A, phase), entry(B, Phase.SERVING)))
    status, plan = after(endpoint, live(A), live(B))
    assert status.traffic_revision == A
    assert phases(status) == {A: Phase.READY, B: Phase.SERVING}
    assert plan.actions == ()


def test_a_revert_to_a_held_one_that_is_too_small_waits_for_its_size() -> None:
    small = {A: Sizing(51.2, 2, False), B: SIZED}
    endpoint = serving_a(A, traffic=B, routed=B, sizing=small, entries=(entry(A, Phase.HELD), entry(B, Phase.SERVING)))
    status, _ = after(endpoint, live(A), live(B))
    assert status.traffic_revision == B
    assert phases(status)[A] is Phase.STARTING


def test_a_revert_before_the_traffic_moved_removes_the_successor_alone() -> None:
    status, plan = after(serving_a(A, entry(B, Phase.STARTING)), live(A), live(B, ready=0))
    assert status.traffic_revision == A
    assert removed(plan) == {B}
    assert verdict(status, "Ready") == (True, "Serving")


def test_a_revert_after_the_offer_keeps_the_offered_one_until_it_has_drained() -> None:
    """The gateway may have moved and not yet said so: requests may be on their way to B."""
    status, plan = after(serving_a(A, entry(B, Phase.READY), traffic=B), live(A), live(B))
    assert status.traffic_revision == A
    assert phases(status) == {A: Phase.SERVING, B: Phase.DRAINING}
    assert removed(plan) == set()


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.READY, Phase.FAILED])
def test_a_change_during_a_rollout_removes_the_intermediate_and_never_the_serving_one(phase: Phase) -> None:
    status, plan = after(serving_a(C, entry(B, phase)), live(A), live(B))
    assert removed(plan) == {B}
    assert phases(status) == {A: Phase.SERVING, C: Phase.STARTING}
    assert ApplyWorkload(C) in plan.actions
    assert status.traffic_revision == A


def test_a_change_after_the_offer_lets_the_offered_one_serve_until_the_next_is_ready() -> None:
    status, plan = after(serving_a(C, entry(B, Phase.READY), traffic=B), live(A), live(B))
    assert status.traffic_revision == B
    assert phases(status) == {A: Phase.SERVING, B: Phase.READY, C: Phase.STARTING}
    assert removed(plan) == set()


@pytest.mark.case("autoscaler-D4")
def test_of_several_held_ones_only_the_last_is_kept() -> None:
    entries = (entry(A, Phase.HELD, 100.0), entry(B, Phase.HELD, 50.0), entry(C, Phase.SERVING))
    status, plan = after(serving_a(C, traffic=C, routed=C, entries=entries), live(A), live(B), live(C))
    assert removed(plan) == {A}
    assert phases(status) == {B: Phase.HELD, C: Phase.SERVING}


@pytest.mark.case("autoscaler-D4")
def test_a_held_one_gives_way_where_the_successor_finds_no_room() -> None:
    no_room = Problem("Unschedulable", "exceeded quota", NOW_S + 100)
    entries = (entry(A, Phase.HELD), entry(B, Phase.SERVING), entry(C, Phase.STARTING))
    endpoint = serving_a(C, traffic=B, routed=B, entries=entries)
    assert removed(after(endpoint, live(A), live(B), live(C, 0, 2, no_room))[1]) == {A}
    assert removed(after(endpoint, live(A), live(B), live(C, 0, 2))[1]) == set()


def test_a_held_one_gives_way_to_a_group_whose_pods_should_be_there_before_that_has_failed() -> None:
    missing = Problem("PodsMissing", "1 of 2 pods", NOW_S + 60)
    entries = (entry(A, Phase.HELD), entry(B, Phase.SERVING), entry(C, Phase.STARTING))
    endpoint = serving_a(C, traffic=B, routed=B, entries=entries)
    revisions = (live(A), live(B), live(C, 0, 2, missing))
    _, begun = after(endpoint, *revisions)
    assert (removed(begun), begun.wake_at_s) == (set(), NOW_S + 30)
    late, plan = after(endpoint, *revisions, now_s=NOW_S + 30)
    assert (removed(plan), phases(late)[C]) == ({A}, Phase.STARTING)
    failed, _ = after(endpoint, *revisions, now_s=NOW_S + 60)
    assert phases(failed)[C] is Phase.FAILED


def test_a_group_that_is_made_anew_keeps_the_reason_that_it_failed_for() -> None:
    failed = replace(entry(B, Phase.FAILED), reason="ModelLoadFailed", message="no GPU")
    missing = Problem("PodsMissing", "no pod", NOW_S - 60)
    status, _ = after(serving_a(B, failed), live(A), live(B, 0, 1, missing))
    assert verdict(status, "Ready") == (False, "ModelLoadFailed")
    told, _ = after(serving_a(B, failed), live(A), live(B, 0, 1, replace(missing, reason="ImagePullBackOff")))
    assert verdict(told, "Ready") == (False, "ImagePullBackOff")


BROKEN = Problem("ModelLoadFailed", "no module named 'lightgbm'", NOW_S - 1)


def test_a_failed_successor_is_told_with_its_reason_and_the_old_one_is_untouched() -> None:
    status, plan = after(serving_a(B, entry(B, Phase.STARTING)), live(A), live(B, 0, 2, BROKEN))
    assert phases(status) == {A: Phase.SERVING, B: Phase.FAILED}
    assert status.traffic_revision == A
    assert plan.actions == ()
    ready = next(c for c in status.conditions if c.type == "Ready")
    assert (ready.status, ready.reason, ready.message) == (False, "ModelLoadFailed", "no module named 'lightgbm'")
    assert verdict(status, "Available") == (True, "Serving")
    assert verdict(status, "Progressing") == (False, "ModelLoadFailed")
    failed = next(e for e in status.revisions if e.name == B)
    assert (failed.reason, failed.message) == (BROKEN.reason, BROKEN.message)


def test_a_problem_is_no_failure_before_its_time_and_sets_the_alarm() -> None:
    soon = replace(BROKEN, fatal_at_s=NOW_S + 7)
    status, plan = after(serving_a(B, entry(B, Phase.STARTING)), live(A), live(B, 0, 2, soon))
    assert phases(status)[B] is Phase.STARTING
    assert plan.wake_at_s == NOW_S + 7
    ready = next(c for c in status.conditions if c.type == "Ready")
    assert "lightgbm" in ready.message


def test_a_start_that_takes_too_long_fails_with_what_was_seen() -> None:
    endpoint = serving_a(B, entry(B, Phase.STARTING, 600.0))
    status, _ = after(endpoint, live(A), live(B, ready=1))
    ready = next(c for c in status.conditions if c.type == "Ready")
    assert (ready.reason, ready.message) == ("StartTimeout", "1 of 2 replicas ready after 600 s")


def test_a_failed_one_stays_failed_until_it_is_ready_and_then_goes_on() -> None:
    failed = serving_a(B, replace(entry(B, Phase.FAILED), reason="ImagePullBackOff", message="registry away"))
    status, _ = after(failed, live(A), live(B, ready=0))
    assert phases(status)[B] is Phase.FAILED
    assert verdict(status, "Ready") == (False, "ImagePullBackOff")
    status, _ = after(failed, live(A), live(B))
    assert phases(status)[B] is Phase.READY
    assert status.traffic_revision == B


def test_a_failed_one_is_removed_when_the_spec_changes() -> None:
    status, plan = after(serving_a(A, entry(B, Phase.FAILED)), live(A), live(B, 0))
    assert removed(plan) == {B}
    assert verdict(status, "Ready") == (True, "Serving")


def test_pods_that_are_lost_after_the_offer_are_no_failed_start() -> None:
    endpoint = serving_a(B, entry(B, Phase.READY), traffic=B)
    status, _ = after(endpoint, live(A), live(B, 0, 2, BROKEN))
    assert phases(status)[B] is Phase.READY


def test_pods_that_are_lost_before_the_offer_start_again() -> None:
    status, _ = after(serving_a(B, entry(B, Phase.READY)), live(A), live(B, ready=1))
    assert phases(status)[B] is Phase.STARTING
    assert status.traffic_revision == A


@pytest.mark.parametrize(
    ("changes", "ready", "expected"),
    [
        ({}, 2, (True, "Serving")),
        ({"routed_generation": 3}, 2, (False, "MovingTraffic")),
        ({"concurrency_min": 100}, 1, (False, "BelowFloor")),
        ({"routed": B}, 2, (False, "MovingTraffic")),
        ({"routed": None}, 2, (False, "MovingTraffic")),
    ],
    ids=["all of it", "gateway behind", "below floor", "traffic elsewhere", "no gateway"],
)
def test_ready_means_serving_at_the_floor_with_the_traffic_of_this_generation(
    changes: dict[str, object], ready: int, expected: tuple[bool, str]
) -> None:
    status, _ = after(serving_a(**changes), live(A, ready))  # type: ignore[arg-type]
    assert verdict(status, "Ready") == expected


def test_the_digest_is_copied_only_when_ready_for_it() -> None:
    assert after(serving_a(), live(A))[0].ready_spec_digest == "new"
    assert after(serving_a(routed_generation=3), live(A))[0].ready_spec_digest == "old"


def test_every_condition_carries_the_generation_it_speaks_of() -> None:
    status, _ = after(serving_a(), live(A))
    assert {c.generation for c in status.conditions} == {4}
    assert status.observed_generation == 4


def test_a_conditions_time_moves_only_with_its_status() -> None:
    since = tuple(Condition(kind, True, "Serving", "", 3, 77.0) for kind in ("Ready", "Available"))
    status, _ = after(serving_a(conditions=since), live(A))
    assert {c.type: c.since_s for c in status.conditions} == {"Ready": 77.0, "Available": 77.0, "Progressing": NOW_S}


def test_no_ready_replica_of_the_routed_one_is_not_available() -> None:
    assert verdict(after(serving_a(), live(A, ready=0))[0], "Available") == (False, "NoReplicaReady")


def test_a_deployment_that_somebody_deleted_is_made_again() -> None:
    status, plan = after(serving_a())
    assert ApplyWorkload(A) in plan.actions
    assert phases(status) == {A: Phase.SERVING}


def test_a_superseded_one_whose_deployment_was_deleted_is_forgotten() -> None:
    endpoint = serving_a(B, traffic=B, routed=B, entries=(entry(A, Phase.HELD), entry(B, Phase.SERVING)))
    status, plan = after(endpoint, live(B))
    assert phases(status) == {B: Phase.SERVING}
    assert plan.actions == ()


def test_a_lost_status_is_made_anew_from_what_the_gateway_routes() -> None:
    lost = serving_a(B, entries=(), traffic=None)
    status, plan = after(lost, live(A), live(B, ready=0))
    assert status.traffic_revision == A
    assert phases(status) == {A: Phase.SERVING, B: Phase.STARTING}
    assert removed(plan) == set()


def test_a_gateway_that_says_nothing_supersedes_nobody() -> None:
    silent = serving_a(B, entry(B, Phase.READY), traffic=B, routed=None)
    assert phases(after(silent, live(A), live(B))[0]) == {A: Phase.SERVING, B: Phase.READY}


def test_what_the_traffic_belongs_to_is_never_removed_as_unknown() -> None:
    torn = serving_a(B, entries=(entry(B, Phase.STARTING),), routed=None)
    status, plan = after(torn, live(A), live(B, ready=0))
    assert status.traffic_revision == A
    assert removed(plan) == set()


def test_a_deployment_that_nobody_knows_is_removed() -> None:
    _, plan = after(serving_a(), live(A), live(C))
    assert removed(plan) == {C}


def settle(endpoint: EndpointView, revisions: Iterable[RevisionView]) -> list[Status]:
    """Decides on its own status again and again, as the loop does."""
    found: list[Status] = []
    for _ in range(4):
        status, _ = after(endpoint, *revisions)
        found.append(status)
        endpoint = replace(
            endpoint,
            entries=status.revisions,
            traffic=status.traffic_revision,
            conditions=status.conditions,
            ready_spec_digest=status.ready_spec_digest,
        )
    return found


@pytest.mark.parametrize("declared", [A, B])
def test_deciding_again_on_the_same_facts_changes_nothing(declared: str) -> None:
    statuses = settle(serving_a(declared), [live(A), live(B)])
    assert statuses[1] == statuses[2] == statuses[3]


MISSING = replace(ENDPOINT, workload="LeaderWorkerSet", kind_missing=True)


def test_a_cluster_without_the_kind_ends_the_start_at_once_and_says_what_to_install() -> None:
    status, plan = after(MISSING)
    assert plan.actions == ()
    assert phases(status) == {A: Phase.FAILED}
    assert verdict(status, "Ready") == verdict(status, "Progressing") == (False, "LeaderWorkerSetMissing")
    (ready,) = (c for c in status.conditions if c.type == "Ready")
    assert "install LeaderWorkerSet" in ready.message
    assert plan.wake_at_s == NOW_S + 5, "it may be installed by then"


def test_once_the_kind_is_there_the_start_begins_with_all_its_time() -> None:
    failed = after(MISSING)[0].revisions
    status, plan = after(replace(MISSING, kind_missing=False, entries=failed), now_s=NOW_S + 1000)
    assert phases(status) == {A: Phase.STARTING}
    assert plan.actions == (ApplyWorkload(A), ApplyService(A))
    assert plan.wake_at_s == NOW_S + 1000 + ENDPOINT.start_timeout_s


def test_a_kind_that_vanishes_takes_no_traffic_from_what_it_ran_and_is_told() -> None:
    status, plan = after(serving_a(workload="LeaderWorkerSet", kind_missing=True))
    assert (status.traffic_revision, plan.actions) == (A, ())
    assert verdict(status, "Ready") == (False, "LeaderWorkerSetMissing")


def test_a_revision_goes_as_what_it_is_whatever_is_declared_now() -> None:
    """From several nodes back to one: the old groups are removed as groups."""
    groups = replace(live(B), kind=LEADER_WORKER_SETS)
    _, plan = after(serving_a(A, entry(B, Phase.HELD, 1000.0)), live(A), groups)
    assert plan.actions == (Remove(B, f"uid-{B}", LEADER_WORKER_SETS),)
    _, kept = after(serving_a(A, entry(B, Phase.HELD)), live(A), replace(groups, service_in_place=False))
    assert kept.actions == (ApplyService(B, LEADER_WORKER_SETS),)
