-- Bypass runs skip the queue within their own small bound. Pause, halt and limit 0 hold those that have not been dispatched yet.
local function admit_bypass(budget)
  if PAUSED or HALTED or LIMIT == 0 then return end
  for _ = 1, budget do
    local id = call('ZRANGE', P .. 'bypass:held', 0, 0)[1]
    if not id then return end
    call('ZREM', P .. 'bypass:held', id)
    local record = read(id)
    if record and record.status == 'queued' and not record.token then
      if hit(record) then settle_interrupted(record) else place(record, 'bypass') end
    end
  end
end
