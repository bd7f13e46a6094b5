-- The base URL of OpenAI's API: finds the endpoint that a request names, and asks it by its own path.
local HELD_MOST, PIECE, IDLE_SECONDS = 67108864, 16384, 3600
local QUOTE, BACKSLASH, OPEN, OPEN_LIST = 34, 92, 123, 91
local routes, access = Map.new("routes.map", Map._str), Map.new("access.map", Map._str)
local models = Map.new("models.map", Map._str)
local held = setmetatable({}, {__mode = "k"})  -- a client that leaves drops its request, and so its entry

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
    here = text:find('["{}%[%]]', here)
    if not here then return nil end
    local mark = text:byte(here)
    if mark == QUOTE then
      local past = behind(text, here)
      if not past then return nil end
      if depth == 1 and past - here == 7 and text:sub(here, past - 1) == '"model"' then
        local value = text:match('^%s*:%s*"()', past)
        if value then return text:match('^([^"\\]*)"', value) end
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
  local lines, length, id = {}, 0, ""
  while path do
    line = applet:getline()
    if not line or line == "" then return nil end
    if line == "\r\n" then return {path = path, lines = lines, length = length, id = id} end
    local name, value = line:match("^([^:]+):%s*(.-)\r\n$")
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
  local lines = {"HTTP/1.1 " .. answer.status .. " Refused", "content-type: application/json", "x-knobless-relay: 1"}
  if answer.later then lines[#lines + 1] = "retry-after: " .. knobless.later(1) end
  lines[#lines + 1] = "content-length: " .. #body .. "\r\nconnection: close\r\n\r\n"
  applet:send(table.concat(lines, "\r\n") .. body)
end

-- The body, or nil where the client left.
local function take(applet, left)
  local pieces = {}
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
  local form = from:find(":") and "PROXY TCP6 %s ::1 %d 443\r\n" or "PROXY TCP4 %s 127.0.0.1 %d 443\r\n"
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
  local lines = {}
  repeat
    local line = socket:receive("*l")
    if not line then return nil end
    lines[#lines + 1] = line
  until line == ""
  applet:send(table.concat(lines, "\r\n") .. "\r\n")
  return "\n" .. table.concat(lines, "\n"):lower() .. "\n"
end

-- The answer as it is, which is read only to know where it ends. It broke off where this ends before.
local function pass_answer(applet, socket)
  local head
  repeat
    head = pass_lines(applet, socket)
    if not head then return end
  until not head:find("^\nhttp/1.%d 1%d%d")
  local length = tonumber(head:match("\ncontent%-length:%s*(%d+)"))
  if length then return pass(applet, socket, length) end
  if not head:find("\ntransfer%-encoding:") then return applet:send(socket:receive("*a") or "") end
  while true do
    local line = socket:receive("*l")
    local size = line and tonumber(line, 16)
    if not size then return end
    applet:send(line .. "\r\n")
    if size == 0 then return pass_lines(applet, socket) end
    if not pass(applet, socket, size + 2) then return end
  end
end

core.register_service("relay", "tcp", function(applet)
  local request = read_request(applet)
  if not request then return end
  if held_bytes() + request.length > HELD_MOST then collectgarbage() end
  if held_bytes() + request.length > HELD_MOST then
    drop(applet, request.length)
    return refuse(applet, request, "bodies_held")
  end
  local hold = {}
  held[hold] = request.length
  local body = take(applet, request.length)
  if not body then return end
  local model = model_of(body)
  if not model or model == "" then return refuse(applet, request, "no_model") end
  if not model:find("^[%w%-_.]+$") then return refuse(applet, request, "no_endpoint") end
  local socket = core.tcp()
  socket:settimeout(IDLE_SECONDS)
  if not socket:connect("unix@/run/gateway/inner.sock") then return end
  local line = "POST /serving-endpoints/" .. model .. request.path .. " HTTP/1.1\r\n"
  socket:send(proxied(applet) .. line .. table.concat(request.lines) .. "\r\n")
  socket:send(body)
  body, held[hold] = nil, nil
  pass_answer(applet, socket)
  socket:close()
end)

local function model(name) return ('{"id":"%s","object":"model","created":0,"owned_by":"knobless"}'):format(name) end

-- The endpoints of a team form a chain: the team leads to the first, each to the next.
local function list(team)
  local found, next = {}, models:lookup(team)
  while next do
    found[#found + 1] = model(next)
    next = models:lookup(team .. "/" .. next)
  end
  return '{"object":"list","data":[' .. table.concat(found, ",") .. "]}"
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

core.register_service("models", "http", function(applet) describe(applet, applet.path:match("^/v1/models/(.+)$")) end)
