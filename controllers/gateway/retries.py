"""Requests that their client marks as a retry, counted by back end: the rule, the table, the word that reads it.

Pure. Leaves what a retry means for demand to the autoscaler. Its one idea: the rule stands first in every back end, so
a marked request is counted exactly where HAProxy's own `stot` counts it, whether it is refused there or served.
"""

from __future__ import annotations

from typing import Final

HEADERS: Final = ("x-stainless-retry-count", "x-retry-attempt")
TABLE: Final = "retries"
FILE: Final = "retries.lua"
# An integer above 0 and nothing else; a list of values is no number.
_MARK: Final = "^0*[1-9][0-9]*$"
_NAME_MAX: Final = 15
# A back end that nobody retries at leaves the table, and with it the answer: 10,000 in it take 20 ms to tell.
_EXPIRE: Final = "10m"


def count() -> str:
    """Tracking an entry counts a request in it; without either header it costs two look-ups."""
    marked = " or ".join(f"{{ req.fhdr({header}) -m reg {_MARK} }}" for header in HEADERS)
    return f"http-request track-sc0 be_name table {TABLE} if {marked}"


def table(backends: int) -> str:
    """With an entry for each of so many back ends: a full table would drop the oldest count."""
    entries = f"stick-table type string len {_NAME_MAX} size {backends} expire {_EXPIRE} store http_req_cnt"
    return f"backend {TABLE} from base\n  {entries}"


# `show table` tells contents only to a socket that may also change them; the statistics socket takes no orders.
LUA: Final = f"""\
core.register_cli({{"show", "retries"}}, "show retries : marked retries by back end", function(applet)
  local lines = {{"# backend,retried\\n"}}
  for backend, entry in pairs(core.backends["{TABLE}"].stktable:dump()) do
    lines[#lines + 1] = backend .. "," .. entry.http_req_cnt .. "\\n"
  end
  applet:send(table.concat(lines))
end)
"""
