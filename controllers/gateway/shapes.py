"""HAProxy's side of an error: each answer of the gateway's own in the shape that clients of its path read.

Pure text in Lua, which HAProxy runs where it refuses. Leaves which answers there are to `answers`. Its one idea: a
rule names an answer, and what the client sees of it is written in one place, whichever rule it was.

Three shapes, as the interface in the pods has them: OpenAI's below `/v1/`, the Open Inference Protocol's below `/v2`,
ours elsewhere; behind an endpoint's prefix or not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from controllers.gateway.answers import Answer

FILE: Final = "refuse.lua"

_LUA: Final = """\
-- The gateway's own answers: their bodies, and services that take the rest of a request in before they answer.
local MOST_BYTES, MOST_SECONDS, JITTER_SECONDS = {bytes}, {seconds}, {jitter}

knobless = {{answers = {{}}}}

-- OpenAI's words for the kind of an error.
local function kind(status)
  if status == 404 then return "not_found_error" end
  if status == 429 then return "rate_limit_error" end
  return status >= 500 and "server_error" or "invalid_request_error"
end

-- The body of an answer; `path`: what the client asked for, nil where it could not be read.
function knobless.body(answer, path, id)
  local own = path and (path:match("^/{prefix}/[^/]*(/.*)$") or path) or ""
  if own:sub(1, 4) == "/v1/" then
    local form = '{{"error":{{"message":"%s","type":"%s","param":%s,"code":"%s"}}}}'
    local field = answer.field and '"' .. answer.field .. '"' or "null"
    return form:format(answer.message, kind(answer.status), field, answer.code:lower())
  end
  if own == "/v2" or own:sub(1, 4) == "/v2/" then return ('{{"error":"%s"}}'):format(answer.message) end
  return ('{{"error":{{"code":"%s","message":"%s","request_id":"%s"}}}}'):format(answer.code, answer.message, id or "")
end

core.register_fetches("refusal", function(txn, name)
  return knobless.body(knobless.answers[name], txn:get_var("txn.path"), txn:get_var("txn.id"))
end)

-- HAProxy's 503 is of two kinds; its rule has told them apart just before.
core.register_fetches("unanswered", function(txn)
  local full = txn:get_var("txn.full")
  local name = (full == true or full == 1) and "overloaded" or "unreachable"
  return knobless.body(knobless.answers[name], txn:get_var("txn.path"), txn:get_var("txn.id"))
end)

function knobless.later(wait_s) return tostring(wait_s + math.random(0, JITTER_SECONDS - 1)) end

local function drain(applet)
  local left, started = MOST_BYTES, core.now().sec
  while left > 0 and core.now().sec - started < MOST_SECONDS do
    local part = applet:receive(65536)
    if part == nil or #part == 0 then return end
    left = left - #part
  end
end

function knobless.refuse(applet, name)
  drain(applet)
  local answer = knobless.answers[name]
  local body = knobless.body(answer, applet:get_var("txn.path"), applet:get_var("txn.id"))
  applet:set_status(answer.status)
  applet:add_header("content-type", "application/json")
  applet:add_header("content-length", tostring(#body))
  for header, value in pairs(answer.headers) do applet:add_header(header, value) end
  if answer.later then applet:add_header("retry-after", knobless.later(applet:get_var("txn.wait_s"))) end
  applet:start_response()
  applet:send(body)
end

local function answer(name, status, code, message, field, headers, later)
  knobless.answers[name] =
    {{status = status, code = code, message = message, field = field, headers = headers, later = later}}
  core.register_service(name, "http", function(applet) knobless.refuse(applet, name) end)
end

"""


def lua(answers: Iterable[Answer], prefix: str, most_bytes: int, most_s: int, jitter_s: int) -> str:
    """Of so many bytes of a refused body, for so many seconds; those that ask to come later read txn.wait_s."""
    escaped = prefix.replace("-", "%-")
    head = _LUA.format(prefix=escaped, bytes=most_bytes, seconds=most_s, jitter=jitter_s)
    return head + "".join(_answer(each) for each in answers)


def _answer(answer: Answer) -> str:
    headers = ", ".join(f'["{name}"] = "{value}"' for name, value in answer.headers)
    field = f'"{answer.field}"' if answer.field else "nil"
    later = "true" if answer.later else "false"
    texts = f'"{answer.name}", {answer.status}, "{answer.code}", "{answer.message}"'
    return f"answer({texts}, {field}, {{{headers}}}, {later})\n"
