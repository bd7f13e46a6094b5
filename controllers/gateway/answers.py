"""The gateway's own answers: status, code and sentence, as HAProxy lines.

Pure. Leaves the body's shape to `shapes`. Its one idea: each situation is one row of a table, so that the
documentation, the configuration and the tests read the same one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Answer:
    """`name` is what the configuration calls it; `later`: with a Retry-After; `field`: what of the body to change."""

    name: str
    status: int
    code: str
    message: str
    headers: tuple[tuple[str, str], ...] = ()
    later: bool = False
    field: str | None = None


_BEARER: Final = (("www-authenticate", "Bearer"),)

UNAUTHENTICATED: Final = Answer(
    "unauthenticated", 401, "UNAUTHENTICATED", "Send a valid API key: 'Authorization: Bearer KEY'.", _BEARER
)
PERMISSION_DENIED: Final = Answer(
    "permission_denied", 403, "PERMISSION_DENIED", "This key's team may not call this endpoint."
)
NO_ENDPOINT: Final = Answer("no_endpoint", 404, "NOT_FOUND", "No endpoint of this name.")
NO_PATH: Final = Answer(
    "no_path", 404, "NOT_FOUND", "Nothing under this path. Predictions: POST /serving-endpoints/ENDPOINT/invocations."
)
POST_ONLY: Final = Answer("post_only", 405, "METHOD_NOT_ALLOWED", "Use POST for this path.", (("allow", "POST"),))
READ_OR_POST: Final = Answer(
    "read_or_post", 405, "METHOD_NOT_ALLOWED", "Use GET or POST for this path.", (("allow", "GET, HEAD, POST"),)
)
GET_ONLY: Final = Answer("get_only", 405, "METHOD_NOT_ALLOWED", "Use GET for this path.", (("allow", "GET, HEAD"),))
LENGTH_REQUIRED: Final = Answer(
    "length_required", 411, "LENGTH_REQUIRED", "Send the body with Content-Length; chunked bodies are not taken."
)
NO_MODEL: Final = Answer(
    "no_model", 400, "BAD_REQUEST", "Send a JSON object whose `model` is the name of an endpoint.", field="model"
)
PLAIN_BODY: Final = Answer(
    "plain_body",
    415,
    "UNSUPPORTED_MEDIA_TYPE",
    "Send the body without Content-Encoding here; /serving-endpoints/ENDPOINT/v1 takes gzip and zstd.",
)
BODIES_HELD: Final = Answer(
    "bodies_held", 429, "TOO_MANY_REQUESTS", "Too many bodies are on their way. Try again later.", later=True
)
NOT_READY: Final = Answer(
    "not_ready", 503, "UNAVAILABLE", "No replica of this endpoint is ready. Try again later.", later=True
)
QUEUE_FULL: Final = Answer(
    "queue_full", 429, "TOO_MANY_REQUESTS", "All replicas are busy and the queue is full. Try again later.", later=True
)
OVERLOADED: Final = Answer("overloaded", 429, "TOO_MANY_REQUESTS", "All replicas stayed busy. Try again later.")
UNREACHABLE: Final = Answer("unreachable", 503, "UNAVAILABLE", "No replica took the request. Try again later.")
BAD_REQUEST: Final = Answer("bad_request", 400, "BAD_REQUEST", "The request is not valid HTTP.")
SLOW_REQUEST: Final = Answer("slow_request", 408, "REQUEST_TIMEOUT", "The request did not arrive in time.")
INTERNAL: Final = Answer("internal", 500, "INTERNAL_ERROR", "The gateway failed.")
POD_FAILED: Final = Answer("pod_failed", 502, "BAD_GATEWAY", "The replica broke off before it answered.")
DEADLINE: Final = Answer("deadline", 504, "DEADLINE_EXCEEDED", "The model did not answer within its deadline.")


def too_large(limit_bytes: int) -> Answer:
    return Answer("too_large", 413, "PAYLOAD_TOO_LARGE", f"The body is larger than {limit_bytes} bytes.")


# Each with a service of its name; `too_large` is one more.
REFUSALS: Final = (
    UNAUTHENTICATED,
    PERMISSION_DENIED,
    NO_ENDPOINT,
    NO_PATH,
    POST_ONLY,
    GET_ONLY,
    READ_OR_POST,
    LENGTH_REQUIRED,
    NOT_READY,
    QUEUE_FULL,
)
BASE_URL: Final = (NO_MODEL, PLAIN_BODY, BODIES_HELD)  # only where the endpoint is named in the body
INSTEAD: Final = (BAD_REQUEST, SLOW_REQUEST, INTERNAL, POD_FAILED, UNREACHABLE, DEADLINE)


def body(answer: Answer) -> str:
    """What HAProxy writes as the answer's body: of the shape that the path asks for."""
    return f'lf-string "%[lua.refusal({answer.name})]"'


def refuse(answer: Answer, condition: str) -> tuple[str, str]:
    """Rules that give `answer` where `condition` holds.

    One that ends while its client still sends a body may never be read: the client sees a broken pipe. So a large
    body is taken in and dropped first, by a service of `shapes`.
    """
    sent = "".join(f' hdr {name} "{value}"' for name, value in answer.headers)
    content = f"content-type application/json {body(answer)}"
    return (
        f"http-request use-service lua.{answer.name} if {{ var(txn.large) -m bool }} {condition}",
        f"http-request return status {answer.status} {content}{sent} if {condition}",
    )


def instead(answer: Answer) -> str:
    """Replaces HAProxy's own page for a status."""
    return f"http-error status {answer.status} content-type application/json {body(answer)}"


def overloaded_or_unreachable() -> str:
    """HAProxy says 503 for a queue timeout, for pods that refuse, and for a queue whose last pod left.

    The first is a 429. It is told apart while the body is written: no pod was tried and one is usable; the
    verdict stays in txn.full for the rule that sets the status. Only within a back end: in a `defaults` section
    HAProxy 2.8 does not resolve the back end of such an expression and crashes.
    """
    untried = "%[srv_id,not,set-var(txn.untried),iif(,)]"
    full = "%[nbsrv,bool,mul(txn.untried),set-var(txn.full),iif(,)]"
    return f'http-error status 503 content-type application/json lf-string "{untried}{full}%[lua.unanswered]"'
