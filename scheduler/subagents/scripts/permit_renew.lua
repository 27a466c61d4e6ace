#!lua flags=allow-oom
-- permit_renew: keeps a held permit, or a place in line, for another lease. A late holder is refused by its token.
-- KEYS  1 prefix
-- ARGV  1 nonce, 2 id, 3 token ('' = still waiting, or granted meanwhile)
-- Returns  {held, token, lease} | {waiting, position, clears} | {stale} | {gone, clears}
-- Events   none
-- include: permits
NONCE = ARGV[1]
advance_clock()
extend(ARGV[2], ARGV[3])
reap_permits()
admit(100)
return extended(ARGV[2], ARGV[3])
