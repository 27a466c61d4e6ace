#!lua
-- emit: an agent says something; kept in its own capped stream, the newest also on its record.
-- KEYS  1 prefix
-- ARGV  1 nonce, 2 id, 3 token, then pairs: kind, data (JSON)
-- Returns  {emitted}, also for the newest call again | {stale, status} | {unknown}
-- Events   none in the history of the pool
-- include: agents
local EVENTS_KEPT = '1000'
local nonce, id, token = ARGV[1], ARGV[2], ARGV[3]
local record = read(id)
if not record then return {'unknown'} end
if record.token ~= token or not ON_WORKER[record.status] then return {'stale', record.status} end
if call('HGET', P .. 'agent:' .. id, 'emitted') == nonce then return {'emitted'} end
for at = 4, #ARGV, 2 do
  call('XADD', P .. 'events:' .. id, 'MAXLEN', '~', EVENTS_KEPT, '*', 'kind', ARGV[at], 'data', ARGV[at + 1])
end
call('HSET', P .. 'agent:' .. id, 'progress', ARGV[#ARGV], 'emitted', nonce)
return {'emitted'}
