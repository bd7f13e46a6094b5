-- The gateway's own answers: their bodies, and services that take the rest of a request in before they answer.
local MOST_BYTES, MOST_SECONDS, JITTER_SECONDS = 67108864, 10, 5

knobless = {answers = {}}

-- OpenAI's words for the kind of an error.
local function kind(status)
  if status == 404 then return "not_found_error" end
  if status == 429 then return "rate_limit_error" end
  return status >= 500 and "server_error" or "invalid_request_error"
end

-- The body of an answer; `path`: what the client asked for, nil where it could not be read.
function knobless.body(answer, path, id)
  local own = path and (path:match("^/serving%-endpoints/[^/]*(/.*)$") or path) or ""
  if own:sub(1, 4) == "/v1/" then
    local form = '{"error":{"message":"%s","type":"%s","param":%s,"code":"%s"}}'
    local field = answer.field and '"' .. answer.field .. '"' or "null"
    return form:format(answer.message, kind(answer.status), field, answer.code:lower())
  end
  if own == "/v2" or own:sub(1, 4) == "/v2/" then return ('{"error":"%s"}'):format(answer.message) end
  return ('{"error":{"code":"%s","message":"%s","request_id":"%s"}}'):format(answer.code, answer.message, id or "")
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
    {status = status, code = code, message = message, field = field, headers = headers, later = later}
  core.register_service(name, "http", function(applet) knobless.refuse(applet, name) end)
end

answer("unauthenticated", 401, "UNAUTHENTICATED", "Send a valid API key: 'Authorization: Bearer KEY'.", nil, {["www-authenticate"] = "Bearer"}, false)
answer("permission_denied", 403, "PERMISSION_DENIED", "This key's team may not call this endpoint.", nil, {}, false)
answer("no_endpoint", 404, "NOT_FOUND", "No endpoint of this name.", nil, {}, false)
answer("no_path", 404, "NOT_FOUND", "Nothing under this path. Predictions: POST /serving-endpoints/ENDPOINT/invocations.", nil, {}, false)
answer("post_only", 405, "METHOD_NOT_ALLOWED", "Use POST for this path.", nil, {["allow"] = "POST"}, false)
answer("get_only", 405, "METHOD_NOT_ALLOWED", "Use GET for this path.", nil, {["allow"] = "GET, HEAD"}, false)
answer("read_or_post", 405, "METHOD_NOT_ALLOWED", "Use GET or POST for this path.", nil, {["allow"] = "GET, HEAD, POST"}, false)
answer("length_required", 411, "LENGTH_REQUIRED", "Send the body with Content-Length; chunked bodies are not taken.", nil, {}, false)
answer("not_ready", 503, "UNAVAILABLE", "No replica of this endpoint is ready. Try again later.", nil, {}, true)
answer("queue_full", 429, "TOO_MANY_REQUESTS", "All replicas are busy and the queue is full. Try again later.", nil, {}, true)
answer("too_large", 413, "PAYLOAD_TOO_LARGE", "The body is larger than 16777216 bytes.", nil, {}, false)
answer("no_model", 400, "BAD_REQUEST", "Send a JSON object whose `model` is the name of an endpoint.", "model", {}, false)
answer("plain_body", 415, "UNSUPPORTED_MEDIA_TYPE", "Send the body without Content-Encoding here; /serving-endpoints/ENDPOINT/v1 takes gzip and zstd.", nil, {}, false)
answer("bodies_held", 429, "TOO_MANY_REQUESTS", "Too many bodies are on their way. Try again later.", nil, {}, true)
answer("bad_request", 400, "BAD_REQUEST", "The request is not valid HTTP.", nil, {}, false)
answer("slow_request", 408, "REQUEST_TIMEOUT", "The request did not arrive in time.", nil, {}, false)
answer("internal", 500, "INTERNAL_ERROR", "The gateway failed.", nil, {}, false)
answer("pod_failed", 502, "BAD_GATEWAY", "The replica broke off before it answered.", nil, {}, false)
answer("unreachable", 503, "UNAVAILABLE", "No replica took the request. Try again later.", nil, {}, false)
answer("deadline", 504, "DEADLINE_EXCEEDED", "The model did not answer within its deadline.", nil, {}, false)
answer("overloaded", 429, "TOO_MANY_REQUESTS", "All replicas stayed busy. Try again later.", nil, {}, false)
