"""Rates become requests: the integral is kept, the variance is what the burstiness says."""

import numpy as np
import pytest

from simulator.loads import Rates, Times


def test_a_bin_holds_the_integral_of_the_rate_whatever_the_steps() -> None:
    """2 a second for 1.5 s, then 4: the bins of a half second hold 1, 1, 1, 2, 2, 2."""
    assert Rates([2.0, 4.0], step_s=1.5).mean_counts(0.5).tolist() == [1.0, 1.0, 1.0, 2.0, 2.0, 2.0]


def test_a_load_that_ends_within_a_second_is_silent_to_its_end() -> None:
    counts = Rates([8.0], step_s=1.5, cv=0.0).counts(np.random.default_rng(1), 0.5)
    assert counts.tolist() == [4, 4, 4, 0]


@pytest.mark.parametrize("cv", [0.0, 0.5, 1.0, 2.0, 4.0])
def test_counts_of_a_second_have_the_mean_of_the_rate_and_its_variance_times_cv_squared(cv: float) -> None:
    counts = Rates([50.0] * 20_000, cv=cv).counts(np.random.default_rng(2), 0.1).reshape(-1, 10).sum(axis=1)
    assert counts.mean() == pytest.approx(50, rel=0.03)
    assert counts.var() == pytest.approx(50 * cv**2, rel=0.06, abs=0.3)


def test_times_are_those_of_the_counts() -> None:
    load = Rates([5.0, 0.0, 30.0], cv=2.0)
    times = load.times(np.random.default_rng(3), 0.25)
    again = np.bincount((times / 0.25).astype(int), minlength=12)
    assert again.tolist() == load.counts(np.random.default_rng(3), 0.25).tolist()
    assert (np.diff(times) >= 0).all()


def test_requests_at_their_own_times_are_counted_where_they_fall() -> None:
    load = Times([2.05, 0.0, 0.1, 0.99])
    assert load.duration_s == 3
    assert load.counts(np.random.default_rng(1), 0.1).nonzero()[0].tolist() == [0, 1, 9, 20]
    assert load.times(np.random.default_rng(1), 0.1).tolist() == [0.0, 0.1, 0.99, 2.05]


def test_requests_after_the_stated_span_do_not_count() -> None:
    assert Times([0.5, 7.0], span_s=2.0).counts(np.random.default_rng(1), 0.5).tolist() == [0, 1, 0, 0]
