#!lua flags=allow-oom
-- stats: the pool in numbers. Every number is derived from the collections themselves; no counter is kept.
-- KEYS  1 prefix
-- ARGV  none
-- Returns  {stats, field, value, ...}
-- Events   none
-- include: agents
advance_clock()
local oldest = nil
for _, lane in ipairs(call('ZRANGE', P .. 'lanes', 0, -1)) do
  local head = lane ~= '@' and call('ZRANGE', P .. 'pending:' .. lane, 0, 0)[1]
  local since = head and tonumber(call('HGET', P .. 'agent:' .. head, 'enqueued_at'))
  if since and (not oldest or since < oldest) then oldest = since end
end
local undispatched = call('ZCARD', P .. 'bypass:held')
return {'stats', 'max_concurrent', int(LIMIT), 'active', call('ZCARD', P .. 'active'), 'queued', queued_in('lanes') + undispatched,
  'unserved', queued_in('unserved'), 'waiting', call('ZCARD', P .. 'waiting'), 'bypass', call('ZCARD', P .. 'bypass') - undispatched,
  'stopping', call('ZCARD', P .. 'stopping'), 'paused', PAUSED and 1 or 0, 'halted', HALTED and 1 or 0,
  'oldest_wait_ms', oldest and int(WALL - oldest) or '', 'workers', call('ZCOUNT', P .. 'workers', int(NOW), '+inf'),
  'unsettled', call('ZCARD', P .. 'scope:*'), 'version', setting[14] or '1', 'lease', int(LEASE)}
