"""What the runtime counts of a request: every end, and the time of those that the model answered."""

from __future__ import annotations

import itertools
import re

import pytest

from runtimes.interface.metrics import CLIENT_LEFT, Metrics

BOUND = re.compile(r'duration_seconds_bucket\{[^}]*le="([0-9.]+)"')


def counted(metrics: Metrics) -> float:
    text = metrics.render().decode()
    return float(re.findall(r"request_duration_seconds_count\{[^}]*\} (\S+)", text)[0])


@pytest.mark.parametrize("code", [200, 500, 504])
def test_the_time_of_what_the_model_worked_on_is_observed(code: int) -> None:
    metrics = Metrics("wine", "1")
    metrics.count(code, 0.2)
    assert counted(metrics) == 1


@pytest.mark.parametrize("code", [400, 413, 415, 429, CLIENT_LEFT, 503])
def test_a_quick_refusal_does_not_make_the_model_look_quick(code: int) -> None:
    metrics = Metrics("wine", "1")
    metrics.count(code, 0.0001)
    assert counted(metrics) == 0
    assert f'code="{code}",endpoint="wine",version="1"}} 1.0' in metrics.render().decode()


def test_a_time_that_grows_by_half_reaches_another_bucket() -> None:
    bounds = [float(bound) for bound in BOUND.findall(Metrics("wine", "1").render().decode())]
    assert (bounds[0], bounds[-1]) == (0.001, 300)
    assert all(1 < high / low <= 1.501 for low, high in itertools.pairwise(bounds))
