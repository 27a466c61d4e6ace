#!lua
-- permit_acquire: stands in line for a permit of a bare semaphore; with a free one and nobody waiting it is granted in this same step.
-- KEYS  1 prefix
-- ARGV  1 nonce, 2 id
-- Returns  {held, token, lease} | {waiting, position, clears}; the same id again changes nothing
-- Events   none
-- include: permits
NONCE = ARGV[1]
advance_clock()
reap_permits()
local id = ARGV[2]
if standing(id)[1] == 'gone' then
  local seq = int(call('INCR', P .. 'seq'))
  call('ZADD', P .. 'waiters', int(NOW + LEASE), id)
  call('HSET', P .. 'since', id, int(WALL))
  enqueue(LANE, id, seq)
end
admit(100)
return standing(id)
