-- The work that keeps a pool moving whoever is away: leases that ran out, sweeps that are open, permits that are free, and wake-ups
-- that were lost. Done by schedulers on every tick and, in small portions, by every worker's heartbeat.
-- include: losing
-- include: sweeping
local function wake_waiting_work()
  for _, type in ipairs(call('HKEYS', P .. 'types')) do
    if call('EXISTS', arq_queue(type)) == 1 and call('EXISTS', P .. 'wake:' .. type) == 0 then wake(type) end
  end
end

-- Returns whether a budget was used up, so that there may be more to do.
local function keep_house(budget)
  local reaped = reap(budget)
  local unswept = sweep_open(budget)
  local _, admissible = admit(budget)
  admit_bypass(budget)
  wake_waiting_work()
  return reaped >= budget or unswept or admissible
end
