"""What the status says, when it is worth a write, and how objects become views."""

import copy
from dataclasses import replace

import pytest

from controllers.autoscaler.control import Control, Mode
from controllers.autoscaler.core import Decision, Verdict
from controllers.autoscaler.demand import Demand
from controllers.autoscaler.holds import Hold
from controllers.autoscaler.observation import Observation, Revision, Role
from controllers.autoscaler.rules import Reason
from controllers.autoscaler.settings import Settings
from controllers.autoscaler.status import Change, Report, detail, status_object
from controllers.autoscaler.view import endpoint_of, foreign_writer, is_claimed, revisions_of
from controllers.autoscaler.window import Means
from controllers.kube import Object
from spec import names

SETTINGS = Settings()
NOW_S = 1_700_000_000.0


def decision(name: str = "iris-a", role: Role = Role.TRAFFIC, **changes: object) -> Decision:
    said: dict[str, object] = {
        "revision": name,
        "role": role,
        "limit": 64,
        "target": 51.2,
        "issued": 2,
        "desired": 4,
        "reason": Reason.LOAD,
        "trace": (("raw", 4),),
        "sized": True,
    }
    return Decision(**(said | changes))  # type: ignore[arg-type]


def verdict(*decisions: Decision, demand: float | None = 180.26, unknown_s: float = 0.0) -> Verdict:
    return Verdict(decisions or (decision(),), Demand(demand, True, False), 201.0, unknown_s)


def report(*changes: Change, said: Verdict | None = None, **more: object) -> Report:
    fields: dict[str, object] = {"ready": {"iris-a": 2}, "unwritten": frozenset(), "foreign": None}
    return Report(verdict=said or verdict(), changes=changes, **(fields | more))  # type: ignore[arg-type]


ENDPOINT: Object = {
    "metadata": {"namespace": "team-alpha", "name": "iris", "uid": "u1", "generation": 3},
    "spec": {"concurrency": {"min": 1, "max": 100}, "runtime": {"initialLimit": 64}},
}


def written(given: Report, before: Object = ENDPOINT, now_s: float = NOW_S) -> Object:
    status = status_object(before, given, SETTINGS, now_s)
    assert status is not None
    return status


def holding(status: Object) -> Object:
    return copy.deepcopy(ENDPOINT) | {"status": copy.deepcopy(status)}


def test_the_status_holds_the_numbers_and_the_decision_with_its_reason() -> None:
    said = written(report(Change(decision(), was=2)))["autoscaler"]
    assert said == {
        "desiredReplicas": 4,
        "readyReplicas": 2,
        "targetConcurrency": 51.2,
        "demand": 180.3,
        "reason": "Load",
        "rules": "raw 4",
        "lastDecision": "2 -> 4: Load",
        "decidedAt": "2023-11-14T22:13:20Z",
        "revisions": {"iris-a": {"limit": 64, "target": 51.2, "desired": 4, "sized": True}},
        "decisions": [
            {
                "at": "2023-11-14T22:13:20Z",
                "revision": "iris-a",
                "from": 2,
                "to": 4,
                "reason": "Load",
                "detail": "demand 180.3, peak 201.0, target 51.2 a replica; raw 4",
            }
        ],
    }


def test_an_unknown_demand_is_absent_and_no_zero() -> None:
    assert "demand" not in written(report(said=verdict(demand=None)))["autoscaler"]
    assert detail(Change(decision(), 2), verdict(demand=None)).startswith("demand unknown")


def test_ten_decisions_are_kept_the_newest_first() -> None:
    obj = ENDPOINT
    for turn in range(12):
        made = Change(decision(desired=turn + 1), was=turn)
        obj = holding(written(report(made, said=verdict(decision(desired=turn + 1))), obj))
    assert [d["to"] for d in obj["status"]["autoscaler"]["decisions"]] == list(range(12, 2, -1))


OBSERVED = Observation(Means(90.0, 12.5, 900.0, 400.0, 8.0, True), None, 0.2, 1, 100, ())


def test_the_load_is_told_as_it_was_seen_and_what_is_unknown_is_absent() -> None:
    said = written(report(observation=OBSERVED))["autoscaler"]["load"]
    assert said == {
        "inFlight": 90.0,
        "queued": 12.5,
        "arrivedRps": 900.0,
        "refusedRps": 8.0,
        "serviceTimeS": 0.2,
        "peak": 201.0,
    }
    blind = report(said=verdict(demand=None), observation=replace(OBSERVED, fast=None, service_time_s=None))
    assert written(blind)["autoscaler"]["load"] == {"peak": 201.0}


def test_the_target_that_the_range_is_counted_by_stands_beside_a_large_pools_own() -> None:
    seen = replace(OBSERVED, revisions=(Revision("iris-a", Role.TRAFFIC, 64, 51.2, 2, 2),))
    pooled = verdict(decision(target=57.6))
    said = written(report(said=pooled, observation=seen))["autoscaler"]["revisions"]["iris-a"]
    assert (said["target"], said["declared"]) == (57.6, 51.2)


PAUSED = Hold("Paused", "replicas are held, until `knobless resume`")
CEILING = Hold("AtCeiling", "the load asks for more than concurrency.max allows")


def test_each_hold_is_a_condition_while_it_holds_and_gone_afterwards() -> None:
    held = written(report(holds=(PAUSED, CEILING)))
    assert [(c["type"], c["status"], c["message"]) for c in held["conditions"]] == [
        ("Scaled", "False", PAUSED.message),
        ("Paused", "True", PAUSED.message),
        ("AtCeiling", "True", CEILING.message),
    ]
    obj = holding(held)
    assert status_object(obj, report(holds=(PAUSED, CEILING)), SETTINGS, NOW_S + 3600.0) is None
    later = written(report(holds=(CEILING,)), obj, NOW_S + 60.0)["conditions"]
    assert [(c["type"], c["lastTransitionTime"]) for c in later] == [
        ("Scaled", "2023-11-14T22:14:20Z"),
        ("AtCeiling", "2023-11-14T22:13:20Z"),
    ]


@pytest.mark.case("autoscaler-G3")
def test_nothing_new_is_no_write() -> None:
    obj = holding(written(report()))
    assert status_object(obj, report(), SETTINGS, NOW_S + 3600.0) is None


def test_live_numbers_alone_are_written_at_most_every_30_seconds() -> None:
    obj = holding(written(report()))
    moved = report(said=verdict(demand=99.0))
    assert status_object(obj, moved, SETTINGS, NOW_S + 29.0) is None
    assert written(moved, obj, NOW_S + 30.0)["autoscaler"]["demand"] == 99.0


@pytest.mark.parametrize(
    "changed",
    [
        report(said=verdict(decision(desired=5))),
        report(said=verdict(decision(sized=False))),
        report(ready={"iris-a": 3}),
        report(foreign="kubectl"),
        report(said=verdict(unknown_s=61.0)),
        report(unwritten=frozenset({"iris-a"})),
    ],
    ids=["desired", "sized", "ready", "foreign", "unknown", "unwritten"],
)
def test_what_others_wait_for_is_written_at_once(changed: Report) -> None:
    assert status_object(holding(written(report())), changed, SETTINGS, NOW_S + 1.0) is not None


def test_a_size_that_could_not_be_written_is_not_yet_covered() -> None:
    said = written(report(unwritten=frozenset({"iris-a"})))["autoscaler"]["revisions"]["iris-a"]
    assert (said["desired"], said["sized"]) == (2, False)


@pytest.mark.parametrize(
    ("given", "status", "reason"),
    [
        (report(), "True", "FollowsLoad"),
        (report(said=verdict(unknown_s=60.0)), "False", "MetricsUnavailable"),
        (report(foreign="kubectl"), "False", "ForeignWriter"),
        (report(unwritten=frozenset({"iris-a"})), "False", "WriteFailed"),
        (report(said=verdict(decision(reason=Reason.CEILING))), "True", "AtCeiling"),
        (report(said=verdict(decision(reason=Reason.BUDGET))), "True", "AtBudget"),
        (report(said=Verdict((), Demand(None, False, False), None, 0.0)), "False", "NoRevision"),
    ],
)
@pytest.mark.case("autoscaler-A3")
@pytest.mark.case("autoscaler-E7")
def test_the_condition_says_what_binds(given: Report, status: str, reason: str) -> None:
    said = written(given)["conditions"][0]
    assert (said["type"], said["status"], said["reason"], said["observedGeneration"]) == ("Scaled", status, reason, 3)


def test_a_conditions_time_moves_only_with_its_status() -> None:
    obj = holding(written(report()))
    same = written(report(said=verdict(decision(reason=Reason.CEILING))), obj, NOW_S + 60.0)["conditions"][0]
    assert same["lastTransitionTime"] == "2023-11-14T22:13:20Z"
    other = written(report(foreign="kubectl"), obj, NOW_S + 60.0)["conditions"][0]
    assert other["lastTransitionTime"] == "2023-11-14T22:14:20Z"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (Change(decision(), was=2), "Load"),
        (Change(decision(), was=9, foreign="kubectl"), "ForeignWriter"),
        (Change(decision(), was=1), "Restored"),
    ],
)
def test_a_correction_is_told_from_a_decision(change: Change, reason: str) -> None:
    record = written(report(change))["autoscaler"]["decisions"][0]
    assert (record["from"], record["reason"]) == (change.was, reason)
    assert ("kubectl" in record["detail"]) is (change.foreign is not None)


def deployment(name: str, uid: str = "u1", replicas: int = 2, ready: int = 1) -> Object:
    owner = [{"uid": uid}]
    metadata = {"namespace": "team-alpha", "name": name, "ownerReferences": owner}
    return {"metadata": metadata, "spec": {"replicas": replicas}, "status": {"readyReplicas": ready}}


def endpoint(routed: str | None = "iris-a", **phases: str) -> Object:
    gateway = {"trafficRevision": routed, "backends": {"iris-a": "b1"}} if routed else {"backends": {}}
    revisions = [{"name": f"iris-{name}", "phase": phase} for name, phase in phases.items()]
    said = {"limit": 64, "target": 51.2, "desired": 3, "sized": True}
    status = {"trafficRevision": "iris-a", "gateway": gateway, "revisions": revisions}
    return ENDPOINT | {"status": status | {"autoscaler": {"revisions": {"iris-a": said}}}}


@pytest.mark.parametrize(
    ("obj", "roles"),
    [
        (endpoint(a="Serving", b="Starting"), ["Traffic", "Successor"]),
        (endpoint(a="Serving", b="Ready"), ["Traffic", "Successor"]),
        (endpoint(a="Serving", b="Held"), ["Traffic", "Parked"]),
        (endpoint(a="Serving", b="Draining"), ["Traffic", "Parked"]),
        (endpoint("iris-b", a="Serving", b="Serving"), ["Parked", "Traffic"]),
        (endpoint("iris-gone", a="Serving", b="Starting"), ["Traffic", "Successor"]),
        (endpoint(None, a="Ready", b="Starting"), ["Traffic", "Successor"]),
        (endpoint(a="Serving"), ["Traffic", "Parked"]),
    ],
)
@pytest.mark.case("autoscaler-D2")
def test_a_revisions_role_is_what_the_gateway_routes_and_its_phase(obj: Object, roles: list[str]) -> None:
    found = revisions_of(endpoint_of(obj), [deployment("iris-a"), deployment("iris-b")], 0.8)
    assert [str(r.role) for r in found] == roles


@pytest.mark.parametrize(("ready", "role"), [(0, "Failed"), (1, "Successor")])
def test_a_failed_one_with_a_ready_pod_is_sized_again(ready: int, role: str) -> None:
    two = [deployment("iris-a"), deployment("iris-b", ready=ready)]
    found = revisions_of(endpoint_of(endpoint(a="Serving", b="Failed")), two, 0.8)
    assert str(found[1].role) == role


@pytest.mark.case("autoscaler-A17")
def test_deployments_of_a_deleted_endpoint_of_the_same_name_are_not_its_own() -> None:
    found = revisions_of(
        endpoint_of(endpoint(a="Serving")), [deployment("iris-a"), deployment("iris-b", uid="old")], 0.8
    )
    assert [r.name for r in found] == ["iris-a"]


def test_what_was_asked_for_is_read_from_the_status() -> None:
    found = revisions_of(endpoint_of(endpoint(a="Serving")), [deployment("iris-a"), deployment("iris-b")], 0.8)
    assert [(r.asked, r.issued, r.live) for r in found] == [(3, 3, 2), (None, 2, 2)]


def annotated(text: str) -> Object:
    metadata = ENDPOINT["metadata"] | {"annotations": {names.ANNOTATION_CONTROL: text}}
    return ENDPOINT | {"metadata": metadata}


def test_a_hold_is_read_from_the_annotation_and_makes_the_endpoint_due() -> None:
    held = endpoint_of(annotated('{"mode": "pause"}'))
    assert (held.control, held.control_problem) == (Control(Mode.PAUSE), None)
    assert held.fingerprint != endpoint_of(ENDPOINT).fingerprint


def test_a_hold_that_cannot_be_read_is_none_and_says_why() -> None:
    held = endpoint_of(annotated("stop!"))
    assert (held.control, held.control_problem) == (None, "'stop!' is no JSON")


def owned_by(*managers: str) -> Object:
    fields = {"f:spec": {"f:replicas": {}}}
    return {"metadata": {"managedFields": [{"manager": m, "fieldsV1": fields} for m in managers]}}


@pytest.mark.parametrize(
    ("managers", "foreign", "claimed"),
    [
        ((), None, False),
        (("knobless-autoscaler",), None, True),
        (("kubectl",), "kubectl", False),
        (("knobless-autoscaler", "hpa"), "hpa", True),
    ],
)
@pytest.mark.case("autoscaler-E7")
def test_the_owner_of_replicas_is_read_from_the_servers_book(
    managers: tuple[str, ...], foreign: str | None, claimed: bool
) -> None:
    assert (foreign_writer(owned_by(*managers)), is_claimed(owned_by(*managers))) == (foreign, claimed)
