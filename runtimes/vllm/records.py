"""Log lines in vLLM's server, without what requests said.

Owns which parts of a record are kept; leaves lines that are written before it serves, and those of its engine's
processes, as they are. One idea: a sentence that stands in somebody's code is theirs, and all else in a line may be a
client's, so once clients may come a warning says what and where, and an error which kind.
"""

from __future__ import annotations

import logging
import sys
import traceback

_OURS, _PYTHON = "runtimes", "py.warnings"


class WithoutValues(logging.Filter):
    """For a handler: of warnings and errors that are not ours the sentence as it is written in the source, and where it
    raised; of Python's warnings (pydantic's name what they met) the place and the kind; of our own all but what an
    exception says."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name == _PYTHON:
            record.msg, record.args = ": ".join(record.getMessage().split(": ", 2)[:2]), ()
        elif record.levelno >= logging.WARNING:
            if record.name.partition(".")[0] != _OURS:
                record.msg, record.args = _sentence(record), ()
            _keep_the_place(record)
        return True


def hide_values() -> None:
    """From now on, in every line that this process writes."""
    own, loggers = WithoutValues(), logging.getLogger().manager.loggerDict.values()
    for logger in (logging.getLogger(), *loggers):
        for handler in logger.handlers if isinstance(logger, logging.Logger) else ():
            handler.addFilter(own)


def _sentence(record: logging.LogRecord) -> str:
    """The message where it is a constant of the code that runs, else where it was written: its values are inside it."""
    frame = sys._getframe(1)
    while frame is not None and isinstance(record.msg, str):
        if record.msg in frame.f_code.co_consts:
            return record.msg
        frame = frame.f_back  # type: ignore[assignment]
    return f"(values only, from line {record.lineno} of {record.filename})"


def _keep_the_place(record: logging.LogRecord) -> None:
    """An exception's text may repeat a request; its kind and its lines of code do not."""
    raised = record.exc_info[1] if record.exc_info else None
    if raised is not None:
        record.exc_text = "".join([*traceback.format_tb(raised.__traceback__), type(raised).__name__])
    record.exc_info = None
