#!lua
-- create: makes the pool if it does not exist yet; settings of an existing pool stand as they are.
-- KEYS  1 prefix
-- ARGV  1 by, then pairs: setting, value
-- Returns  {created} | {exists, schema}
-- Events   none
local P, call = KEYS[1], redis.call
local schema = call('HGET', P .. 'config', 'schema')
if schema then return {'exists', schema} end
local time = call('TIME')
local at = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
call('HSET', P .. 'config', 'schema', '1', 'paused', '0', 'halted', '0', 'version', '1', 'changed_at', at, 'changed_by', ARGV[1],
  unpack(ARGV, 2))
return {'created'}
