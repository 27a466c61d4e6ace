-- Admission: the only place where a permit is given out, for agents and for bare semaphores alike. It pops the lowest seq of all
-- lanes while fewer than `max_concurrent` permits are held, and hands each to `grant(id, seq, lane)`, which the including script
-- defines: true if it took the permit, false if the waiter turned out to be dead and was settled instead.
-- At most `budget` waiters are looked at; returns how many got a permit and whether there is more to do.
local function admit(budget)
  if PAUSED or HALTED then return 0, false end
  local held, granted, looked = call('ZCARD', P .. 'active'), 0, 0
  while held < LIMIT do
    local lane = call('ZRANGE', P .. 'lanes', 0, 0)[1]
    if not lane then return granted, false end
    if looked >= budget then return granted, true end
    looked = looked + 1
    local head = call('ZPOPMIN', P .. 'pending:' .. lane)
    refresh_lane('lanes', lane)
    if head[1] and grant(head[1], head[2], lane) then
      held, granted = held + 1, granted + 1
    end
  end
  return granted, false
end
