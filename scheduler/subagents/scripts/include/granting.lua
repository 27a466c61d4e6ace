-- What a permit means for an agent: a token, a lease, and an arq job on its way to a worker; for a returning parent, its code goes on.
-- Never raises after a write: a record that does not fit its place in the queue is skipped and recorded as `corrupt`.
local function regain(record)
  if not record or record.status ~= 'waiting' or not record.returning then return false end
  call('HDEL', P .. 'agent:' .. record.id, 'returning')
  if hit(record) then return false end
  local lease = call('ZSCORE', P .. 'waiting', record.id)
  if not lease then return false end
  call('HSET', P .. 'agent:' .. record.id, 'status', 'running')
  call('ZREM', P .. 'waiting', record.id)
  call('ZADD', P .. 'active', lease, record.id)
  event('resumed', record.id, record.seq, 'active', call('ZCARD', P .. 'active'), 'max_concurrent', int(LIMIT))
  call('PUBLISH', P .. 'control', 'resumed ' .. record.id)
  return true
end

local function place(record, set)
  local token = new_token()
  call('HSET', P .. 'agent:' .. record.id, 'token', token, 'admitted_at', int(WALL))
  call('ZADD', P .. set, int(NOW + LEASE), record.id)
  local number = dispatch(record.id, token, record.type)
  event('admitted', record.id, record.seq, 'number', number, 'set', set,
    'active', call('ZCARD', P .. 'active'), 'max_concurrent', int(LIMIT))
end

local function grant(id, seq, lane)
  local record = read(id)
  if lane == '@' then return regain(record) end
  if not record or record.status ~= 'queued' or record.token or record.seq ~= seq then
    event('corrupt', id, seq, 'status', record and record.status or 'missing', 'where', lane)
    return false
  end
  if hit(record) then
    settle_interrupted(record)
    return false
  end
  place(record, 'active')
  return true
end
