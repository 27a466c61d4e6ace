#!lua flags=allow-oom
-- permit_limit: changes the limit of a bare semaphore; raised, it admits exactly the newly admissible, at once.
-- KEYS  1 prefix
-- ARGV  1 nonce, 2 limit (0..1000000), 3 by
-- Returns  {limit, limit before, more (0|1)} | {out_of_bounds}
-- Events   none
-- include: permits
NONCE = ARGV[1]
local limit = tonumber(ARGV[2])
if not limit or limit ~= math.floor(limit) or limit < 0 or limit > 1000000 then return {'out_of_bounds'} end
advance_clock()
local before = LIMIT
LIMIT = limit
call('HSET', P .. 'config', 'max_concurrent', int(limit), 'changed_at', int(WALL), 'changed_by', ARGV[3])
reap_permits()
local _, more = admit(100)
return {'limit', int(before), more and 1 or 0}
