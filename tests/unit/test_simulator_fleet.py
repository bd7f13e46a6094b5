"""Replicas from asked for to gone."""

import math

import numpy as np

from simulator.fleet import Fleet, Moved
from simulator.scenario import StartUp


def fleet(initial: int = 2, start_up: StartUp | None = None, rollouts_s: tuple[float, ...] = ()) -> Fleet:
    return Fleet(start_up or StartUp(10.0, sigma=0.0), initial, rollouts_s, np.random.default_rng(1))


def test_a_replica_is_issued_at_once_and_ready_after_its_start() -> None:
    found = fleet()
    assert found.ask(3, 5.0) == Moved()
    assert (found.issued, found.ready, found.next_s) == (3, 2, 15.0)
    assert found.advance(14.9) == Moved()
    assert found.advance(15.0) == Moved(came=[2])
    assert (found.ready, found.next_s, found.counted(0).start_s) == (3, math.inf, 10.0)


def test_a_decrease_takes_what_starts_before_what_is_ready_and_the_youngest_first() -> None:
    found = fleet(initial=3)
    found.ask(5, 0.0)
    assert found.ask(4, 1.0) == Moved()
    assert found.ask(2, 2.0) == Moved(went=[2])
    assert found.serving == [0, 1]
    assert found.advance(100.0) == Moved()


def test_a_failed_start_stays_issued_and_tries_again_later_and_later() -> None:
    found = fleet(1, StartUp(10.0, sigma=0.0, failing=1.0))
    found.ask(2, 0.0)
    waits = []
    for _ in range(7):
        before_s = found.next_s
        assert found.advance(before_s) == Moved()
        waits.append(found.next_s - before_s)
    assert waits == [20.0, 30.0, 50.0, 90.0, 170.0, 310.0, 310.0]
    counted = found.counted(0)
    assert (counted.issued, counted.ready, counted.failing, counted.failed_starts) == (2, 1, 1, 7)


def test_a_successor_of_equal_size_takes_over_when_all_of_it_is_ready() -> None:
    found = fleet(initial=2, rollouts_s=(30.0,))
    found.advance(30.0)
    assert (found.issued, found.ready, found.counted(0).rolling) == (4, 2, True)
    assert found.advance(40.0) == Moved(came=[2, 3], went=[0, 1])
    assert (found.issued, found.counted(0).rolling) == (2, False)


def test_a_decision_during_a_rollout_sizes_both_revisions() -> None:
    found = fleet(initial=2, rollouts_s=(30.0,))
    found.advance(30.0)
    assert found.ask(3, 35.0) == Moved()
    assert found.issued == 6
    found.advance(40.0)
    assert found.counted(0).rolling, "a replica of the successor still starts"
    assert found.advance(45.0) == Moved(came=[2, 3, 5], went=[0, 1])
