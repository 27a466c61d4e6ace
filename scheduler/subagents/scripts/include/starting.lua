-- The start of a run: the one moment in which an admitted agent becomes running code. Refused for a stale token, a hit agent, and
-- under the latch. Returns a code and, for `started`, what the worker needs to run it; for `stale`, the
-- actual status.
local function spec(record)
  local more = call('HMGET', P .. 'agent:' .. record.id, 'timeout', 'stall_timeout', 'parent', 'root', 'description', 'attempt')
  return {record.id, record.token, record.type, record.seq, call('GET', P .. 'input:' .. record.id) or 'null', record.scopes or '',
    record.ancestors or '', record.survive or '0', record.bypass or '0', more[1] or '', more[2] or '', more[6] or '1', record.run or '1',
    record.depth or '0', more[3] or '', more[4] or '', more[5] or ''}
end

-- A whole lease from now on; its worker's own lease never ends before those of what it runs.
local function hold(record)
  call('ZADD', P .. (record.bypass == '1' and 'bypass' or 'active'), int(NOW + LEASE), record.id)
  call('ZADD', P .. 'workers', 'XX', int(NOW + LEASE), record.worker)
end

local function start(id, token, worker)
  local record = read(id)
  if not record then return 'unknown' end
  if record.token ~= token then return 'stale', record.status end
  if ON_WORKER[record.status] then
    if record.worker == worker and record.status == 'running' then  -- its worker has not seen the answer, so it does not run yet
      hold(record)
      return 'started', spec(record)
    end
    return 'stale', record.status
  end
  if record.status ~= 'queued' then return 'stale', record.status end
  if hit(record) then
    settle_interrupted(record)
    return 'stopped'
  end
  if HALTED then
    requeue(record)
    event('redispatched', id, record.seq, 'reason', 'halted')
    return 'halted'
  end
  undispatch(id, token, record.type)
  call('HSET', P .. 'agent:' .. id, 'status', 'running', 'worker', worker, 'started_at', int(WALL),
    'attempt', int((tonumber(record.attempt or nil) or 0) + 1))
  record.status, record.worker = 'running', worker
  hold(record)
  call('ZADD', P .. 'started', record.seq, id)
  call('SADD', P .. 'held:' .. worker, id)
  event('started', id, record.seq, 'token', token, 'worker', worker)
  return 'started', spec(record)
end
