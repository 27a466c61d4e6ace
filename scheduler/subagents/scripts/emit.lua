#!lua
-- emit: an agent says something; kept in its own capped stream, the newest also on its record.
-- KEYS  1 prefix
-- ARGV  1 id, 2 token, then pairs: kind, data (JSON)
-- Returns  {emitted, cursor ...} | {stale, status} | {unknown}
-- Events   none in the history of the pool
-- include: agents
local EVENTS_KEPT = '1000'
local record = read(ARGV[1])
if not record then return {'unknown'} end
if record.token ~= ARGV[2] or not ON_WORKER[record.status] then return {'stale', record.status} end
local reply = {'emitted'}
for at = 3, #ARGV, 2 do
  reply[#reply + 1] = call('XADD', P .. 'events:' .. record.id, 'MAXLEN', '~', EVENTS_KEPT, '*', 'kind', ARGV[at], 'data', ARGV[at + 1])
end
call('HSET', P .. 'agent:' .. record.id, 'progress', ARGV[#ARGV])
return reply
