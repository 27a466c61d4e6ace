#!lua flags=allow-oom
-- tend: one tick of a scheduler, at most `budget` of each kind of work: leases, sweeps, admission, lost wake-ups.
-- KEYS  1 prefix
-- ARGV  1 nonce, 2 budget
-- Returns  {tended, more (0|1)}
-- Events   lost, redispatched, error, stopped, stopping, corrupt, admitted, resumed
-- include: agents
-- include: housekeeping
NONCE = ARGV[1]
advance_clock()
local more = keep_house(tonumber(ARGV[2]))
publish_told()
return {'tended', more and 1 or 0}
