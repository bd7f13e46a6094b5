"""W: measured over completions, and what is likely while there are few."""

import pytest

from controllers.autoscaler.cycle import Remembered
from controllers.autoscaler.inputs import prior_of
from controllers.autoscaler.load import Load, LoadSample
from controllers.autoscaler.observation import Observation, Prior, observation_of
from controllers.autoscaler.service_time import likely_time_s, service_time_s
from controllers.autoscaler.settings import Settings
from controllers.autoscaler.vertical.signals import Signals


def samples(*in_flight: float) -> list[LoadSample]:
    """One a second; each request takes 0.2 s."""
    return [LoadSample(float(at), Load(n, 0.0, n * 5, n * 5, 0.0)) for at, n in enumerate(in_flight)]


def held(in_flight: float, answers: float, seconds: int = 30) -> list[LoadSample]:
    """As many in flight all the time, and so many answers in all."""
    served = [answers / seconds] * seconds
    return [LoadSample(float(at), Load(in_flight, 0.0, 10.0, rate, 0.0)) for at, rate in enumerate(served)]


def test_service_time_is_busy_time_over_completions() -> None:
    """10 in flight and 50 answers a second: 0.2 s."""
    assert service_time_s(samples(*[10] * 10), 9.0, 60.0, 10.0) == pytest.approx(0.2)


@pytest.mark.case("autoscaler-A13")
def test_too_few_completions_say_nothing_about_the_service_time() -> None:
    idle = [LoadSample(float(at), Load(3.0, 0.0, 0.0, 0.0, 0.0)) for at in range(10)]
    assert service_time_s(idle, 9.0, 60.0, 10.0) is None
    assert service_time_s([], 9.0, 60.0, 0.0) is None


def test_a_jump_of_what_is_in_flight_is_no_longer_service_time() -> None:
    """800/s of 0.2 s find room for 160 within the last second; by its end alone W would be 0.25 s, not 0.19."""
    loads = [Load(16.0, 0.0, 800.0, 80.0, 720.0)] * 9 + [Load(160.0, 0.0, 800.0, 440.0, 0.0)]
    given = [LoadSample(float(second), load) for second, load in enumerate(loads)]
    assert service_time_s(given, 9.0, 60.0, 10.0) == pytest.approx(232.0 / 1232.0)


@pytest.mark.parametrize("was", [30.0, 300.0], ids=["rises", "falls"])
def test_the_service_time_of_long_requests_is_the_same_while_their_number_changes(was: float) -> None:
    """Requests of 30 s, 1 or 10 a second: completions follow arrivals only 30 s later."""
    becomes = 330.0 - was
    in_flight = [was + (becomes - was) * min(max(second - 20, 0), 30) / 30 for second in range(60)]
    served = [(was if second < 50 else becomes) / 30.0 for second in range(60)]
    loads = [Load(n, 0.0, None, rate) for n, rate in zip(in_flight, served, strict=True)]
    given = [LoadSample(float(second), load) for second, load in enumerate(loads)]
    assert service_time_s(given, 59.0, 60.0, 10.0) == pytest.approx(30.0, rel=0.05)
    assert service_time_s(reversed(given), 59.0, 60.0, 10.0) == pytest.approx(30.0, rel=0.05)


def test_requests_that_vanish_with_their_pods_leave_the_service_time_in_range() -> None:
    given = [LoadSample(0.0, Load(1000.0, 0.0, None, 20.0)), LoadSample(1.0, Load(0.0, 0.0, None, 20.0))]
    assert service_time_s(given, 1.0, 60.0, 10.0) == pytest.approx(1500.0 / 20.0)


@pytest.mark.parametrize(
    ("given", "prior_s", "expected"),
    [
        ([], None, None),
        ([], 0.2, 0.2),
        (held(0.0, 0.0), 0.2, 0.2),
        (held(0.0, 0.0), None, None),
        (held(8.0, 0.0), None, 30.0),
        (held(8.0, 0.0), 0.2, 30.0),
        (held(8.0, 2.0), 0.2, 24.16),
        (held(8.0, 2.0), None, 24.0),
        (held(0.1, 4.0), 2.0, 1.5),
        (held(0.1, 9.0), 2.0, 0.5),
    ],
    ids=[
        "nothing at all",
        "nothing seen and a prior",
        "nothing sent and a prior",
        "nothing sent",
        "the age of what is in flight",
        "older than the prior",
        "the blend above the age",
        "the age over all that came",
        "four of ten completions",
        "nine of ten completions",
    ],
)
def test_while_completions_are_few_the_prior_stands_for_those_that_lack_and_no_less_than_the_age(
    given: list[LoadSample], prior_s: float | None, expected: float | None
) -> None:
    """2 answers of 240 / 2 = 120 s and 8 of the prior's 0.2 s: 0.2 x 120 + 0.8 x 0.2 = 24.16 s."""
    found = likely_time_s(given, 29.0, 60.0, 10.0, prior_s)
    assert found == (None if expected is None else pytest.approx(expected))


def observed(given: list[LoadSample], prior_s: float | None) -> Observation:
    prior = Prior(prior_s, measured=True) if prior_s is not None else None
    return observation_of(given, (), (1, 100), Settings(), given[-1].at_s, prior)


def test_a_measured_service_time_leaves_no_word_to_the_prior() -> None:
    found = observed(samples(*[10] * 10), 7.0)
    assert (found.service_time_s, found.likely_time_s) == (pytest.approx(0.2), None)


def test_windows_are_no_shorter_than_what_a_request_is_likely_to_take() -> None:
    """8 in flight for 30 s without an answer: the short window is 30 s long too."""
    given = held(8.0, 0.0)
    assert observed(given, None).likely_time_s == pytest.approx(30.0)
    first = [LoadSample(0.0, Load(38.0, 0.0, 10.0, 0.0, 0.0)), *given[1:]]
    fast = observed(first, None).fast
    assert fast is not None
    assert fast.in_flight == pytest.approx(9.0)


@pytest.mark.parametrize(
    ("remembered_s", "self_tests_ms", "expected"),
    [
        (None, (), None),
        (None, (None, 20.0, 40.0), Prior(0.03, measured=False)),
        (0.7, (20.0,), Prior(0.7, measured=True)),
        (None, (None,), None),
    ],
    ids=["nothing", "the pods that know", "measured before", "no pod knows"],
)
def test_the_prior_is_what_was_measured_before_or_what_pods_tests_of_themselves_took(
    remembered_s: float | None, self_tests_ms: tuple[float | None, ...], expected: Prior | None
) -> None:
    pods = [Signals(self_test_ms=took_ms) for took_ms in self_tests_ms]
    assert prior_of(Remembered(service_time_s=remembered_s), pods) == expected
