#!lua flags=no-writes
-- prove: tells which right this server user lacks of those that the product needs. The server does not roll a script back, so a right
-- that is missing halfway through would leave half of a change behind: whoever is going to rely on a pool asks first.
-- KEYS  1 prefix
-- ARGV  none
-- Returns  {proven} | {no_right, right}
-- Events   none
local P = KEYS[1]
local ARQ = 'arq:queue:' .. string.match(P, '{.-}') .. ':'
local ON_KEYS = 'BLPOP DEL EXISTS GET HDEL HEXISTS HGET HGETALL HINCRBY HKEYS HLEN HMGET HSCAN HSET HSETNX INCR LPUSH LTRIM PERSIST PEXPIRE PTTL '
  .. 'SADD SCARD SET SRANDMEMBER SREM XADD XLEN XREVRANGE ZADD ZCARD ZCOUNT ZPOPMIN ZRANGE ZRANGEBYSCORE ZRANK ZREM '
  .. 'ZREMRANGEBYRANK ZREVRANGEBYSCORE ZSCORE'
local ON_ARQ = 'DEL EXISTS SET ZADD ZCARD ZRANGE ZREM ZSCORE'
local OF_SERVER = 'PING TIME'
local CHANNELS = {'client:', 'control', 'idle', 'permits'}

local function missing()
  for _, command in ipairs({'EVAL', 'EVALSHA'}) do
    if not redis.acl_check_cmd(command, '', '1', P) then return command .. ' on keys ' .. P .. '*' end
  end
  for command in string.gmatch(OF_SERVER, '%u+') do
    if not redis.acl_check_cmd(command) then return command end
  end
  for command in string.gmatch(ON_KEYS, '%u+') do
    if not redis.acl_check_cmd(command, P) then return command .. ' on keys ' .. P .. '*' end
  end
  if not redis.acl_check_cmd('RENAME', P, P) then return 'RENAME on keys ' .. P .. '*' end
  if not redis.acl_check_cmd('XREAD', 'STREAMS', P, '0') then return 'XREAD on keys ' .. P .. '*' end
  if string.sub(P, 1, 14) ~= 'sa:{semaphore:' then
    for command in string.gmatch(ON_ARQ, '%u+') do
      if not redis.acl_check_cmd(command, ARQ) then return command .. ' on keys ' .. ARQ .. '*' end
    end
  end
  for _, channel in ipairs(CHANNELS) do
    for _, command in ipairs({'PUBLISH', 'SUBSCRIBE'}) do
      if not redis.acl_check_cmd(command, P .. channel) then return command .. ' on channels ' .. P .. '*' end
    end
  end
  return nil
end

local right = missing()
if right then return {'no_right', right} end
return {'proven'}
