"""What the gateway should do: limits that add up, faults that stay at home, traffic that moves when it can."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.gateway.observed import Declared, Fault, Identity, Key, Pod, PodState, read_endpoint
from controllers.gateway.snapshot import Endpoint, ServerState, Snapshot, build, endpoint, spread
from tests.gateway_lab.cluster import endpoint_object, revision

OLD, NEW = revision("iris"), revision("iris", 2)
HOME = Identity("team-alpha", "iris")


def declared(**fields: object) -> Declared:
    fields.setdefault("revisions", [OLD, NEW])
    said = read_endpoint(endpoint_object(**fields))  # type: ignore[arg-type]
    assert isinstance(said, Declared)
    return said


def pods(rev: str, count: int, state: PodState = PodState.READY, home: Identity = HOME) -> list[Pod]:
    return [Pod(home, rev, f"{rev}-{i}", f"10.0.0.{i + 1}", 8080, state) for i in range(count)]


def limits(found: Endpoint, rev: str = OLD) -> list[int]:
    pool = found.pool(rev)
    assert pool is not None
    return [server.maxconn for server in pool.serving]


@pytest.mark.parametrize(
    ("limit", "maximum", "count", "expected"),
    [
        (64, 100, 1, [64]),
        (64, 100, 2, [50, 50]),
        (64, 100, 3, [34, 33, 33]),
        (4, 1000, 3, [4, 4, 4]),
        (4, 12, 3, [4, 4, 4]),
        (4, 11, 3, [4, 4, 3]),
        (4, 3, 3, [1, 1, 1]),
        (4, 2, 3, [1, 1]),
        (1, 1, 1, [1]),
        (64, 64, 0, []),
    ],
)
def test_limits_are_the_pods_own_until_they_would_add_up_to_more_than_the_maximum(
    limit: int, maximum: int, count: int, expected: list[int]
) -> None:
    assert list(spread(limit, maximum, [f"p{i}" for i in range(count)]).values()) == expected


@given(st.integers(1, 500), st.integers(1, 500), st.integers(0, 60))
def test_limits_never_add_up_to_more_than_the_maximum_and_none_is_zero(limit: int, maximum: int, count: int) -> None:
    shares = spread(limit, maximum, [f"p{i}" for i in range(count)]).values()
    assert sum(shares) <= maximum
    assert all(1 <= share <= limit for share in shares)
    assert not shares or max(shares) - min(shares) <= 1
    assert sum(shares) == min(maximum, limit * len(shares))
    assert len(shares) == min(count, maximum)


def test_a_pods_limit_is_the_autoscalers_for_its_revision_else_the_first_one() -> None:
    found = endpoint(declared(limit=4, limits={NEW: 9}), pods(OLD, 1) + pods(NEW, 1), None)
    assert limits(found, OLD) == [4]
    assert limits(found, NEW) == [9]


ASKED = {"pod": f"{OLD}-0", "limit": 9, "weight": 256}


@pytest.mark.parametrize(
    ("maximum", "probe", "expected"),
    [
        (1000, ASKED, [9, 4, 4]),
        (15, ASKED, [7, 4, 4]),
        (12, ASKED, [4, 4, 4]),
        (9, ASKED, [3, 3, 3]),
        (1000, ASKED | {"limit": 1}, [1, 4, 4]),
        (1000, ASKED | {"pod": "gone"}, [4, 4, 4]),
    ],
)
def test_a_probe_is_one_pods_and_the_sum_stays_within_the_maximum(
    maximum: int, probe: dict[str, object], expected: list[int]
) -> None:
    pool = endpoint(declared(maximum=maximum, limits={OLD: 4}, probe=probe), pods(OLD, 3), None).pool(OLD)
    assert pool is not None
    assert [server.maxconn for server in pool.serving] == expected
    assert [server.weight for server in pool.serving] == [256 if probe["pod"] == f"{OLD}-0" else 1, 1, 1]


@pytest.mark.parametrize("probe", [{"pod": "p", "limit": 0}, {"pod": "p", "limit": 4, "weight": 257}, "p"])
def test_a_probe_that_cannot_be_is_a_fault(probe: object) -> None:
    said = read_endpoint(endpoint_object(limits={OLD: 4}, probe=probe))  # type: ignore[arg-type]
    assert isinstance(said, Fault)


@pytest.mark.case("autoscaler-H4")
@pytest.mark.case("autoscaler-C10")
@pytest.mark.parametrize("state", [PodState.NOT_READY, PodState.TERMINATING])
def test_only_ready_pods_serve_and_share_the_maximum(state: PodState) -> None:
    ready, other = pods(OLD, 2), pods(OLD, 3, state)[2:]
    found = endpoint(declared(limit=4, maximum=8), ready + other, None)
    pool = found.pool(OLD)
    assert pool is not None
    assert [server.state for server in pool.servers] == [ServerState.SERVING, ServerState.SERVING, ServerState.DRAINING]
    assert limits(found) == [4, 4]


@pytest.mark.parametrize(
    ("wanted", "live", "old", "new", "desired", "route"),
    [
        (OLD, None, 0, 0, None, OLD),  # the first: whatever its pods
        (NEW, OLD, 1, 1, None, NEW),
        (NEW, OLD, 1, 0, None, OLD),  # the pods are not seen yet
        (NEW, OLD, 0, 0, None, NEW),  # nothing to lose
        (NEW, OLD, 3, 2, 3, OLD),  # some are seen
        (NEW, OLD, 3, 3, 3, NEW),
        (NEW, OLD, 4, 2, 2, NEW),  # fewer, larger pods are enough
        (NEW, OLD, 1, 1, 5, NEW),  # as many as it takes the place of
        (NEW, NEW, 3, 0, 3, NEW),  # never back by itself
        (OLD, NEW, 2, 2, None, OLD),  # a revert to a held one is immediate
        ("", OLD, 1, 0, None, OLD),  # the word is gone, traffic is not
        ("", None, 1, 0, None, None),
    ],
)
def test_traffic_moves_once_the_next_revision_has_its_pods(
    wanted: str, live: str | None, old: int, new: int, desired: int | None, route: str | None
) -> None:
    said = declared(traffic=wanted)
    if desired is not None:
        said = dataclasses.replace(said, desired={wanted: desired})
    assert endpoint(said, pods(OLD, old) + pods(NEW, new), live).route == route


def test_pods_of_every_revision_stay_known_so_that_a_backlog_can_end() -> None:
    found = endpoint(declared(traffic=NEW), pods(OLD, 1) + pods(NEW, 1), NEW)
    assert [pool.revision for pool in found.pools] == [OLD, NEW]


def snapshot(
    found: dict[Identity, Declared | Fault],
    pods: list[Pod] | None = None,
    good: dict[Identity, Declared] | None = None,
    keys: list[Key] | None = None,
) -> Snapshot:
    return build(found, pods or [], keys or [], good or {}, {})


def test_a_fault_leaves_the_last_good_declaration_in_force_with_todays_pods() -> None:
    fault = Fault("InvalidSpec", "limit is 0")
    found = snapshot({HOME: fault}, pods(OLD, 2), {HOME: declared(limit=3)})
    assert limits(found.endpoints[0]) == [3, 3]
    (problem,) = found.problems
    assert (problem.identity, problem.reason) == (HOME, "InvalidSpec")
    assert "last good" in problem.message
    assert found.good == {HOME: declared(limit=3)}


def test_a_fault_of_an_endpoint_that_was_never_good_leaves_it_out_and_the_others_in() -> None:
    rose = read_endpoint(endpoint_object("rose"))
    found = snapshot({HOME: Fault("InvalidSpec", "x"), Identity("team-alpha", "rose"): rose})
    assert [each.name for each in found.endpoints] == ["rose"]
    assert [problem.identity for problem in found.problems] == [HOME]


def test_an_endpoint_that_is_gone_is_gone_even_if_it_was_good() -> None:
    assert snapshot({}, pods(OLD, 1), {HOME: declared()}).endpoints == ()


@pytest.mark.parametrize("good_first", [True, False])
def test_a_name_belongs_to_who_has_it_else_to_the_oldest(good_first: bool) -> None:
    other = Identity("team-beta", "iris")
    second = read_endpoint(endpoint_object(team="beta"))
    assert isinstance(second, Declared)
    older = dataclasses.replace(second, created="2025-01-01T00:00:00Z")
    found = snapshot({HOME: declared(), other: older}, good={HOME: declared()} if good_first else None)
    owner, loser = (HOME, other) if good_first else (other, HOME)
    assert [each.declared.identity for each in found.endpoints] == [owner]
    assert [(problem.identity, problem.reason) for problem in found.problems] == [(loser, "DuplicateName")]


def test_pods_in_another_namespace_are_no_pods_of_this_endpoint() -> None:
    foreign = pods(OLD, 2, home=Identity("team-beta", "iris"))
    found = snapshot({HOME: declared()}, foreign)
    assert limits(found.endpoints[0]) == []


def test_a_key_may_call_the_endpoints_that_name_its_team_and_no_other() -> None:
    rose = read_endpoint(endpoint_object("rose", team="beta"))
    found = snapshot(
        {HOME: declared(teams=["beta"]), Identity("team-beta", "rose"): rose},
        keys=[Key("alpha", "A"), Key("beta", "B"), Key("gamma", "C")],
    )
    assert found.access == {("A", "iris"), ("B", "iris"), ("B", "rose")}
