"""One OpenAI base URL for the platform: `/v1/...` with `model` = an endpoint's name, and the list of the models.

Pure text in Lua, which HAProxy runs. Its one idea: whoever asks at the base URL is led to the endpoint's own path, by a
request to HAProxy's own inner listener; so every rule of an endpoint holds, since it is that rule. What it costs is
paid at the base URL alone.

`model` may lie behind megabytes of messages (OpenAI's own Python client sends it last), and HAProxy looks no further
than a buffer. So the body is taken in whole here, within bounds, and no slot is taken before it is here.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from controllers.gateway import answers
from controllers.gateway.answers import Answer, refuse
from controllers.gateway.desired import ACCESS, MODELS, ROUTES, map_file

FILE: Final = "openai.lua"
BACKEND: Final = "openai"
BASE: Final = "/v1/"
SOCKET: Final = "inner.sock"
_RELAY: Final = "relay"
_RELAY_SOCKET: Final = "relay.sock"
_LIST: Final = "models"
_OWN: Final = "x-knobless-relay"  # on an answer that is the relay's own
PATHS: Final = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses")
# Bodies on their way to an endpoint: so many of the largest, in a container of 1 GiB that has each up to three times.
_HELD_BODIES: Final = 4
_IDLE_S: Final = 3600  # the inner listener's own limits are shorter

_LUA: Final = """\
-- The base URL of OpenAI's API: finds the endpoint that a request names, and asks it by its own path.
local HELD_MOST, PIECE, IDLE_SECONDS = {held_most}, 16384, {idle_s}
local QUOTE, BACKSLASH, OPEN, OPEN_LIST = 34, 92, 123, 91
local routes, access = Map.new("{routes}", Map._str), Map.new("{access}", Map._str)
local models = Map.new("{models}", Map._str)
local held = setmetatable({{}}, {{__mode = "k"}})  -- a client that leaves drops its request, and so its entry

-- Behind the string that opens at `here`; nil where it does not end. Text has more line ends than quotes, so quotes are
-- looked for, and only before one an escape.
local function behind(text, here)
  repeat
    here = text:find('"', here + 1, true)
    if not here then return nil end
    local slash = here - 1
    while text:byte(slash) == BACKSLASH do slash = slash - 1 end
  until (here - slash) % 2 == 1
  return here + 1
end

-- The value of `model` in a JSON object where it is a string, nested ones apart; nil where there is none.
local function model_of(text)
  local here, depth = 1, 0
  while true do
    here = text:find('["{{}}%[%]]', here)
    if not here then return nil end
    local mark = text:byte(here)
    if mark == QUOTE then
      local past = behind(text, here)
      if not past then return nil end
      if depth == 1 and past - here == 7 and text:sub(here, past - 1) == '"model"' then
        local value = text:match('^%s*:%s*"()', past)
        if value then return text:match('^([^"\\\\]*)"', value) end
        if text:find("^%s*:", past) then return nil end
      end
      here = past
    else
      depth = depth + ((mark == OPEN or mark == OPEN_LIST) and 1 or -1)
      here = here + 1
    end
  end
end

local function held_bytes()
  local sum = 0
  for _, bytes in pairs(held) do sum = sum + bytes end
  return sum
end

-- What HAProxy sent: the request's line and headers, where to answer, how much follows. nil where it left.
local function read_request(applet)
  local line = applet:getline()
  local path = line and line:match("^POST (%S+) HTTP/1")
  local lines, length, id = {{}}, 0, ""
  while path do
    line = applet:getline()
    if not line or line == "" then return nil end
    if line == "\\r\\n" then return {{path = path, lines = lines, length = length, id = id}} end
    local name, value = line:match("^([^:]+):%s*(.-)\\r\\n$")
    if name == "content-length" then length = tonumber(value) end
    if name == "x-request-id" then id = value end
    if name ~= "connection" then lines[#lines + 1] = line end  -- kept alive, an answer says where it ends
  end
end

local function drop(applet, left)
  while left > 0 do
    local piece = applet:receive(math.min(left, PIECE))
    if not piece or #piece == 0 then return end
    left = left - #piece
  end
end

local function refuse(applet, request, name)
  local answer = knobless.answers[name]
  local body = knobless.body(answer, request.path, request.id)
  local lines = {{"HTTP/1.1 " .. answer.status .. " Refused", "content-type: application/json", "{own}: 1"}}
  if answer.later then lines[#lines + 1] = "retry-after: " .. knobless.later(1) end
  lines[#lines + 1] = "content-length: " .. #body .. "\\r\\nconnection: close\\r\\n\\r\\n"
  applet:send(table.concat(lines, "\\r\\n") .. body)
end

-- The body, or nil where the client left.
local function take(applet, left)
  local pieces = {{}}
  while left > 0 do
    local piece = applet:receive(math.min(left, PIECE))
    if not piece or #piece == 0 then return nil end
    pieces[#pieces + 1] = piece
    left = left - #piece
  end
  return table.concat(pieces)
end

local function proxied(applet)
  local from = applet.f:src()
  local form = from:find(":") and "PROXY TCP6 %s ::1 %d 443\\r\\n" or "PROXY TCP4 %s 127.0.0.1 %d 443\\r\\n"
  return form:format(from, applet.f:src_port())
end

local function pass(applet, socket, count)
  while count > 0 do
    local piece = socket:receive(math.min(count, PIECE))
    if not piece then return false end
    applet:send(piece)
    count = count - #piece
  end
  return true
end

-- Passes lines on up to an empty one; they in one text, in small letters, or nil where that never came.
local function pass_lines(applet, socket)
  local lines = {{}}
  repeat
    local line = socket:receive("*l")
    if not line then return nil end
    lines[#lines + 1] = line
  until line == ""
  applet:send(table.concat(lines, "\\r\\n") .. "\\r\\n")
  return "\\n" .. table.concat(lines, "\\n"):lower() .. "\\n"
end

-- The answer as it is, which is read only to know where it ends. It broke off where this ends before.
local function pass_answer(applet, socket)
  local head
  repeat
    head = pass_lines(applet, socket)
    if not head then return end
  until not head:find("^\\nhttp/1.%d 1%d%d")
  local length = tonumber(head:match("\\ncontent%-length:%s*(%d+)"))
  if length then return pass(applet, socket, length) end
  if not head:find("\\ntransfer%-encoding:") then return applet:send(socket:receive("*a") or "") end
  while true do
    local line = socket:receive("*l")
    local size = line and tonumber(line, 16)
    if not size then return end
    applet:send(line .. "\\r\\n")
    if size == 0 then return pass_lines(applet, socket) end
    if not pass(applet, socket, size + 2) then return end
  end
end

core.register_service("{relay}", "tcp", function(applet)
  local request = read_request(applet)
  if not request then return end
  if held_bytes() + request.length > HELD_MOST then collectgarbage() end
  if held_bytes() + request.length > HELD_MOST then
    drop(applet, request.length)
    return refuse(applet, request, "bodies_held")
  end
  local hold = {{}}
  held[hold] = request.length
  local body = take(applet, request.length)
  if not body then return end
  local model = model_of(body)
  if not model or model == "" then return refuse(applet, request, "no_model") end
  if not model:find("^[%w%-_.]+$") then return refuse(applet, request, "no_endpoint") end
  local socket = core.tcp()
  socket:settimeout(IDLE_SECONDS)
  if not socket:connect("{inner}") then return end
  local line = "POST /{prefix}/" .. model .. request.path .. " HTTP/1.1\\r\\n"
  socket:send(proxied(applet) .. line .. table.concat(request.lines) .. "\\r\\n")
  socket:send(body)
  body, held[hold] = nil, nil
  pass_answer(applet, socket)
  socket:close()
end)

local function model(name) return ('{{"id":"%s","object":"model","created":0,"owned_by":"knobless"}}'):format(name) end

-- The endpoints of a team form a chain: the team leads to the first, each to the next.
local function list(team)
  local found, next = {{}}, models:lookup(team)
  while next do
    found[#found + 1] = model(next)
    next = models:lookup(team .. "/" .. next)
  end
  return '{{"object":"list","data":[' .. table.concat(found, ",") .. "]}}"
end

local function describe(applet, name)
  local digest, team = applet:get_var("txn.key"), applet:get_var("txn.team")
  if name and not routes:lookup(name) then return knobless.refuse(applet, "no_endpoint") end
  if name and not access:lookup(digest .. "/" .. name) then return knobless.refuse(applet, "permission_denied") end
  local body = name and model(name) or list(team)
  applet:set_status(200)
  applet:add_header("content-type", "application/json")
  applet:add_header("content-length", tostring(#body))
  applet:start_response()
  if applet.method ~= "HEAD" then applet:send(body) end
end

core.register_service("{list}", "http", function(applet) describe(applet, applet.path:match("^/v1/models/(.+)$")) end)
"""


def lua(prefix: str, run: Path, body_max_bytes: int) -> str:
    return _LUA.format(
        held_most=body_max_bytes * _HELD_BODIES,
        idle_s=_IDLE_S,
        routes=map_file(ROUTES),
        access=map_file(ACCESS),
        models=map_file(MODELS),
        inner=f"unix@{run / SOCKET}",
        relay=_RELAY,
        list=_LIST,
        own=_OWN,
        prefix=prefix,
    )


def sections(run: Path, too_large: Answer, body_max_bytes: int) -> Iterable[tuple[str, Iterable[str]]]:
    """Where requests at the base URL go, and the listener behind it that finds out where they belong."""
    yield f"backend {BACKEND} from base", _backend(run, too_large, body_max_bytes)
    yield (
        f"listen {_RELAY} from base",
        (
            "mode tcp",
            f"bind unix@{run / _RELAY_SOCKET} mode 600 accept-proxy",
            f"timeout client {_IDLE_S}s",
            f"timeout server {_IDLE_S}s",
            "timeout server-fin 10ms  # a client that left takes the endpoint's request along",
            f"tcp-request content use-service lua.{_RELAY}",
        ),
    )


def _backend(run: Path, too_large: Answer, body_max_bytes: int) -> Iterable[str]:
    models = "{ path /v1/models } or { path_beg /v1/models/ }"
    yield "option abortonclose"
    yield "option http-server-close  # the relay takes one request a connection"
    yield f"timeout server {_IDLE_S}s"
    yield f"http-request set-var(txn.models) bool(true) if {models}"
    yield from refuse(answers.GET_ONLY, "{ var(txn.models) -m bool } !{ method GET HEAD }")
    yield f"http-request use-service lua.{_LIST} if {{ var(txn.models) -m bool }}"
    yield from refuse(answers.NO_PATH, f"!{{ path {' '.join(PATHS)} }}")
    yield from refuse(answers.POST_ONLY, "!{ method POST }")
    yield from refuse(answers.LENGTH_REQUIRED, "!{ req.fhdr(content-length) -m found }")
    yield from refuse(too_large, f"{{ req.body_size gt {body_max_bytes} }}")
    yield from refuse(answers.PLAIN_BODY, "{ req.fhdr(content-encoding) -m found }")
    yield "http-request set-header x-request-id %[var(txn.id)]"
    yield "http-request wait-for-body time 10s  # asks a client for it that waits to be asked"
    yield "http-request del-header expect"
    # The endpoint's own path logs the request, unless it never came to that.
    yield f"http-response set-log-level silent if !{{ res.fhdr({_OWN}) -m found }}"
    yield f"http-response del-header {_OWN}"
    yield f"server {_RELAY} unix@{run / _RELAY_SOCKET} send-proxy-v2"
