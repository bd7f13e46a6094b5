"""JSON logs on stderr: one object a line, for the front, the predictors and the fetch step.

Owns the shape ``{"time", "level", "logger", "message", ...}``; leaves what is worth a line to the callers. One idea:
a line written while a request is being predicted carries that request's id, whoever writes it.
"""

from __future__ import annotations

import json
import logging
import sys
from contextvars import ContextVar
from datetime import UTC, datetime

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
