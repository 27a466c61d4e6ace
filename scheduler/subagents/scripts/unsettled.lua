#!lua flags=allow-oom
-- unsettled: how many agents of a scope are not settled yet; those that a cutoff hit before they started count as settled.
-- KEYS  1 prefix
-- ARGV  1 scope
-- Returns  {unsettled, count}
-- Events   none
-- include: agents
local scope = ARGV[1]
local total = call('ZCARD', P .. 'scope:' .. scope)
if total > 0 and total <= 100 then
  for _, id in ipairs(call('ZRANGE', P .. 'scope:' .. scope, 0, -1)) do
    local record = read(id)
    if not record or (record.status == 'queued' and hit(record)) then total = total - 1 end
  end
end
return {'unsettled', total}
