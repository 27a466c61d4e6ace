-- A bare semaphore: opaque ids instead of agents, the same admission. A waiter keeps itself alive by a lease of its own, so that a
-- permit never goes to a process that is gone. `config` counts the clears, so that a waiter whose place is gone knows why.
-- include: prelude
-- include: clock
-- include: lanes
local LANE = '@'
local NONCE, tokens = nil, 0

local function withdraw_waiter(id)
  withdraw(LANE, id)
  call('ZREM', P .. 'waiters', id)
  call('HDEL', P .. 'since', id)
end

local function grant(id, seq, lane)
  local alive = tonumber(call('ZSCORE', P .. 'waiters', id))
  call('ZREM', P .. 'waiters', id)
  call('HDEL', P .. 'since', id)
  if not alive or alive < NOW then return false end
  tokens = tokens + 1
  call('HSET', P .. 'tokens', id, NONCE .. '.' .. tokens)
  call('ZADD', P .. 'active', int(NOW + LEASE), id)
  call('PUBLISH', P .. 'permits', 'granted ' .. id)
  return true
end
-- include: admission

local function give_back(id)
  call('ZREM', P .. 'active', id)
  call('HDEL', P .. 'tokens', id)
end

local function reap_permits()
  for _, id in ipairs(call('ZRANGEBYSCORE', P .. 'active', '-inf', '(' .. int(NOW), 'LIMIT', 0, 10)) do give_back(id) end
  for _, id in ipairs(call('ZRANGEBYSCORE', P .. 'waiters', '-inf', '(' .. int(NOW), 'LIMIT', 0, 10)) do withdraw_waiter(id) end
end

-- {held, token, lease} | {waiting, position, clears} | {gone, clears}
local function standing(id)
  local token = call('HGET', P .. 'tokens', id)
  if token then return {'held', token, int(LEASE)} end
  local clears = call('HGET', P .. 'config', 'clears') or '0'
  local rank = call('ZRANK', P .. 'pending:' .. LANE, id)
  if rank then return {'waiting', rank + 1, clears} end
  return {'gone', clears}
end

-- Extends a permit under its token, or a place in line. The token '' is that of a waiter, who has not learned yet whether it was
-- granted: it gets a whole lease from now on. A permit whose lease ran out is given back, whoever asks.
local function extend(id, token)
  local held = call('HGET', P .. 'tokens', id)
  if held and (token == '' or held == token) then
    if tonumber(call('ZSCORE', P .. 'active', id) or 0) >= NOW then
      call('ZADD', P .. 'active', int(NOW + LEASE), id)
    else
      give_back(id)
    end
  elseif not held and call('ZRANK', P .. 'pending:' .. LANE, id) then
    call('ZADD', P .. 'waiters', int(NOW + LEASE), id)
  end
end

-- {held, token, lease} | {waiting, position, clears} | {stale} | {gone, clears}
local function extended(id, token)
  local now = standing(id)
  if token ~= '' and now[2] ~= token then return {'stale'} end
  return now
end
