#!lua flags=allow-oom
-- permit_release: gives a permit back, or leaves the line; the next waiter is admitted in the same step.
-- KEYS  1 prefix
-- ARGV  1 nonce, 2 id, 3 token ('' = leave the line, or give back what was granted meanwhile)
-- Returns  {released} | {stale}
-- Events   none
-- include: permits
NONCE = ARGV[1]
advance_clock()
local id, token = ARGV[2], ARGV[3]
local held = call('HGET', P .. 'tokens', id)
local code = 'released'
if token ~= '' and held ~= token then
  code = 'stale'
elseif held then
  give_back(id)
else
  withdraw_waiter(id)
end
reap_permits()
admit(100)
return {code}
