#!lua flags=allow-oom
-- halt: the latch. In one step admission stops, spawns are refused, nothing admitted may start, and everything is interrupted.
-- KEYS  1 prefix
-- ARGV  1 interrupt id, 2 forced (1|0), 3 reason, 4 by
-- Returns  {interrupted, cutoff}; the same id again hits nothing new
-- Events   halted, interrupt
-- include: agents
-- include: interrupting
NONCE = ARGV[1]
local done = call('HGET', P .. 'interrupt:' .. ARGV[1], 'cutoff')
if done then return {'interrupted', done} end
advance_clock()
call('HSET', P .. 'config', 'halted', '1', 'halt_reason', ARGV[3], 'halted_by', ARGV[4], 'changed_at', int(WALL), 'changed_by', ARGV[4])
call('HINCRBY', P .. 'config', 'version', 1)
event('halted', '', '0', 'reason', ARGV[3], 'by', ARGV[4])
return {'interrupted', int(raise_cutoff(ARGV[1], '*', ARGV[2] == '1', false, ARGV[3], ARGV[4]))}
