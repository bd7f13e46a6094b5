"""Statistics -> counters -> loads -> samples: values, zeros and unknowns stay apart."""

import itertools
import math
from dataclasses import replace

import pytest

from controllers.autoscaler.haproxy import StatisticsError, parse
from controllers.autoscaler.load import ZERO, Counters, Load, difference, total
from controllers.autoscaler.observe import Gateway, Sampler, gateways_of, sample_of
from controllers.autoscaler.settings import Settings
from controllers.autoscaler.view import Endpoint

HEADER = "# pxname,svname,qcur,qmax,scur,smax,slim,stot,bin,bout"
# Recorded from HAProxy 2.8.25: 15 requests at two servers with maxconn 2 and a queue bound of 5, then all answered.
FULL = f"{HEADER}\nb1,p1,0,0,2,2,2,2,0,0\nb1,p2,0,0,2,2,2,2,0,0\nb1,BACKEND,5,5,9,10,50,15,228,636\n"
DONE = f"{HEADER}\nb1,p1,0,0,0,2,2,4,0,0\nb1,p2,0,0,0,2,2,4,0,0\nb1,BACKEND,0,5,0,10,50,15,228,636\n"
# Recorded likewise: `show retries`, and what one that does not know it says (shortened).
RETRIES = "# backend,retried\nb1,7\n\n"
EXPLANATION = """\
Unknown command: 'show', but maybe one of the following ones is a better match:
  show errors [<px>] [request|response]   : report last request and/or response errors for each proxy
  show libs                               : show loaded object files and libraries
  help [<command>]                        : list matching or all commands
  quit                                    : disconnect

"""


def test_statistics_become_counters_by_back_end() -> None:
    assert parse(FULL) == {"b1": Counters(queued=5, arrived=15, servers={"p1": (2, 2), "p2": (2, 2)})}
    assert parse(FULL)["b1"].in_flight == 4


def test_columns_are_found_by_name() -> None:
    text = "# stot,scur,svname,pxname,qcur,x\n7,3,p1,b1,,\n9,4,BACKEND,b1,1,\n"
    assert parse(text) == {"b1": Counters(1, 9, {"p1": (3, 7)})}


def test_what_was_retried_stands_before_the_statistics_and_a_back_end_that_it_does_not_name_had_none() -> None:
    other = "b2,BACKEND,0,0,0,0,50,3,0,0\n"
    assert {name: found.retried for name, found in parse(RETRIES + FULL + other).items()} == {"b1": 7, "b2": 0}
    assert parse("# backend,retried\n\n" + FULL)["b1"].retried == 0


@pytest.mark.parametrize("before", ["", EXPLANATION], ids=["not asked", "not known"])
def test_a_gateway_that_does_not_tell_what_was_retried_leaves_it_unknown_and_the_rest_as_it_is(before: str) -> None:
    assert parse(before + FULL) == {"b1": Counters(5, 15, {"p1": (2, 2), "p2": (2, 2)}, retried=None)}


def test_no_back_ends_are_an_empty_answer_and_no_error() -> None:
    assert parse(HEADER + "\n\n") == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<html>502</html>",
        "# pxname,svname\nb1,p1\n",
        f"{HEADER}\nb1,p1,x,0,2,2,2,2\n",
        f"{HEADER}\nb1,p1,0\n",
        "# backend,retried\nb1,7",
        RETRIES,
        EXPLANATION,
        f"# backend,retried\nb1,x\n\n{FULL}",
        f"# backend,retried\nb1\n\n{FULL}",
    ],
    ids=[
        "empty",
        "another program",
        "columns missing",
        "no number",
        "torn row",
        "torn retries",
        "retries alone",
        "explanation alone",
        "retries no number",
        "retries torn row",
    ],
)
@pytest.mark.case("autoscaler-A10")
def test_what_is_no_statistics_raises_and_is_never_zero(text: str) -> None:
    with pytest.raises(StatisticsError):
        parse(text)


def test_refused_is_what_came_and_neither_was_sent_nor_waits() -> None:
    """15 came, 8 were sent in the end (7 timed out or were turned away), 8 were answered."""
    began = Counters(0, 0, {"p1": (0, 0), "p2": (0, 0)})
    full = difference(began, parse(FULL)["b1"], 1.0)
    assert (full.in_flight, full.queued) == (4, 5)
    assert (full.arrived_rps, full.served_rps, full.refused_rps) == (15, 0, 6)
    done = difference(parse(FULL)["b1"], parse(DONE)["b1"], 2.0)
    assert (done.arrived_rps, done.served_rps, done.refused_rps) == (0, 4, 0.5)


@pytest.mark.case("autoscaler-B7")
def test_attempts_are_conserved_over_any_split_into_readings() -> None:
    readings = [Counters(0, 0, {"p": (0, 0)}), Counters(3, 9, {"p": (4, 6)}), Counters(0, 9, {"p": (2, 8)})]
    loads = [difference(a, b, 1.0) for a, b in itertools.pairwise(readings)]
    arrived, served, refused = (
        sum(getattr(load, name) for load in loads) for name in ("arrived_rps", "served_rps", "refused_rps")
    )
    assert arrived == 9
    assert served + refused + readings[-1].in_flight + readings[-1].queued == 9


@pytest.mark.case("autoscaler-G9")
def test_a_count_that_fell_is_a_restart_and_counts_whole() -> None:
    load = difference(Counters(0, 1000, {"p": (0, 900)}), Counters(0, 30, {"p": (10, 30)}), 1.0)
    assert (load.arrived_rps, load.served_rps, load.refused_rps) == (30, 20, 0)


@pytest.mark.parametrize(
    ("before", "now", "retried"),
    [
        ((1000, 100), (1030, 120), 20),
        ((1000, 100), (1030, 100), 0),
        ((1000, 100), (30, 20), 20),
        ((900, 5), (30, 20), 20),
        ((1000, 100), (1030, 3), 3),
        ((0, 0), (30, 30), 30),
        ((1000, None), (1030, 20), None),
        ((1000, 100), (1030, None), None),
    ],
    ids=["grew", "rests", "both fell", "arrivals fell", "retries fell", "all", "was not told", "is not told"],
)
@pytest.mark.case("autoscaler-G9")
def test_retried_is_what_grew_or_all_of_a_count_that_fell_and_never_a_guess(
    before: tuple[int, int | None], now: tuple[int, int | None], retried: int | None
) -> None:
    one, two = (Counters(0, arrived, {}, marked) for arrived, marked in (before, now))
    assert difference(one, two, 2.0).retried_rps == (None if retried is None else retried / 2)


def test_first_attempts_are_what_arrived_less_what_is_known_to_be_retried() -> None:
    before, now = Counters(0, 100, {}, 10), Counters(0, 150, {}, 30)
    assert difference(before, now, 1.0).first_rps == 30
    assert difference(before, replace(now, retried=None), 1.0).first_rps == 50


def test_retries_that_one_gateway_does_not_tell_are_unknown_and_a_rest_is_none() -> None:
    tells, silent = Load(0.0, 0.0, 10.0, 10.0, 0.0, 4.0), Load(0.0, 0.0, 10.0, 10.0, 0.0)
    assert (total([tells, silent]).retried_rps, total([tells, silent]).first_rps) == (None, 20)
    assert (total([tells, ZERO, tells]).retried_rps, total([tells, ZERO, tells]).first_rps) == (8, 12)


def test_a_server_that_is_gone_takes_nothing_away() -> None:
    before = Counters(0, 100, {"p1": (0, 50), "p2": (0, 50)})
    load = difference(before, Counters(0, 110, {"p2": (0, 60)}), 1.0)
    assert (load.arrived_rps, load.served_rps, load.refused_rps) == (10, 10, 0)


@pytest.mark.case("autoscaler-A13")
def test_without_a_reading_before_there_is_no_rate_rather_than_zero() -> None:
    load = difference(None, Counters(1, 500, {"p": (3, 499)}), 0.0)
    assert (load.in_flight, load.queued, load.arrived_rps) == (3, 1, None)
    assert total([load, ZERO]).arrived_rps is None


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf, -1.0])
@pytest.mark.case("autoscaler-A7")
@pytest.mark.case("autoscaler-A8")
def test_an_absurd_number_is_not_sane(wrong: float) -> None:
    assert not Load(wrong, 0.0).sane
    assert not Load(0.0, 0.0, arrived_rps=wrong).sane
    assert Load(1.0, 2.0).sane


ENDPOINT = Endpoint(
    namespace="n",
    name="iris",
    uid="u",
    generation=1,
    concurrency_min=1,
    concurrency_max=100,
    initial_limit=10,
    backends={"iris-a": "b1", "iris-b": "b2"},
    traffic="iris-a",
    routed="iris-a",
    phases={},
    asked={},
)
ONE, TWO, LEAVING = Gateway("g1", "h1", False), Gateway("g2", "h2", False), Gateway("g3", "h3", True)
LOAD = Load(4.0, 1.0, 10.0, 10.0, 0.0)


def test_an_endpoints_load_is_that_of_all_its_back_ends_at_all_gateways() -> None:
    sample = sample_of(ENDPOINT, [(ONE, {"b1": LOAD, "b2": ZERO}), (TWO, {"b1": LOAD, "b2": LOAD})], 7.0)
    assert sample.load == Load(12.0, 3.0, 30.0, 30.0, 0.0)
    assert (sample.at_s, sample.complete) == (7.0, True)


@pytest.mark.case("autoscaler-A1")
@pytest.mark.case("autoscaler-A19")
def test_a_silent_gateway_makes_the_load_at_least_and_all_silent_unknown() -> None:
    some = sample_of(ENDPOINT, [(ONE, {"b1": LOAD, "b2": ZERO}), (TWO, None)], 0.0)
    assert (some.load, some.complete) == (Load(4.0, 1.0, 10.0, 10.0, 0.0), False)
    none = sample_of(ENDPOINT, [(ONE, None), (TWO, None)], 0.0)
    assert (none.load, none.complete) == (None, False)


def test_no_gateway_at_all_is_unknown() -> None:
    assert sample_of(ENDPOINT, [], 0.0).load is None


@pytest.mark.case("autoscaler-A11")
def test_a_back_end_that_should_be_there_and_is_not_is_no_zero() -> None:
    sample = sample_of(ENDPOINT, [(ONE, {"b1": LOAD})], 0.0)
    assert (sample.load, sample.complete) == (LOAD, False)


def test_an_endpoint_without_back_ends_has_no_requests() -> None:
    unrouted = Endpoint(**{**vars(ENDPOINT), "backends": {}})
    assert sample_of(unrouted, [(ONE, {})], 0.0).load == ZERO


def test_an_endpoint_that_no_gateway_has_spoken_of_is_unknown() -> None:
    unseen = Endpoint(**{**vars(ENDPOINT), "backends": None})
    assert sample_of(unseen, [(ONE, {"b1": LOAD})], 0.0).load is None


@pytest.mark.case("autoscaler-A18")
def test_a_leaving_gateway_counts_where_it_answers_and_is_not_missed() -> None:
    answer = {"b1": LOAD, "b2": ZERO}
    assert sample_of(ENDPOINT, [(ONE, answer), (LEAVING, answer)], 0.0).load == total([LOAD, LOAD])
    gone = sample_of(ENDPOINT, [(ONE, answer), (LEAVING, None)], 0.0)
    assert (gone.load, gone.complete) == (LOAD, True)


def test_gateways_are_the_running_pods_with_an_address() -> None:
    def pod(uid: str, phase: str, ip: str | None, **metadata: str) -> dict[str, object]:
        return {"metadata": {"uid": uid, **metadata}, "status": {"phase": phase} | ({"podIP": ip} if ip else {})}

    pods = [
        pod("a", "Running", "10.0.0.1"),
        pod("b", "Pending", None),
        pod("c", "Failed", "10.0.0.3"),
        pod("d", "Running", "10.0.0.4", deletionTimestamp="now"),
    ]
    assert gateways_of(pods) == [Gateway("a", "10.0.0.1", False), Gateway("d", "10.0.0.4", True)]


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


async def test_the_first_reading_gives_gauges_and_the_second_rates() -> None:
    clock, arrived = Clock(), iter([1000, 1010, 1030])

    async def read(host: str, port: int, deadline_s: float) -> dict[str, Counters]:
        return {"b1": Counters(0, next(arrived), {"p": (2, 0)}), "b2": Counters(0, 0, {})}

    sampler = Sampler(Settings(), read, clock)
    rates = []
    for _ in range(3):
        await sampler.sample([ONE], [ENDPOINT])
        latest = sampler.latest(ENDPOINT)
        assert latest is not None
        assert latest.load is not None
        rates.append(latest.load.arrived_rps)
        clock.now_s += 1.0
    assert rates == [None, 10.0, 20.0]


@pytest.mark.parametrize(("gap_s", "rate"), [(2.0, 5.0), (6.0, None)])
async def test_readings_too_far_apart_are_a_new_beginning_and_others_share_their_interval(
    gap_s: float, rate: float | None
) -> None:
    clock, arrived = Clock(), iter([1000, 1010])

    async def read(host: str, port: int, deadline_s: float) -> dict[str, Counters]:
        return {"b1": Counters(0, next(arrived), {}), "b2": Counters(0, 0, {})}

    sampler = Sampler(Settings(), read, clock)
    for _ in range(2):
        await sampler.sample([ONE], [ENDPOINT])
        clock.now_s += gap_s
    latest = sampler.latest(ENDPOINT)
    assert latest is not None
    assert latest.load is not None
    assert latest.load.arrived_rps == rate


@pytest.mark.case("autoscaler-H1")
async def test_a_back_end_that_is_new_with_a_count_is_activity() -> None:
    clock = Clock()
    resting = Counters(0, 5, {}, 1)
    answers = iter([{"b1": resting}, {"b1": resting, "b2": Counters(0, 3, {"p": (1, 3)}, 2)}])

    async def read(host: str, port: int, deadline_s: float) -> dict[str, Counters]:
        return next(answers)

    sampler = Sampler(Settings(), read, clock)
    for _ in range(2):
        await sampler.sample([ONE], [ENDPOINT])
        clock.now_s += 1.0
    latest = sampler.latest(ENDPOINT)
    assert latest is not None
    assert latest.load is not None
    assert (latest.load.arrived_rps, latest.load.retried_rps, latest.load.first_rps) == (3.0, 2.0, 1.0)


@pytest.mark.case("autoscaler-A16")
async def test_a_gateway_that_fails_harms_no_other_and_no_sample_is_lost() -> None:
    async def read(host: str, port: int, deadline_s: float) -> dict[str, Counters]:
        if host == "h2":
            raise OSError("refused")
        return {"b1": Counters(0, 1, {"p": (4, 1)}), "b2": Counters(0, 0, {})}

    sampler = Sampler(Settings(), read, Clock())
    await sampler.sample([ONE, TWO], [ENDPOINT])
    latest = sampler.latest(ENDPOINT)
    assert latest is not None
    assert latest.load == Load(4.0, 0.0)
    assert not latest.complete


@pytest.mark.case("autoscaler-A17")
async def test_an_endpoint_of_the_same_name_with_another_uid_begins_anew() -> None:
    async def read(host: str, port: int, deadline_s: float) -> dict[str, Counters]:
        return {"b1": Counters(0, 1, {}), "b2": Counters(0, 0, {})}

    sampler = Sampler(Settings(), read, Clock())
    await sampler.sample([ONE], [ENDPOINT])
    again = replace(ENDPOINT, uid="other")
    await sampler.sample([ONE], [again])
    assert sampler.latest(ENDPOINT) is None
    assert sampler.latest(again) is not None
