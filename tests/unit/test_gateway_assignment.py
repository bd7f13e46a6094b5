"""A revision keeps its back end while it lives, over restarts too; a freed one is reused late."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.gateway.assignment import Assignment, Revision, assign, restore, spares
from controllers.gateway.observed import Declared, Identity, Pod, PodState, read_endpoint
from controllers.gateway.settings import QueueClass, queue_classes
from controllers.gateway.snapshot import Endpoint, endpoint
from tests.gateway_lab.cluster import endpoint_object, revision

FOUR = spares([QueueClass(5000, 4)])
A, B, C = (Revision("iris", f"iris-{i:08x}") for i in range(3))


def want(*revisions: Revision, timeout_ms: int = 5000) -> list[tuple[Revision, int]]:
    return [(each, timeout_ms) for each in revisions]


def test_back_ends_are_numbered_through_all_classes() -> None:
    found = spares([QueueClass(5000, 2), QueueClass(1000, 1)])
    assert found.by_timeout == ((1000, ("b00000",)), (5000, ("b00001", "b00002")))
    assert found.timeout_of("b00002") == 5000
    assert found.timeout_of("b00009") is None


@pytest.mark.parametrize("count", [1, 15, 16, 256, 4096])
def test_the_declared_number_of_spares_is_what_all_classes_hold(count: int) -> None:
    classes = queue_classes(count)
    assert sum(each.backends for each in classes) == count
    assert max(classes, key=lambda each: each.backends).timeout_ms == 5000


@pytest.mark.parametrize(
    ("timeout_ms", "expected"), [(1, 1000), (1000, 1000), (1001, 5000), (5000, 5000), (6000, 60000), (99999, 60000)]
)
def test_a_queue_timeout_gets_the_shortest_class_that_is_long_enough(timeout_ms: int, expected: int) -> None:
    known = spares([QueueClass(1000, 1), QueueClass(5000, 1), QueueClass(60000, 1)])
    found, _ = assign(want(A, timeout_ms=timeout_ms), Assignment(), known)
    assert known.timeout_of(found.backends[A]) == expected


def test_a_used_up_class_borrows_from_a_longer_one_before_a_shorter_one() -> None:
    known = spares([QueueClass(1000, 1), QueueClass(5000, 1), QueueClass(60000, 1)])
    found, missing = assign(want(A, B, C), Assignment(), known)
    assert [known.timeout_of(found.backends[each]) for each in (A, B, C)] == [5000, 60000, 1000]
    assert missing == frozenset()


def test_a_revision_keeps_its_back_end_whatever_comes_and_goes() -> None:
    first, _ = assign(want(A, B), Assignment(), FOUR)
    second, _ = assign(want(B, C), first, FOUR)
    assert second.backends[B] == first.backends[B]
    assert second.backends[C] not in first.backends.values()


def test_a_freed_back_end_is_taken_last_and_the_oldest_freed_one_first() -> None:
    state, _ = assign(want(A, B), Assignment(), FOUR)
    of_a, of_b = state.backends[A], state.backends[B]
    state, _ = assign(want(B), state, FOUR)
    state, _ = assign(want(), state, FOUR)
    assert state.freed == (of_a, of_b)
    taken = []
    for number in range(4):
        each = Revision("rose", str(number))
        state, _ = assign([*((kept, 5000) for kept in state.backends), (each, 5000)], state, FOUR)
        taken.append(state.backends[each])
    assert taken == ["b00002", "b00003", of_a, of_b]
    assert state.freed == ()


def test_a_back_end_stays_its_revisions_until_its_servers_are_gone() -> None:
    state, _ = assign(want(A), Assignment(), FOUR)
    backend = state.backends[A]
    state, _ = assign(want(B), state, FOUR, occupied=frozenset({backend}))
    assert state.backends[A] == backend
    assert state.backends[B] != backend
    state, _ = assign(want(B), state, FOUR)
    assert A not in state.backends


def test_a_back_end_with_a_strangers_servers_is_given_to_nobody() -> None:
    found, _ = assign(want(A), Assignment(), FOUR, occupied=frozenset({"b00000", "b00001"}))
    assert found.backends[A] == "b00002"


def test_without_a_spare_the_first_wanted_are_served_and_the_rest_is_named() -> None:
    one = spares([QueueClass(5000, 1)])
    found, missing = assign(want(B, A), Assignment(), one)
    assert found.backends == {B: "b00000"}
    assert missing == {A}


@given(st.lists(st.tuples(st.sets(st.integers(0, 7)), st.sets(st.integers(0, 3))), max_size=12))
def test_no_back_end_ever_belongs_to_two_and_none_that_is_held_is_lost(steps: list[tuple[set[int], set[int]]]) -> None:
    state = Assignment()
    for wanted, held in steps:
        before = state
        occupied = frozenset(f"b{i:05}" for i in held)
        revisions = [Revision("iris", str(each)) for each in sorted(wanted)]
        state, missing = assign(want(*revisions), state, FOUR, occupied)
        assert len(set(state.backends.values())) == len(state.backends)
        assert not set(state.backends.values()) & set(state.freed)
        assert {each for each in revisions if each not in state.backends} == missing
        assert all(state.backends[each] == before.backends[each] for each in revisions if each in before.backends)
        assert all(b in state.backends.values() for b in occupied & set(before.backends.values()))


IRIS = revision("iris")


def known(pods: list[str], recorded: dict[str, str] | None = None) -> list[Endpoint]:
    obj = endpoint_object()
    obj["status"]["gateway"] = {"backends": recorded or {}}
    said = read_endpoint(obj)
    assert isinstance(said, Declared)
    identity = Identity("team-alpha", "iris")
    return [endpoint(said, [Pod(identity, IRIS, name, "10.0.0.1", 1, PodState.READY) for name in pods], None)]


OWN = Revision("iris", IRIS)


@pytest.mark.parametrize(
    ("held", "routed", "remembered", "recorded", "expected"),
    [
        ({"b00002": ["p1"]}, {}, {}, {}, "b00002"),  # it holds the revision's pod
        ({"b00002": ["p1"]}, {}, {OWN: "b00001"}, {IRIS: "b00003"}, "b00002"),  # HAProxy knows best
        ({}, {}, {OWN: "b00001"}, {IRIS: "b00003"}, "b00001"),  # then memory
        ({}, {}, {}, {IRIS: "b00003"}, "b00003"),  # then the status
        ({"b00001": ["gone"]}, {}, {OWN: "b00001"}, {}, "b00001"),  # all its pods were replaced
        ({"b00003": ["gone"]}, {"iris": "b00003"}, {}, {IRIS: "b00003"}, "b00003"),
        ({"b00003": ["gone"]}, {}, {}, {IRIS: "b00003"}, None),  # a stranger's
        ({"b00002": ["p1"], "b00003": ["p1"]}, {"iris": "b00003"}, {}, {}, "b00003"),  # the routed one
        ({}, {}, {OWN: "b00099"}, {IRIS: "b00088"}, None),  # there are fewer spares now
        ({}, {}, {}, {}, None),
    ],
)
def test_after_a_restart_haproxy_speaks_first_then_memory_then_the_status(
    held: dict[str, list[str]],
    routed: dict[str, str],
    remembered: dict[Revision, str],
    recorded: dict[str, str],
    expected: str | None,
) -> None:
    found = restore(known(["p1", "p2"], recorded), held, routed, Assignment(remembered), FOUR)
    assert found.backends.get(OWN) == expected
