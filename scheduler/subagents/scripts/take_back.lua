#!lua flags=allow-oom
-- take_back: a parent wants its lent permit again. It stands in line at its own seq, and has it when it reads `running`.
-- KEYS  1 prefix
-- ARGV  1 nonce, 2 id, 3 token
-- Returns  {running} | {waiting} | {stop} | {stale, status}
-- Events   resumed, admitted
-- include: agents
NONCE = ARGV[1]
local record = read(ARGV[2])
if not record or record.token ~= ARGV[3] or not ON_WORKER[record.status] then return {'stale', record and record.status or ''} end
advance_clock()
if record.status == 'stopping' or hit(record) then return {'stop'} end
if record.status == 'running' then return {'running'} end
if not record.returning then
  call('HSET', P .. 'agent:' .. record.id, 'returning', '1')
  enqueue('@', record.id, record.seq)
end
admit(32)
publish_told()
return {call('HGET', P .. 'agent:' .. record.id, 'status')}
