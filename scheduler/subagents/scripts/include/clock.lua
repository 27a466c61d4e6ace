-- Pool time: Redis' own clock, made safe for leases. It never runs backwards and never jumps more than `max_step`, so a clock
-- change, an outage or a failover to a host with another clock cannot expire a fleet of leases at once.
--
-- NOW   pool time in ms, for every deadline.    WALL  the time of day in ms, never decreasing, for people.
-- Reads the collections that transitions write, so that a key of a wrong type fails the call before its first write.
local NOW, WALL
local function advance_clock()
  local raw
  if setting[7] then
    raw = tonumber(setting[7])
  else
    local time = call('TIME')
    raw = time[1] * 1000 + math.floor(time[2] / 1000)
  end
  local clock = call('HMGET', P .. 'clock', 'raw', 'now', 'wall')
  call('ZCARD', P .. 'lanes'); call('ZCARD', P .. 'active'); call('ZCARD', P .. 'waiting'); call('ZCARD', P .. 'bypass')
  call('ZCARD', P .. 'unserved'); call('ZCARD', P .. 'settled'); call('ZCARD', P .. 'scope:*'); call('XLEN', P .. 'events')
  local last, now, wall = tonumber(clock[1]) or raw, tonumber(clock[2]) or 0, tonumber(clock[3]) or 0
  local step = math.min(math.max(raw - last, 0), MAX_STEP)
  NOW, WALL = now + step, math.max(wall, raw)
  call('HSET', P .. 'clock', 'raw', int(raw), 'now', int(NOW), 'wall', int(WALL))
end
