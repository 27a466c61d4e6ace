#!lua flags=allow-oom
-- purge: removes settled agents of a scope that ended at least so long ago; unsettled ones are never touched.
-- KEYS  1 prefix
-- ARGV  1 older than ms, 2 scope, 3 budget, 4 after this seq
-- Returns  {purged, removed, next seq or ''}
-- Events   none
-- include: agents
-- include: removing
advance_clock()
local older, scope, budget = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local index = scope == '*' and (P .. 'index:all') or (P .. 'index:scope:' .. scope)
local found = call('ZRANGEBYSCORE', index, '(' .. ARGV[4], '+inf', 'WITHSCORES', 'LIMIT', 0, budget)
local removed = 0
for at = 1, #found, 2 do
  local record = read(found[at])
  local ended = record and TERMINAL[record.status] and tonumber(call('HGET', P .. 'agent:' .. found[at], 'ended_at'))
  if not record then
    call('ZREM', index, found[at])
  elseif ended and WALL - ended >= older then
    remove(found[at])
    removed = removed + 1
  end
end
return {'purged', removed, #found / 2 == budget and found[#found] or ''}
