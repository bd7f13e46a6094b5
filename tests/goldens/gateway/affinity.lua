-- The pod that requests whose prompts begin like this one prefer; an empty name where there is none.
local FIRST_BYTES, LOAD_FACTOR = 1024, 1.25
local FIELDS = {'"messages"', '"prompt"', '"instructions"', '"input"'}
local kept = {}  -- by back end, its servers but those in maintenance

core.event_sub({"SERVER_ADD", "SERVER_DEL", "SERVER_UP", "SERVER_DOWN"}, function(_, data)
  kept[data.proxy_name] = nil
end)

local function servers_of(backend)
  local found = {}
  for name, server in pairs(core.backends[backend].servers) do
    if server:get_stats().status:sub(1, 5) ~= "MAINT" then found[#found + 1] = {name = name, server = server} end
  end
  return found
end

-- A hash of the prompt's beginning, of what HAProxy holds of the body; nil where it is no prompt.
local function key_of(txn)
  local body = txn.f:req_body() or ""
  for _, field in ipairs(FIELDS) do
    local at = body:find(field, 1, true)
    if at then return txn.c:xxh64(body:sub(at, at + FIRST_BYTES - 1)) end
  end
end

-- What each server holds now. Returns what all hold, what those hold that take more, and the sum of their shares.
local function look(servers)
  local held, flight, shares = 0, 0, 0
  for _, each in ipairs(servers) do
    each.holds = each.server:get_cur_sess()
    each.takes = each.holds and not each.server:is_draining()
    held = held + (each.holds or 0)
    if each.takes then
      each.share = each.server:get_weight()
      flight, shares = flight + each.holds, shares + each.share
    end
  end
  return held, flight, shares
end

core.register_fetches("preferred", function(txn)
  local key, backend = key_of(txn), txn.f:be_name()
  if not key then return "" end
  kept[backend] = kept[backend] or servers_of(backend)
  local held, flight, shares = look(kept[backend])
  -- Requests that are in the back end and at no server: they wait, or have a slot and are not yet there.
  local between = txn.f:be_conn(backend) - 1 - held
  local bound = LOAD_FACTOR * (flight + 1) / shares
  local preferred, highest = "", math.mininteger
  for _, each in ipairs(kept[backend]) do
    local score = each.takes and each.holds < bound * each.share and txn.c:xxh64(each.name, key)
    if score and score >= highest and each.holds + between < each.server:get_maxconn() then
      preferred, highest = each.name, score
    end
  end
  return preferred
end)
