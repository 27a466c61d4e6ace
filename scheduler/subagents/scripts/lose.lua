#!lua flags=allow-oom
-- lose: a supervisor reports that a worker process of its own is dead, so its permits need not wait for their leases.
-- KEYS  1 prefix
-- ARGV  1 nonce, 2 worker, 3 budget
-- Returns  {lost, more (0|1)}
-- Events   lost, error, stopped, redispatched, admitted
-- include: agents
-- include: losing
NONCE = ARGV[1]
advance_clock()
local more = lose_worker(ARGV[2], tonumber(ARGV[3]))
admit(tonumber(ARGV[3]) + 32)
admit_bypass(tonumber(ARGV[3]))
publish_told()
return {'lost', more and 1 or 0}
