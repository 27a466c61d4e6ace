#!lua flags=allow-oom
-- renew: a worker's heartbeat. Renews the leases of everything it runs in one call and tells it, for each agent, what to do;
-- on the way it does a little of the scheduler's work, so that a pool without a scheduler still heals.
-- KEYS  1 prefix
-- ARGV  1 nonce, 2 worker, 3 housekeeping budget, then pairs: id, token
-- Returns  {renewed, now, lease, version of the settings, code ...} one code for each agent:
--          running | waiting | stop (told to stop, or hit by a cutoff) | stale (not yours any more: it must not run on)
--          {unknown_worker, code ...} if the worker must join again
-- Events   adopted, lost, redispatched, admitted, stopping, stopped, error
-- include: agents
-- include: adopting
-- include: housekeeping
NONCE = ARGV[1]
local worker, budget = ARGV[2], tonumber(ARGV[3])
advance_clock()
local reply = {'renewed', int(NOW), int(LEASE), setting[14] or '1'}

local function lease_set(record)
  if record.bypass == '1' then return 'bypass' end
  if record.status == 'waiting' or (record.status == 'stopping' and call('ZSCORE', P .. 'waiting', record.id)) then return 'waiting' end
  return 'active'
end

local function renew(id, token)
  local record = read(id)
  if not record or record.token ~= token or TERMINAL[record.status] then return 'stale' end
  if record.status == 'queued' then adopt(record, worker) end
  if record.worker ~= worker then return 'stale' end
  call('ZADD', P .. lease_set(record), int(NOW + LEASE), id)
  if record.status == 'stopping' then return 'stop' end
  if hit(record) then
    local reason, by = interrupt_cause(record)
    mark_stopping(record, reason, by)
    return 'stop'
  end
  return record.status
end

for at = 4, #ARGV, 2 do reply[#reply + 1] = renew(ARGV[at], ARGV[at + 1]) end
if call('EXISTS', P .. 'worker:' .. worker) == 1 then
  call('ZADD', P .. 'workers', int(NOW + LEASE), worker)
  call('PEXPIRE', P .. 'worker:' .. worker, int(LEASE * 20))
  call('HSET', P .. 'worker:' .. worker, 'seen_at', int(WALL), 'running', (#ARGV - 3) / 2)
else
  reply[1] = 'unknown_worker'
end
if budget > 0 then keep_house(budget) end
publish_told()
return reply
