"""JSON logs on stderr: one object a line, for the front, the predictors and the fetch step.

Owns the shape ``{"time", "level", "logger", "message", ...}`` and what of others' lines is kept once clients may come;
leaves what is worth a line to the callers. Two ideas: a line written while a request is being predicted carries that
request's id, whoever writes it; and a sentence that stands in somebody's code is theirs, while all else in a warning or
an error may be a client's.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime

_PYTHON = "py.warnings"
request_id: ContextVar[str | None] = ContextVar("request_id", default=None)
_OWN = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """A record as one JSON object; what is passed as ``extra`` becomes fields."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if (current := request_id.get()) is not None:
            fields["request_id"] = current
        fields.update({key: value for key, value in vars(record).items() if key not in _OWN})
        if record.exc_info:
            fields["stack"] = self.formatException(record.exc_info)
        elif record.exc_text:
            fields["stack"] = record.exc_text
        return json.dumps(fields, default=repr)


def configure(level: int = logging.INFO) -> None:
    """Send everything that logs in this process to stderr as JSON, warnings included."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.captureWarnings(True)


class WithoutValues(logging.Filter):
    """For a handler: of warnings and errors the sentence as it is written in the source, and of an exception its kind
    and where it was raised; of Python's own warnings (pydantic's name what they met) the place and the kind.

    ``says``: whether what a logger of this name says may be a client's; ``raises``: whether its exceptions' texts may.
    """

    def __init__(self, says: Callable[[str], bool], raises: Callable[[str], bool]) -> None:
        super().__init__()
        self._says, self._raises = says, raises

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name == _PYTHON:
            record.msg, record.args = ": ".join(record.getMessage().split(": ", 2)[:2]), ()
        elif record.levelno >= logging.WARNING:
            if self._says(record.name):
                record.msg, record.args = _sentence(record), ()
            if self._raises(record.name):
                error = record.exc_info[1] if record.exc_info else None
                record.exc_text = record.exc_text if error is None else place_of(error)
                record.exc_info = None
        return True


def hide(values: WithoutValues) -> None:
    """From now on, in every line that this process writes."""
    for logger in (logging.getLogger(), *logging.getLogger().manager.loggerDict.values()):
        for handler in logger.handlers if isinstance(logger, logging.Logger) else ():
            handler.addFilter(values)


def place_of(error: BaseException) -> str:
    """An exception's text may repeat a request; its kind and its lines of code do not."""
    return "".join([*traceback.format_tb(error.__traceback__), type(error).__name__])


def _sentence(record: logging.LogRecord) -> str:
    """The message where it is a constant of the code that runs, else where it was written: its values are inside it."""
    frame = sys._getframe(1)
    while frame is not None and isinstance(record.msg, str):
        if record.msg in frame.f_code.co_consts:
            return record.msg
        frame = frame.f_back  # type: ignore[assignment]
    return f"(values only, from line {record.lineno} of {record.filename})"
