"""Loads from files and words: what is read, and what is said of what can't be."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from controllers.gateway import access_log
from simulator.loads import Rates, Times, scaled
from simulator.reading import LoadFileError, parse_csv, parse_log, read_load
from simulator.shapes import SHAPES, ShapeError, read_shape

DATA = Path("simulator/data")


def said(text: str) -> list[str]:
    with pytest.raises(LoadFileError) as found:
        parse_csv(text, "load.csv")
    return found.value.problems


def test_rates_are_a_row_a_step() -> None:
    load = parse_csv("at_s,rate_rps\n0, 1.5\n60, 3\n", "load.csv", cv=2.0)
    assert load == Rates([1.5, 3.0], 60.0, 2.0)


def test_counts_become_rates_by_the_rows_distance() -> None:
    assert parse_csv("at_s,count\n2026-01-01T00:00:00Z,120\n2026-01-01T00:01:00Z,60\n", "x.csv") == Rates(
        [2.0, 1.0], 60
    )


def test_times_begin_with_the_first_request_in_whatever_order_and_clock() -> None:
    load = parse_csv("at_s\n1700000003.5\n1700000001\n", "load.csv")
    assert isinstance(load, Times)
    assert sorted(load.at_s) == [0.0, 2.5]


def test_all_that_is_wrong_is_said_at_once_with_line_and_column() -> None:
    assert said("at_s,rate_rps\n0,1\n60,-3\nsoon, many\n1,2,3\n") == [
        "load.csv:3:4: '-3' is no number from zero up",
        "load.csv:4:1: 'soon' is neither seconds nor a time as 2026-01-31T23:59:59Z",
        "load.csv:4:7: 'many' is no number from zero up",
        "load.csv:5:1: 3 cells where the first line has 2",
    ]


def test_a_hole_in_rates_is_no_time_without_requests() -> None:
    assert said("at_s,rate_rps\n0,1\n60,1\n180,1\n") == [
        "load.csv:4:1: 120 s after the row before; rates need rows evenly apart"
    ]


@pytest.mark.parametrize("text", ["", "time,requests\n1,2\n", "at_s,rate_rps,more\n"])
def test_another_first_line_is_answered_with_those_that_there_are(text: str) -> None:
    assert said(text) == ["load.csv:1:1: the first line must be at_s or at_s,rate_rps or at_s,count"]


def test_a_file_without_rows_is_no_load() -> None:
    assert said("at_s\n") == ["load.csv:1:1: no row: a load needs one at least"]


def test_ten_problems_are_shown_and_the_rest_counted() -> None:
    with pytest.raises(LoadFileError, match="and 2 more"):
        parse_csv("at_s\n" + "x\n" * 12, "load.csv")


@pytest.mark.parametrize("path", sorted(DATA.glob("*rate*.csv")) + sorted(DATA.glob("*.csv.gz")), ids=lambda p: p.name)
def test_the_traces_that_ship_can_be_read(path: Path) -> None:
    assert read_load(path).load.duration_s >= 600


def line(at: str, endpoint: str = "wine", status: int = 200, total_ms: int = 500, answer_ms: int = 200) -> str:
    fields = {"time": at, "message": "request", "endpoint": endpoint, "status": status}
    return json.dumps(fields | {"total_ms": total_ms, "answer_ms": answer_ms})


LOG = [
    line("2026-01-01T00:00:10.500Z"),
    line("2026-01-01T00:00:12.000Z", status=429, total_ms=0, answer_ms=-1),
    line("2026-01-01T00:00:13.000Z", status=403),
    json.dumps({"time": "2026-01-01T00:00:13Z", "message": "connection without a request"}),
    line("2026-01-01T00:00:13.250Z", total_ms=250, answer_ms=100),
]


def test_the_gateways_log_has_the_fields_that_are_read() -> None:
    written = access_log.request()
    assert all(f'"{name}":' in written for name in ("time", "message", "endpoint", "status", "total_ms", "answer_ms"))


def test_a_log_tells_when_requests_came_and_how_long_pods_took() -> None:
    """Arrivals: the line's time less the total: 10.0, 12.0, 13.0. The refusal by key never came to a queue."""
    found = parse_log("\n".join(LOG), "gateway.log")
    assert isinstance(found.load, Times)
    assert found.load.at_s == pytest.approx([0.0, 2.0, 3.0])
    assert found.service is not None
    assert [found.service.mean_s, found.service.cv] == pytest.approx([0.15, 1 / 3])


def test_of_several_endpoints_one_is_chosen() -> None:
    text = "\n".join([*LOG, line("2026-01-01T00:00:20Z", endpoint="fraud")])
    with pytest.raises(LoadFileError, match="requests of fraud, wine: choose one"):
        parse_log(text, "gateway.log")
    assert parse_log(text, "gateway.log", "fraud").load.duration_s == 1
    with pytest.raises(LoadFileError, match="no requests of nobody; there are fraud, wine"):
        parse_log(text, "gateway.log", "nobody")


def test_a_broken_line_is_said_and_not_skipped() -> None:
    text = "\n".join([LOG[0], LOG[1][:30], json.dumps({"message": "request", "time": "soon"})])
    with pytest.raises(LoadFileError) as found:
        parse_log(text, "gateway.log")
    assert [problem.split(": ")[0] for problem in found.value.problems] == ["gateway.log:2:10", "gateway.log:3:1"]


def test_a_file_is_known_by_its_ending_packed_or_not(tmp_path: Path) -> None:
    (tmp_path / "a.log.gz").write_bytes(gzip.compress("\n".join(LOG).encode()))
    assert read_load(tmp_path / "a.log.gz").load.duration_s == 4
    (tmp_path / "b.csv.gz").write_bytes(b"at_s\n1\n")
    with pytest.raises(LoadFileError, match=r"b\.csv\.gz:1:1: no gzip file"):
        read_load(tmp_path / "b.csv.gz")
    (tmp_path / "c.csv").write_bytes(b"at_s\n1\n2\xff\n")
    with pytest.raises(LoadFileError, match=r"c\.csv:3:2: no UTF-8 text"):
        read_load(tmp_path / "c.csv")
    (tmp_path / "d.txt").write_text("at_s\n1\n")
    with pytest.raises(LoadFileError, match=r"ends in \.csv, \.log or \.jsonl"):
        read_load(tmp_path / "d.txt")


def test_a_load_twice_as_large_has_twice_the_requests() -> None:
    assert scaled(Rates([1.0, 2.0]), 2.0) == Rates([2.0, 4.0])
    doubled = scaled(Times([0.0, 1.0], span_s=3.0), 2.0)
    assert doubled == Times([0.0, 0.5, 1.0, 2.0], 3.0)
    halved = scaled(Times(list(np.arange(100.0)), span_s=100.0), 0.5)
    assert isinstance(halved, Times)
    assert len(halved.at_s) == 50


@pytest.mark.parametrize(
    ("text", "at_s", "rate_rps"),
    [
        ("constant:rps=7", 3, 7.0),
        ("step:from=1,to=9,at=100", 99, 1.0),
        ("step:from=1,to=9,at=100", 100, 9.0),
        ("ramp:from=0,to=100,at=100,over=100", 149, 49.5),
        ("ramp:from=0,to=100,at=100,over=100", 700, 100.0),
        ("sine:mean=50,swing=100,period=400", 299, 0.0),
        ("crowd:base=10,peak=110,at=100,rise=10,half=60", 50, 10.0),
        ("crowd:base=0,peak=100,at=99.5,rise=10,half=60", 169, 50.0),
    ],
)
def test_a_shape_has_its_rate_at_its_second(text: str, at_s: int, rate_rps: float) -> None:
    assert read_shape(text, 800).values[at_s] == pytest.approx(rate_rps)


def test_a_shape_alone_has_its_defaults() -> None:
    assert all(max(read_shape(name, 900).values) > 0 for name in SHAPES)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("stair:from=1", "column 1: 'stair' is no shape; shapes are constant, step, ramp, sine, crowd"),
        ("step:from=1,upto=9", "column 13: step has no 'upto'; it has from, to, at"),
        ("step:from=1,to=lots", "column 16: 'lots' is no number"),
        ("constant:rps=-1", "column 14: -1 must be a number from zero up"),
        ("constant:rps=nan", "column 14: nan must be a number from zero up"),
    ],
)
def test_a_shape_that_can_not_be_meant_is_told_with_its_column(text: str, problem: str) -> None:
    with pytest.raises(ShapeError) as found:
        read_shape(text, 100)
    assert str(found.value) == problem
