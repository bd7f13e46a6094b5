"""The gateway's own answers: status, code and sentence, in the platform's one error shape, as HAProxy lines.

Pure. Its one idea: each situation is one row of a table, so that the documentation, the configuration and the
tests read the same one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Answer:
    status: int
    code: str
    message: str
    headers: tuple[tuple[str, str], ...] = ()


_BEARER: Final = (("www-authenticate", "Bearer"),)

UNAUTHENTICATED: Final = Answer(401, "UNAUTHENTICATED", "Send a valid API key: 'Authorization: Bearer KEY'.", _BEARER)
PERMISSION_DENIED: Final = Answer(403, "PERMISSION_DENIED", "This key's team may not call this endpoint.")
NO_ENDPOINT: Final = Answer(404, "NOT_FOUND", "No endpoint of this name.")
NO_PATH: Final = Answer(
    404, "NOT_FOUND", "Nothing under this path. Predictions: POST /serving-endpoints/ENDPOINT/invocations."
)
POST_ONLY: Final = Answer(405, "METHOD_NOT_ALLOWED", "Use POST for this path.", (("allow", "POST"),))
GET_ONLY: Final = Answer(405, "METHOD_NOT_ALLOWED", "Use GET for this path.", (("allow", "GET, HEAD"),))
LENGTH_REQUIRED: Final = Answer(
    411, "LENGTH_REQUIRED", "Send the body with Content-Length; chunked bodies are not taken."
)
NOT_READY: Final = Answer(503, "UNAVAILABLE", "No replica of this endpoint is ready. Try again later.")
QUEUE_FULL: Final = Answer(429, "TOO_MANY_REQUESTS", "All replicas are busy and the queue is full. Try again later.")
OVERLOADED: Final = Answer(429, "TOO_MANY_REQUESTS", "All replicas stayed busy. Try again later.")
UNREACHABLE: Final = Answer(503, "UNAVAILABLE", "No replica took the request. Try again later.")
BAD_REQUEST: Final = Answer(400, "BAD_REQUEST", "The request is not valid HTTP.")
SLOW_REQUEST: Final = Answer(408, "REQUEST_TIMEOUT", "The request did not arrive in time.")
INTERNAL: Final = Answer(500, "INTERNAL_ERROR", "The gateway failed.")
POD_FAILED: Final = Answer(502, "BAD_GATEWAY", "The replica broke off before it answered.")
DEADLINE: Final = Answer(504, "DEADLINE_EXCEEDED", "The model did not answer within its deadline.")


def too_large(limit_bytes: int) -> Answer:
    return Answer(413, "PAYLOAD_TOO_LARGE", f"The body is larger than {limit_bytes} bytes.")


def body(code: str, message: str) -> str:
    """The error shape as a double-quoted HAProxy string with a log format in it."""
    text = f'{{"error":{{"code":"{code}","message":"{message}","request_id":"%[var(txn.id)]"}}}}'
    return '"' + text.replace('"', r"\"") + '"'


def refuse(answer: Answer, condition: str) -> str:
    """A rule that gives `answer` where `condition` (with its `if` or `unless`) holds."""
    sent = "".join(f' hdr {name} "{value}"' for name, value in answer.headers)
    content = f"content-type application/json lf-string {body(answer.code, answer.message)}"
    return f"http-request return status {answer.status} {content}{sent} {condition}"


def instead(answer: Answer) -> str:
    """Replaces HAProxy's own page for a status."""
    content = f"content-type application/json lf-string {body(answer.code, answer.message)}"
    return f"http-error status {answer.status} {content}"


def overloaded_or_unreachable() -> str:
    """HAProxy says 503 for a queue timeout, for pods that refuse, and for a queue whose last pod left.

    The first is a 429. It is told apart while the body is written: no pod was tried and one is usable; the
    verdict stays in txn.full for the rule that sets the status. Only within a back end: in a `defaults` section
    HAProxy 2.8 does not resolve the back end of such an expression and crashes.
    """
    untried = "%[srv_id,not,set-var(txn.untried),iif(,)]"
    code = f"%[nbsrv,bool,mul(txn.untried),set-var(txn.full),iif({OVERLOADED.code},{UNREACHABLE.code})]"
    message = f"%[var(txn.full),iif({OVERLOADED.message},{UNREACHABLE.message})]"
    content = body(code, message).replace('"', "", 1).removesuffix('"')
    return f'http-error status 503 content-type application/json lf-string "{untried}{content}"'
