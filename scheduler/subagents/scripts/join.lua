#!lua flags=allow-oom
-- join: a worker says that it is there and what it runs; agents that waited for one of its types re-enter the queue at their own places.
-- KEYS  1 prefix
-- ARGV  1 nonce, 2 worker, 3 facts (JSON: host, pid, slots, version), then pairs: type, description of the type (JSON)
-- Returns  {joined, now, lease, version of the settings}
-- Events   admitted
-- include: agents
NONCE = ARGV[1]
local worker, types = ARGV[2], {}
advance_clock()
for at = 4, #ARGV, 2 do
  types[#types + 1] = ARGV[at]
  call('HSET', P .. 'types', ARGV[at], ARGV[at + 1])
  call('SADD', P .. 'serving:' .. ARGV[at], worker)
  serve_lanes(ARGV[at], 'unserved', 'lanes')
end
call('HSET', P .. 'worker:' .. worker, 'facts', ARGV[3], 'types', table.concat(types, ','), 'joined_at', int(WALL), 'seen_at', int(WALL),
  'running', 0)
call('PEXPIRE', P .. 'worker:' .. worker, int(LEASE * 20))
call('ZADD', P .. 'workers', int(NOW + LEASE), worker)
admit(100)
publish_told()
return {'joined', int(NOW), int(LEASE), setting[14] or '1'}
