#!lua flags=allow-oom
-- unhalt: opens the latch; a pause that was on stays on.
-- KEYS  1 prefix
-- ARGV  1 nonce, 2 reason, 3 by
-- Returns  {changed, more to admit (0|1)} | {unchanged}
-- Events   unhalted, admitted, resumed
-- include: agents
NONCE = ARGV[1]
if not HALTED then return {'unchanged'} end
advance_clock()
HALTED = false
call('HSET', P .. 'config', 'halted', '0', 'changed_at', int(WALL), 'changed_by', ARGV[3])
call('HDEL', P .. 'config', 'halt_reason', 'halted_by')
call('HINCRBY', P .. 'config', 'version', 1)
event('unhalted', '', '0', 'reason', ARGV[2], 'by', ARGV[3])
local _, more = admit(100)
admit_bypass(100)
publish_told()
return {'changed', more and 1 or 0}
