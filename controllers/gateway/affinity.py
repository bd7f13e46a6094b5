"""Prefix affinity with bounded load: prompts that begin alike prefer one pod, unless it has more than its share.

Pure text in Lua, which HAProxy runs as it chooses a server. Leaves which endpoints want it to their objects, and every
request without a preference to `leastconn` and the back end's one queue. Its one idea: a preference is only ever for a
pod that takes the request at once, so none waits behind it, and limits, queue and refusals are what they are without.

The order of preference is rendezvous hashing: each pod's score is a hash of its name and the prompt's beginning, so a
pod that comes or goes moves only its own share of the prompts.
"""

from __future__ import annotations

from typing import Final

from spec.names import AFFINITY_PREFIX

FILE: Final = "affinity.lua"
FETCH: Final = "preferred"
KEY_BYTES: Final = 1024
# The most of its share of all requests in flight that a pod is preferred up to; beyond it, the next one is.
LOAD_FACTOR: Final = 1.25
# What prompts begin with, the first that a body has: chat, completions, responses with and without a system's part.
FIELDS: Final = tuple(f"'\"{field}\"'" for field in ("messages", "prompt", "instructions", "input"))


def use() -> str:
    """A back end's line: the pod that its program names, if it names one; the route says whether it is asked."""
    return f"use-server %[lua.{FETCH}] if {{ var(txn.route),field(4,/) -m str {AFFINITY_PREFIX} }}"


# HAProxy's own fetches of a server (`srv_conn`, ...) write into the name that they are given, which in Lua is every
# string of that text: so servers are asked as objects. One of them costs 3 us to make, so they are kept until one
# comes or goes; one that was deleted since answers nil.
LUA: Final = f"""\
-- The pod that requests whose prompts begin like this one prefer; an empty name where there is none.
local FIRST_BYTES, LOAD_FACTOR = {KEY_BYTES}, {LOAD_FACTOR}
local FIELDS = {{{", ".join(FIELDS)}}}
local kept = {{}}  -- by back end, its servers but those in maintenance

core.event_sub({{"SERVER_ADD", "SERVER_DEL", "SERVER_UP", "SERVER_DOWN"}}, function(_, data)
  kept[data.proxy_name] = nil
end)

local function servers_of(backend)
  local found = {{}}
  for name, server in pairs(core.backends[backend].servers) do
    if server:get_stats().status:sub(1, 5) ~= "MAINT" then found[#found + 1] = {{name = name, server = server}} end
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

core.register_fetches("{FETCH}", function(txn)
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
"""
