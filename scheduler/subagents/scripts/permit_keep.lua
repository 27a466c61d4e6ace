#!lua flags=allow-oom
-- permit_keep: what permit_renew does, for all that one process holds and waits with, in one step; for nobody, it tells the lease.
-- KEYS  1 prefix
-- ARGV  1 nonce, then pairs: id, token ('' = still waiting, or granted meanwhile); the caller bounds how many
-- Returns  {renewed, lease, one answer for each pair: {held, token, lease} | {waiting, position, clears} | {stale} | {gone, clears}}
-- Events   none
-- include: permits
NONCE = ARGV[1]
advance_clock()
for at = 2, #ARGV, 2 do extend(ARGV[at], ARGV[at + 1]) end
reap_permits()
admit(100)
local answers = {}
for at = 2, #ARGV, 2 do answers[#answers + 1] = extended(ARGV[at], ARGV[at + 1]) end
return {'renewed', int(LEASE), answers}
