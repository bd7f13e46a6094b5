"""What a request that comes now can expect of the calls before it."""

from __future__ import annotations

import pytest

from runtimes.mlflow.recent import SHORT_S, Recent


def after(requests: list[int], seconds: list[float]) -> Recent:
    recent = Recent()
    for count in requests:
        recent.began(count)
    for took in seconds:
        recent.ended(took)
    return recent


@pytest.mark.parametrize(
    ("requests", "in_company"),
    [
        ([], False),
        ([1] * 100, False),
        ([7, 1] * 50, True),  # eight clients, of whom one is late each time
        ([2] * 100, True),
        ([1, 1, 1, 2] * 50, False),
        ([8] * 100 + [1], True),  # one alone says little
        ([8] * 100 + [1] * 100, False),  # many say that the others have gone
    ],
)
def test_a_request_is_in_company_where_most_were(requests: list[int], in_company: bool) -> None:
    assert after(requests, []).in_company is in_company


@pytest.mark.parametrize(
    ("seconds", "short"),
    [
        ([], True),
        ([SHORT_S / 2] * 100, True),
        ([SHORT_S * 2] * 100, False),
        ([SHORT_S / 2] * 100 + [SHORT_S * 2], True),
        ([1.0] * 100 + [0.0] * 10, False),
    ],
)
def test_calls_are_short_where_their_mean_is(seconds: list[float], short: bool) -> None:
    assert after([], seconds).short is short
