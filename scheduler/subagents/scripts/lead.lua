#!lua flags=allow-oom
-- lead: takes, renews or gives up the lead among schedulers. The lead saves work; correctness never depends on it.
-- KEYS  1 prefix
-- ARGV  1 scheduler, 2 lease ms (0 = give it up)
-- Returns  {leading} | {following, leader ('' = nobody)}
-- Events   none
local P, call = KEYS[1], redis.call
local leader = call('GET', P .. 'leader')
if leader and leader ~= ARGV[1] then return {'following', leader} end
if ARGV[2] == '0' then
  call('DEL', P .. 'leader')
  return {'following', ''}
end
call('SET', P .. 'leader', ARGV[1], 'PX', ARGV[2])
return {'leading'}
