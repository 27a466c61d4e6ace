#!lua flags=allow-oom
-- permit_clear: turns away everyone who waits, touches nobody who holds a permit; the semaphore is usable at once.
-- KEYS  1 prefix
-- ARGV  1 nonce, 2 budget
-- Returns  {cleared, how many, more (0|1)}
-- Events   none
-- include: permits
NONCE = ARGV[1]
advance_clock()
local gone = call('ZRANGE', P .. 'pending:' .. LANE, 0, tonumber(ARGV[2]) - 1)
if gone[1] then call('HINCRBY', P .. 'config', 'clears', 1) end
for _, id in ipairs(gone) do
  withdraw_waiter(id)
  call('PUBLISH', P .. 'permits', 'cleared ' .. id)
end
return {'cleared', #gone, call('EXISTS', P .. 'pending:' .. LANE)}
