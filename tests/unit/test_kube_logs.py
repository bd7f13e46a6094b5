"""A log line is one JSON object; times and fields of plain objects are read without surprises."""

import io
import json
import logging

import pytest

from controllers import logs
from controllers.kube.fields import at, condition, covers, number, seconds, timestamp


def written(monkeypatch: pytest.MonkeyPatch, *, fail: bool = False) -> dict[str, object]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logs.JsonFormatter())
    logger = logging.getLogger("t")
    monkeypatch.setattr(logger, "handlers", [handler])
    monkeypatch.setattr(logger, "propagate", False)
    try:
        if fail:
            raise KeyError("spec")
        logger.warning("scaled %d", 3, extra={"endpoint": "iris", "level": "mine"})
    except KeyError:
        logger.exception("failed")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 1
    return dict(json.loads(lines[0]))


def test_a_line_has_time_level_logger_message_and_the_fields_given(monkeypatch: pytest.MonkeyPatch) -> None:
    line = written(monkeypatch)
    assert (line["level"], line["logger"], line["message"], line["endpoint"]) == ("WARNING", "t", "scaled 3", "iris")
    assert str(line["time"]).endswith("Z")


def test_an_exception_stays_on_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "KeyError: 'spec'" in str(written(monkeypatch, fail=True)["exception"])


@pytest.mark.parametrize(
    ("obj", "path", "expected"),
    [({"a": {"b": 1}}, ("a", "b"), 1), ({"a": None}, ("a", "b"), None), ({}, ("a",), None), (None, ("a",), None)],
)
def test_absent_and_null_read_alike(obj: object, path: tuple[str, ...], expected: object) -> None:
    assert at(obj, *path) == expected


def test_a_zero_that_the_api_leaves_out_is_zero() -> None:
    assert number({"status": {}}, "status", "readyReplicas") == 0


def test_times_go_there_and_back() -> None:
    assert seconds(timestamp(1_700_000_000.0)) == 1_700_000_000.0
    assert seconds("no time") is None
    assert seconds(None) is None


def test_a_condition_that_is_not_there_is_empty() -> None:
    assert condition({"status": {}}, "Ready") == {}


@pytest.mark.parametrize(
    ("live", "desired", "expected"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, True),
        ({"a": 1}, {"a": 2}, False),
        ({"a": [{"x": 1, "y": 2}]}, {"a": [{"x": 1}]}, True),
        ({"a": [1, 2]}, {"a": [1]}, False),
        ({}, {"a": {"b": 1}}, False),
        ({"a": None}, {"a": {"b": 1}}, False),
        ({}, {"a": [], "b": {}}, True),
        ({"a": 0}, {"a": False, "b": None}, True),
    ],
)
def test_desired_fields_are_covered_by_what_stands(live: object, desired: object, expected: bool) -> None:
    assert covers(live, desired) is expected
