#!lua flags=allow-oom
-- leave: a worker takes nothing new (draining), or is gone for good, with nothing left running.
-- KEYS  1 prefix
-- ARGV  1 nonce, 2 worker, 3 gone (1|0)
-- Returns  {left}
-- Events   redispatched, admitted
-- include: agents
-- include: losing
NONCE = ARGV[1]
advance_clock()
stop_serving(ARGV[2], 100)
if ARGV[3] == '1' then
  call('DEL', P .. 'worker:' .. ARGV[2], P .. 'claim:' .. ARGV[2])
  call('ZREM', P .. 'workers', ARGV[2])
end
admit(100)
admit_bypass(100)
publish_told()
return {'left'}
