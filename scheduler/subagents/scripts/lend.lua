#!lua flags=allow-oom
-- lend: an agent that waits for a descendant gives its permit back for that time. A bypass run holds none and stays as it is.
-- KEYS  1 prefix
-- ARGV  1 nonce, 2 id, 3 token
-- Returns  {waiting} | {running} (bypass) | {stop} | {stale, status}
-- Events   waiting, admitted
-- include: agents
NONCE = ARGV[1]
local record = read(ARGV[2])
if not record or record.token ~= ARGV[3] or not ON_WORKER[record.status] then return {'stale', record and record.status or ''} end
advance_clock()
if record.status == 'stopping' or hit(record) then return {'stop'} end
if record.bypass == '1' then return {'running'} end
if record.status == 'running' then
  local lease = call('ZSCORE', P .. 'active', record.id)
  if not lease then return {'stale', record.status} end
  call('HSET', P .. 'agent:' .. record.id, 'status', 'waiting')
  call('ZREM', P .. 'active', record.id)
  call('ZADD', P .. 'waiting', lease, record.id)
  event('waiting', record.id, record.seq)
  admit(32)
  publish_told()
end
return {'waiting'}
