"""Of vLLM's warnings and errors nothing is kept that a request could have said."""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Iterator

import pytest

from runtimes.jsonlog import JsonFormatter, WithoutValues, hide
from runtimes.mlflow.worker import _is_mlflow
from runtimes.vllm.records import hide_values

VALUES = WithoutValues(says=lambda name: not name.startswith("runtimes"), raises=lambda name: True)


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What vLLM's loggers write, through a handler as vLLM has one."""
    text, logger = io.StringIO(), logging.getLogger("vllm")
    handler = logging.StreamHandler(text)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield text
    logger.removeHandler(handler)
    for each in logging.getLogger().handlers:
        each.filters = [one for one in each.filters if not isinstance(one, WithoutValues)]


def test_a_warning_keeps_its_sentence_and_loses_its_values(written: io.StringIO) -> None:
    hide_values()
    logger = logging.getLogger("vllm.entrypoints.serving")
    logger.error("Error with model %s", {"message": "canary"})
    logger.warning("%(what)s in 5%% of %(where)s", {"what": "canary", "where": "x"})
    assert written.getvalue() == "ERROR Error with model %s\nWARNING %(what)s in 5%% of %(where)s\n"


def test_an_exception_keeps_its_kind_and_place_and_loses_its_text(written: io.StringIO) -> None:
    hide_values()
    said = "can" + "ary"  # the line that raises stands in the text, as it is written here
    try:
        raise ValueError(said) from KeyError(said)
    except ValueError:
        logging.getLogger("vllm.tool_parsers").exception("Error in extracting tool call from %s", said)
    text = written.getvalue()
    assert said not in text
    assert text.startswith("ERROR Error in extracting tool call from %s\n")
    assert "test_runtimes_vllm_records.py" in text
    assert text.endswith("ValueError\n")


def _values_only(logger: logging.Logger, said: str) -> None:
    logger.error(f"Tool call arguments '{said}' do not end")
    logger.error(ValueError(said))


@pytest.mark.parametrize("name", ["vllm.tool_parsers.utils", "asyncio", "transformers"])
def test_a_message_that_has_its_values_inside_keeps_only_its_place(
    written: io.StringIO, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", logging.getLogger("vllm").handlers)
    hide_values()
    _values_only(logging.getLogger(name), "can" + "ary")
    logging.getLogger(name).error("Said as it is written")
    lines = written.getvalue().splitlines()
    assert "canary" not in str(lines)
    assert "test_runtimes_vllm_records.py" in lines[0]
    assert lines[-1] == "ERROR Said as it is written"


def test_a_logger_with_a_handler_of_its_own_is_no_way_around_it() -> None:
    """As uvicorn's is, in vLLM's process."""
    text, logger = io.StringIO(), logging.getLogger("uvicorn.like")
    handler = logging.StreamHandler(text)
    logger.addHandler(handler)
    try:
        hide_values()
        logger.error("Exception in %s", "canary", exc_info=ValueError("canary"))
    finally:
        logger.removeHandler(handler)
    assert text.getvalue() == "Exception in %s\nValueError\n"


def test_our_own_line_is_whole_but_for_what_an_exception_says() -> None:
    said = "can" + "ary"
    try:
        raise ValueError(said)
    except ValueError as error:
        raised = (type(error), error, error.__traceback__)
    record = logging.makeLogRecord({"name": "runtimes.interface.app", "levelno": 40, "msg": "%s", "args": ("kept",)})
    record.exc_info = raised
    assert VALUES.filter(record)
    line = json.loads(JsonFormatter().format(record))
    assert line["message"] == "kept"
    assert line["stack"].endswith("ValueError")
    assert said not in str(line)


def test_a_warning_of_pythons_keeps_its_place_and_kind() -> None:
    said = warnings.formatwarning("Expected `str`: input_value='canary'", UserWarning, "/x/main.py", 475, "line")
    record = logging.makeLogRecord({"name": "py.warnings", "levelno": 30, "msg": "%s", "args": (said,)})
    assert VALUES.filter(record)
    assert record.getMessage() == "/x/main.py:475: UserWarning"


def test_what_vllm_says_of_itself_and_what_others_say_is_whole(written: io.StringIO) -> None:
    hide_values()
    logging.getLogger("vllm.v1.metrics").info("Avg prompt throughput: %.1f", 2.5)
    record = logging.makeLogRecord({"name": "runtimes.vllm", "levelno": 40, "msg": "%s", "args": ("kept",)})
    assert VALUES.filter(record)
    assert json.loads(JsonFormatter().format(record))["message"] == "kept"
    assert written.getvalue() == "INFO Avg prompt throughput: 2.5\n"


def test_before_that_a_line_is_whole(written: io.StringIO) -> None:
    logging.getLogger("vllm.config").warning("dtype %s is not supported", "bfloat16")
    assert written.getvalue() == "WARNING dtype bfloat16 is not supported\n"


def test_of_a_predictor_mlflow_s_lines_are_cut_and_the_customer_s_are_not(written: io.StringIO) -> None:
    """MLflow names the columns and the values that it did not expect; the customer's own code may say what it likes."""
    hide(WithoutValues(says=_is_mlflow, raises=_is_mlflow))
    for name in ("mlflow.models.utils", "vllm.customer"):
        record = logging.LogRecord(name, logging.WARNING, "utils.py", 7, "Found extra %s", ("canary",), None)
        for handler in logging.getLogger("vllm").handlers:
            handler.handle(record)
    assert written.getvalue().splitlines() == ["WARNING Found extra %s", "WARNING Found extra canary"]
