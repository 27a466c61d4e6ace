#!lua flags=allow-oom
-- reap: takes back what dead workers hold, dispatches again what arq lost; at most `budget` of each kind a call.
-- KEYS  1 prefix
-- ARGV  1 nonce, 2 budget
-- Returns  {reaped, done, more to admit (0|1)}
-- Events   lost, redispatched, error, stopped, corrupt, admitted
-- include: agents
-- include: losing
NONCE = ARGV[1]
advance_clock()
local done = reap(tonumber(ARGV[2]))
local _, more = admit(tonumber(ARGV[2]))
admit_bypass(tonumber(ARGV[2]))
publish_told()
return {'reaped', done, more and 1 or 0}
