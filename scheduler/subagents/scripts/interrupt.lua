#!lua flags=allow-oom
-- interrupt: stops everything of a scope that has been spawned so far, in one O(1) step: the cutoff is durable, then it is broadcast.
-- KEYS  1 prefix
-- ARGV  1 interrupt id, 2 scope, 3 forced (1|0), 4 kill (1|0), 5 reason, 6 by
-- Returns  {interrupted, cutoff}; the same id again hits nothing new
-- Events   interrupt
-- include: agents
-- include: interrupting
NONCE = ARGV[1]
local done = call('HGET', P .. 'interrupt:' .. ARGV[1], 'cutoff')
if done then return {'interrupted', done} end
advance_clock()
return {'interrupted', int(raise_cutoff(ARGV[1], ARGV[2], ARGV[3] == '1', ARGV[4] == '1', ARGV[5], ARGV[6]))}
