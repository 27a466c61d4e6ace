-- What happens to the agents of a worker that is gone, and to admitted agents whose job arq lost.
local MAX_DISPATCHES = 10

local function may_run_again(record)
  return (tonumber(record.attempt or nil) or 0) <= (tonumber(record.retries or nil) or 0)
end

-- The run is over without a word from its worker: stopped if it was told to stop, back to its place if an attempt is left.
local function lose(record)
  if record.status == 'stopping' or hit(record) then
    mark_stopping(record, interrupt_cause(record))
    settle(record, 'stopped', {'outcome', 'lost'})
  elseif may_run_again(record) then
    event('lost', record.id, record.seq, 'worker', record.worker or '')
    requeue(record)
  else
    settle(record, 'error', {'error_kind', 'worker_lost', 'outcome', 'lost',
      'error', 'worker ' .. (record.worker or '?') .. ' was lost while it ran this agent'})
  end
end

-- An admitted agent whose delivery lease ran out: still in its arq queue is fine, anything else is dispatched again under a new token.
local function redeliver(record, set)
  local job = job_of(record.id, record.token)
  if hit(record) then
    settle_interrupted(record)
  elseif set == 'active' and lane_index(lane_of(record)) == 'unserved' then
    requeue(record)
    event('redispatched', record.id, record.seq, 'reason', 'no_worker')
  elseif call('ZSCORE', arq_queue(record.type), job) and call('EXISTS', 'arq:job:' .. job) == 1
      and call('EXISTS', 'arq:in-progress:' .. job) == 0 then
    call('ZADD', P .. set, int(NOW + LEASE), record.id)
    wake(record.type)
  else
    local dispatches = call('HINCRBY', P .. 'agent:' .. record.id, 'dispatches', 1)
    if dispatches > MAX_DISPATCHES then
      settle(record, 'error', {'error_kind', 'undeliverable', 'error', 'dispatched ' .. dispatches .. ' times, and no worker started it'})
      return
    end
    undispatch(record.id, record.token, record.type)
    local token = new_token()
    call('HSET', P .. 'agent:' .. record.id, 'token', token)
    call('ZADD', P .. set, int(NOW + LEASE), record.id)
    dispatch(record.id, token, record.type)
    event('redispatched', record.id, record.seq, 'reason', 'delivery_lost')
  end
end

-- A worker that no longer takes work: types that nobody else serves step aside, and their admitted agents return to their places.
-- If its record has expired, any type may be one that it served: none must count as served for ever.
local function stop_serving(worker, budget)
  local types = call('HGET', P .. 'worker:' .. worker, 'types') or table.concat(call('HKEYS', P .. 'types'), ',')
  for type in each(types) do
    if call('SREM', P .. 'serving:' .. type, worker) == 1 and call('EXISTS', P .. 'serving:' .. type) == 0 then
      serve_lanes(type, 'lanes', 'unserved')
      for _, job in ipairs(call('ZRANGE', arq_queue(type), 0, budget - 1)) do
        local id, token = string.match(job, ':([^:]+):([^:]+)$')
        local record = id and read(id)
        if record and record.token == token and admitted(record) and record.bypass ~= '1' then
          requeue(record)
          event('redispatched', id, record.seq, 'reason', 'no_worker')
        end
      end
    end
  end
end

-- Every permit of a dead worker; at most `budget` agents a call, returns whether some are left.
local function lose_worker(worker, budget)
  local ids = call('SRANDMEMBER', P .. 'held:' .. worker, budget)
  for _, id in ipairs(ids) do
    local record = read(id)
    if record and ON_WORKER[record.status] and record.worker == worker then
      lose(record)
    else
      call('SREM', P .. 'held:' .. worker, id)
    end
  end
  if #ids == budget then return true end
  stop_serving(worker, 100)
  call('DEL', P .. 'worker:' .. worker, P .. 'claim:' .. worker)
  call('ZREM', P .. 'workers', worker)
  return false
end

-- Leases that have run out. Bounded by `budget` for each kind; returns how much was done.
local function reap(budget)
  local done = 0
  for _, set in ipairs({'active', 'waiting', 'bypass'}) do
    for _, id in ipairs(call('ZRANGEBYSCORE', P .. set, '-inf', '(' .. int(NOW), 'LIMIT', 0, budget)) do
      local record = read(id)
      done = done + 1
      if record and ON_WORKER[record.status] then
        lose(record)
      elseif record and admitted(record) then
        redeliver(record, set)
      else
        call('ZREM', P .. set, id)
        event('corrupt', id, record and record.seq or '0', 'status', record and record.status or 'missing', 'where', set)
      end
    end
  end
  for _, worker in ipairs(call('ZRANGEBYSCORE', P .. 'workers', '-inf', '(' .. int(NOW), 'LIMIT', 0, 1)) do
    done = done + 1
    lose_worker(worker, budget)
  end
  return done
end
