"""JSON logs on standard error, one object a line: time, level, logger, message, the call's `extra` fields."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

# What a LogRecord has of its own; everything else on it came through `extra`.
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """`{"time": "2026-01-31T12:00:00.123Z", "level": "INFO", "logger": ..., "message": ..., ...}`."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {key: value for key, value in vars(record).items() if key not in _OWN and key not in line}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def configure(level: str = "INFO", stream: TextIO | None = None) -> None:
    """Called once by a program's `__main__`."""
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # a line a request otherwise
    logging.getLogger("httpcore").setLevel(logging.WARNING)
