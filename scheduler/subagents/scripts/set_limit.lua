#!lua flags=allow-oom
-- set_limit: changes max_concurrent while the pool runs. Raised, it admits the newly admissible at once; lowered, it stops nobody.
-- KEYS  1 prefix
-- ARGV  1 nonce, 2 limit (0..1000000), 3 by
-- Returns  {limit, limit before, more (0|1)} | {out_of_bounds}
-- Events   limit, admitted, resumed
-- include: agents
NONCE = ARGV[1]
local limit = tonumber(ARGV[2])
if not limit or limit ~= math.floor(limit) or limit < 0 or limit > 1000000 then return {'out_of_bounds'} end
advance_clock()
local before = LIMIT
LIMIT = limit
call('HSET', P .. 'config', 'max_concurrent', int(limit), 'changed_at', int(WALL), 'changed_by', ARGV[3])
call('HINCRBY', P .. 'config', 'version', 1)
event('limit', '', '0', 'active', call('ZCARD', P .. 'active'), 'max_concurrent', int(limit), 'by', ARGV[3])
local _, more = admit(100)
admit_bypass(100)
publish_told()
return {'limit', int(before), more and 1 or 0}
