"""vLLM's own log lines, without what requests said.

Owns which parts of a record are kept; leaves lines that vLLM writes before it serves, and those of its engine's
processes, as they are. One idea: a line's sentence is vLLM's and its values may be a client's, so once clients may come
a warning says what and where, and an error which kind.
"""

from __future__ import annotations

import logging
import traceback

_VLLM, _PYTHON = "vllm", "py.warnings"


class WithoutValues(logging.Filter):
    """For a handler: of vLLM's warnings and errors the sentence as it is written in the source, and where it raised; of
    Python's warnings (pydantic's name what they met) the place and the kind."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name == _PYTHON:
            record.msg, record.args = ": ".join(record.getMessage().split(": ", 2)[:2]), ()
        elif record.levelno >= logging.WARNING and record.name.partition(".")[0] == _VLLM:
            record.args = ()
            _keep_the_place(record)
        return True


def hide_values() -> None:
    """From now on, in every line that this process writes."""
    for logger in (logging.getLogger(_VLLM), logging.getLogger()):
        for handler in logger.handlers:
            handler.addFilter(WithoutValues())


def _keep_the_place(record: logging.LogRecord) -> None:
    """An exception's text may repeat a request; its kind and its lines of code do not."""
    raised = record.exc_info[1] if record.exc_info else None
    if raised is not None:
        record.exc_text = "".join([*traceback.format_tb(raised.__traceback__), type(raised).__name__])
    record.exc_info = None
