#!lua flags=allow-oom
-- admit: gives out what permits are free, at most `budget` of them; every other script does so on its way, this one only goes on.
-- KEYS  1 prefix
-- ARGV  1 nonce, 2 budget
-- Returns  {admitted, granted, more (0|1)}
-- Events   admitted, resumed
-- include: agents
NONCE = ARGV[1]
advance_clock()
local granted, more = admit(tonumber(ARGV[2]))
admit_bypass(tonumber(ARGV[2]))
publish_told()
return {'admitted', granted, more and 1 or 0}
