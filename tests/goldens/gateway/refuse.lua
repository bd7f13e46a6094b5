-- Answers after the rest of the request's body was taken in and dropped, within bounds.
local MOST_BYTES, MOST_SECONDS, JITTER_SECONDS = 67108864, 10, 5

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
    local body = '{"error":{"code":"' .. code .. '","message":"' .. message .. '","request_id":"' .. id .. '"}}'
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

refuse("unauthenticated", 401, "UNAUTHENTICATED", "Send a valid API key: 'Authorization: Bearer KEY'.", {["www-authenticate"] = "Bearer"}, false)
refuse("permission_denied", 403, "PERMISSION_DENIED", "This key's team may not call this endpoint.", {}, false)
refuse("no_endpoint", 404, "NOT_FOUND", "No endpoint of this name.", {}, false)
refuse("no_path", 404, "NOT_FOUND", "Nothing under this path. Predictions: POST /serving-endpoints/ENDPOINT/invocations.", {}, false)
refuse("post_only", 405, "METHOD_NOT_ALLOWED", "Use POST for this path.", {["allow"] = "POST"}, false)
refuse("get_only", 405, "METHOD_NOT_ALLOWED", "Use GET for this path.", {["allow"] = "GET, HEAD"}, false)
refuse("length_required", 411, "LENGTH_REQUIRED", "Send the body with Content-Length; chunked bodies are not taken.", {}, false)
refuse("not_ready", 503, "UNAVAILABLE", "No replica of this endpoint is ready. Try again later.", {}, true)
refuse("queue_full", 429, "TOO_MANY_REQUESTS", "All replicas are busy and the queue is full. Try again later.", {}, true)
refuse("too_large", 413, "PAYLOAD_TOO_LARGE", "The body is larger than 16777216 bytes.", {}, false)
