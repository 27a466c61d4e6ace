-- A start that was acknowledged by a server that has since lost it (a failover): the agent runs, or ran, so the record must say so.
-- `worker` is nil where nobody can tell who ran it.
local function adopt(record, worker)
  local attempt = int((tonumber(record.attempt or nil) or 0) + 1)
  undispatch(record.id, record.token, record.type)
  call('HSET', P .. 'agent:' .. record.id, 'status', 'running', 'started_at', int(WALL), 'attempt', attempt)
  call('ZADD', P .. 'started', record.seq, record.id)
  if worker then
    call('HSET', P .. 'agent:' .. record.id, 'worker', worker)
    call('SADD', P .. 'held:' .. worker, record.id)
  end
  record.status, record.worker, record.attempt = 'running', worker, attempt
  event('adopted', record.id, record.seq, 'worker', worker or '')
end
