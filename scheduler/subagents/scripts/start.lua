#!lua flags=allow-oom
-- start: starts one agent whose job was delivered by a stock arq worker.
-- KEYS  1 prefix
-- ARGV  1 nonce, 2 id, 3 token, 4 worker
-- Returns  {started, now, lease, spec} | {stopped} | {halted} | {stale, status} | {unknown}
-- Events   started, stopped, redispatched, admitted
-- include: agents
-- include: starting
NONCE = ARGV[1]
advance_clock()
local code, started = start(ARGV[2], ARGV[3], ARGV[4])
if code ~= 'started' then
  admit(32)
  publish_told()
  return {code, started}
end
return {'started', int(NOW), int(LEASE), started}
