-- Back to its own place in the queue: an agent that was admitted and cannot start, or whose run was lost and may be run again.
-- The seq is its own, so it stands in front of everyone who was spawned later.
local function requeue(record)
  if admitted(record) then undispatch(record.id, record.token, record.type) end
  leave_permit(record)
  call('HSET', P .. 'agent:' .. record.id, 'status', 'queued')
  call('HDEL', P .. 'agent:' .. record.id, 'token', 'worker', 'admitted_at', 'started_at', 'returning')
  record.status, record.token, record.worker, record.returning = 'queued', nil, nil, nil
  if record.bypass == '1' then
    call('ZADD', P .. 'bypass', '+inf', record.id)
    call('ZADD', P .. 'bypass:held', record.seq, record.id)
  else
    enqueue(lane_of(record), record.id, record.seq)
  end
end
