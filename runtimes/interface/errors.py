"""One error value, and the three shapes in which a client sees it.

Owns how an error looks and the codes that go with each status; leaves deciding to whoever raises. Of the standard
library alone: a predictor raises these too. One idea: an error names what to change and the place, and never repeats
what was sent nor how our code is built.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from runtimes.interface.engine import Api

CODES = {
    400: "BAD_REQUEST",
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    413: "PAYLOAD_TOO_LARGE",
    415: "UNSUPPORTED_MEDIA_TYPE",
    422: "UNPROCESSABLE",
    429: "TOO_MANY_REQUESTS",
    500: "INTERNAL_ERROR",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
MODEL_FAILED = "The model failed on this request; the endpoint's log has the reason under this request id."
PREDICTOR_DIED = "The process that predicted this request ended; the endpoint's log has the reason."
MOST_PROBLEMS = 10  # named in one answer; the rest is counted
# OpenAI's words for the kind of an error; its clients choose by status what to raise, and by these what to print.
_OPENAI_TYPES = {404: "not_found_error", 429: "rate_limit_error"}


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a request: where, and what would be right."""

    message: str
    field: str | None = None


class RefusedError(Exception):
    """A request that gets an error answer; everything in here may be shown to the client."""

    def __init__(self, status: int, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.field = field


def refused(problems: Sequence[Problem], status: int = 400) -> RefusedError:
    """All problems of a request as one refusal: the first names the field, at most ten are spelled out."""
    shown = [problem.message for problem in problems[:MOST_PROBLEMS]]
    if (hidden := len(problems) - len(shown)) > 0:
        shown.append(f"{hidden} more")
    return RefusedError(status, "; ".join(shown), problems[0].field)


def error_body(status: int, message: str, request_id: str, field: str | None = None, api: Api = Api.MLFLOW) -> bytes:
    """The JSON body of an error answer, in the shape that clients of this API read."""
    code = CODES.get(status, "INTERNAL_ERROR" if status >= 500 else "BAD_REQUEST")
    document: dict[str, object]
    if api is Api.V2:
        document = {"error": message}
    elif api is Api.OPENAI:
        kind = _OPENAI_TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
        document = {"error": {"message": message, "type": kind, "param": field, "code": code.lower()}}
    else:
        error = {"code": code, "message": message}
        if field is not None:
            error["field"] = field
        document = {"error": error | {"request_id": request_id}}
    return json.dumps(document).encode()
