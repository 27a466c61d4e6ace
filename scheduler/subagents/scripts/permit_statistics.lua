#!lua flags=allow-oom
-- permit_statistics: a bare semaphore in numbers, and the place of one id in its line.
-- KEYS  1 prefix
-- ARGV  1 nonce, 2 id or ''
-- Returns  {statistics, limit, held, waiting, oldest wait ms or '', position of the id or ''}
-- Events   none
-- include: permits
NONCE = ARGV[1]
advance_clock()
reap_permits()
admit(100)
local head = call('ZRANGE', P .. 'pending:' .. LANE, 0, 0)[1]
local since = head and tonumber(call('HGET', P .. 'since', head))
local rank = ARGV[2] ~= '' and call('ZRANK', P .. 'pending:' .. LANE, ARGV[2])
return {'statistics', int(LIMIT), call('ZCARD', P .. 'active'), call('ZCARD', P .. 'pending:' .. LANE),
  since and int(math.max(WALL - since, 0)) or '', rank and int(rank + 1) or ''}
