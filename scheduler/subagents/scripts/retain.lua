#!lua flags=allow-oom
-- retain: applies retention: settled agents whose time is over leave, with their list entries.
-- KEYS  1 prefix
-- ARGV  1 budget
-- Returns  {retained, removed, more (0|1)}
-- Events   none
-- include: agents
-- include: removing
advance_clock()
local budget = tonumber(ARGV[1])
local due = call('ZRANGEBYSCORE', P .. 'settled', '-inf', int(WALL), 'LIMIT', 0, budget)
for _, id in ipairs(due) do
  local record = read(id)
  if not record or TERMINAL[record.status] then remove(id) else call('ZREM', P .. 'settled', id) end
end
return {'retained', #due, #due == budget and 1 or 0}
