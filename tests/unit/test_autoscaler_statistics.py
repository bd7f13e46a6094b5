"""An answer read after another means what it means alone, and what did not change is the same object."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.autoscaler.load import Counters
from controllers.autoscaler.statistics import NOTHING, StatisticsError, counters_of, read_blocks

HEADER = "# pxname,svname,qcur,qmax,scur,smax,slim,stot,lastchg"
Servers = dict[str, tuple[int, int]]


def block(backend: str, servers: Servers, queued: int = 0, arrived: int = 0, lastchg: int = 0) -> str:
    rows = [f"{backend},{name},0,0,{now},9,8,{total},{lastchg}" for name, (now, total) in servers.items()]
    return "\n".join([*rows, f"{backend},BACKEND,{queued},0,0,9,200,{arrived},{lastchg}"])


def answer(*blocks: str, retries: str = "") -> str:
    return "\n".join([f"# backend,retried\n{retries}", HEADER, *blocks, "", ""])


def test_what_did_not_change_is_the_same_object_whatever_a_later_column_says() -> None:
    before = read_blocks(answer(block("b1", {"p1": (0, 7)}), block("b2", {"p1": (1, 2)})), NOTHING)
    now = read_blocks(answer(block("b1", {"p1": (0, 7)}, lastchg=5), block("b2", {"p1": (1, 3)}, lastchg=5)), before)
    assert now["b1"].counters is before["b1"].counters
    assert now["b2"].counters == Counters(0, 0, {"p1": (1, 3)}, retried=0)


def test_a_count_that_begins_with_the_digits_of_the_one_before_is_another() -> None:
    before = read_blocks(answer(block("b1", {}, arrived=1)), NOTHING)
    now = read_blocks(answer(block("b1", {}, arrived=12)), before)
    assert now["b1"].counters == Counters(0, 12, {}, retried=0)


def test_a_retry_alone_is_a_change() -> None:
    rows = block("b1", {"p1": (0, 7)})
    before = read_blocks(answer(rows), NOTHING)
    now = read_blocks(answer(rows, retries="b1,3\n"), before)
    assert now["b1"].counters == Counters(0, 0, {"p1": (0, 7)}, retried=3)


def test_an_answer_that_breaks_off_in_a_known_back_end_tells_nothing_of_it() -> None:
    whole = answer(block("b1", {"p1": (0, 7)}), block("b2", {"p1": (1, 2)}))
    before = read_blocks(whole, NOTHING)
    torn = whole[: whole.index("b2,BACKEND")]
    assert counters_of(read_blocks(torn, before)).keys() == {"b1"}


@pytest.mark.parametrize("end", ["b2,BACK", "b2,BACKEND,0,0,0,9"])
def test_a_row_that_breaks_off_is_an_error_also_where_it_was_known(end: str) -> None:
    whole = answer(block("b1", {}), block("b2", {}))
    before = read_blocks(whole, NOTHING)
    with pytest.raises(StatisticsError):
        read_blocks(whole[: whole.index("b2,BACKEND")] + end, before)


FLEETS = st.dictionaries(
    st.sampled_from(["b1", "b2", "b10"]),
    st.tuples(
        st.dictionaries(st.sampled_from("pqr"), st.tuples(st.integers(0, 2), st.integers(0, 12)), max_size=3),
        st.integers(0, 1),
        st.integers(0, 12),
    ),
)


@given(before=FLEETS, now=FLEETS)
def test_whatever_was_read_before_an_answer_means_the_same(
    before: dict[str, tuple[Servers, int, int]], now: dict[str, tuple[Servers, int, int]]
) -> None:
    first, second = (answer(*(block(name, *each) for name, each in fleet.items())) for fleet in (before, now))
    found = counters_of(read_blocks(second, read_blocks(first, NOTHING)))
    assert found == counters_of(read_blocks(second, NOTHING))
    assert found == {name: Counters(queued, arrived, held, 0) for name, (held, queued, arrived) in now.items()}
