"""The gateway's own answers: status, code and sentence, in the platform's one error shape, as HAProxy lines.

Pure. Its one idea: each situation is one row of a table, so that the documentation, the configuration and the
tests read the same one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Answer:
    """`name` is what the configuration calls it; `later`: with a Retry-After."""

    name: str
    status: int
    code: str
    message: str
    headers: tuple[tuple[str, str], ...] = ()
    later: bool = False


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
GET_ONLY: Final = Answer("get_only", 405, "METHOD_NOT_ALLOWED", "Use GET for this path.", (("allow", "GET, HEAD"),))
LENGTH_REQUIRED: Final = Answer(
    "length_required", 411, "LENGTH_REQUIRED", "Send the body with Content-Length; chunked bodies are not taken."
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


REFUSALS: Final = (
    UNAUTHENTICATED,
    PERMISSION_DENIED,
    NO_ENDPOINT,
    NO_PATH,
    POST_ONLY,
    GET_ONLY,
    LENGTH_REQUIRED,
    NOT_READY,
    QUEUE_FULL,
)


def body(code: str, message: str) -> str:
    """The error shape as a double-quoted HAProxy string with a log format in it."""
    text = f'{{"error":{{"code":"{code}","message":"{message}","request_id":"%[var(txn.id)]"}}}}'
    return '"' + text.replace('"', r"\"") + '"'


def refuse(answer: Answer, condition: str) -> tuple[str, str]:
    """Rules that give `answer` where `condition` holds.

    One that ends while its client still sends a body may never be read: the client sees a broken pipe. So a large
    body is taken in and dropped first, by a service of `drain_file`.
    """
    sent = "".join(f' hdr {name} "{value}"' for name, value in answer.headers)
    content = f"content-type application/json lf-string {body(answer.code, answer.message)}"
    return (
        f"http-request use-service lua.{answer.name} if {{ var(txn.large) -m bool }} {condition}",
        f"http-request return status {answer.status} {content}{sent} if {condition}",
    )


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


_DRAIN: Final = """\
-- Answers after the rest of the request's body was taken in and dropped, within bounds.
local MOST_BYTES, MOST_SECONDS, JITTER_SECONDS = {bytes}, {seconds}, {jitter}

local function drain(applet)
  local left, started = MOST_BYTES, core.now().sec
  while left > 0 and core.now().sec - started < MOST_SECONDS do
    local part = applet:receive(65536)
    if part == nil or #part == 0 then return end
    left = left - #part
  end
end

local function refuse(name, status, code, message, headers, later)
  core.register_service(name, "http", function(applet)
    drain(applet)
    local id = tostring(applet:get_var("txn.id"))
    local body = '{{"error":{{"code":"' .. code .. '","message":"' .. message .. '","request_id":"' .. id .. '"}}}}'
    applet:set_status(status)
    applet:add_header("content-type", "application/json")
    applet:add_header("content-length", tostring(#body))
    for header, value in pairs(headers) do applet:add_header(header, value) end
    if later then
      local seconds = applet:get_var("txn.wait_s") + math.random(0, JITTER_SECONDS - 1)
      applet:add_header("retry-after", tostring(seconds))
    end
    applet:start_response()
    applet:send(body)
  end)
end

"""


def drain_file(answers: Iterable[Answer], most_bytes: int, most_s: int, jitter_s: int) -> str:
    """A Lua file with one service an answer; those that ask to come later read txn.wait_s."""
    head = _DRAIN.format(bytes=most_bytes, seconds=most_s, jitter=jitter_s)
    return head + "".join(_service(answer) for answer in answers)


def _service(answer: Answer) -> str:
    headers = ", ".join(f'["{name}"] = "{value}"' for name, value in answer.headers)
    later = "true" if answer.later else "false"
    return f'refuse("{answer.name}", {answer.status}, "{answer.code}", "{answer.message}", {{{headers}}}, {later})\n'
