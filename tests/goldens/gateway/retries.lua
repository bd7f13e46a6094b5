core.register_cli({"show", "retries"}, "show retries : marked retries by back end", function(applet)
  local lines = {"# backend,retried\n"}
  for backend, entry in pairs(core.backends["retries"].stktable:dump()) do
    lines[#lines + 1] = backend .. "," .. entry.http_req_cnt .. "\n"
  end
  applet:send(table.concat(lines))
end)
