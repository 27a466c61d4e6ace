#!lua flags=allow-oom
-- pause: stops admission, or lets it go on. A flag of its own: it neither knows nor changes the latch.
-- KEYS  1 prefix
-- ARGV  1 nonce, 2 paused (1|0), 3 reason, 4 by
-- Returns  {changed, more to admit (0|1)} | {unchanged}
-- Events   paused, unpaused, admitted, resumed
-- include: agents
NONCE = ARGV[1]
local paused = ARGV[2] == '1'
if paused == PAUSED then return {'unchanged'} end
advance_clock()
PAUSED = paused
call('HSET', P .. 'config', 'paused', ARGV[2], 'changed_at', int(WALL), 'changed_by', ARGV[4])
call('HINCRBY', P .. 'config', 'version', 1)
event(paused and 'paused' or 'unpaused', '', '0', 'reason', ARGV[3], 'by', ARGV[4])
local _, more = admit(100)
admit_bypass(100)
publish_told()
return {'changed', more and 1 or 0}
