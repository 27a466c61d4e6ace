-- The queue. One lane per agent type and interrupt policy, each a zset id -> seq; `lanes` holds every lane that may be served with the
-- seq of its head, so the head of the whole queue is the lowest score there and strict FIFO costs O(log n) whatever is queued.
-- A type that no live worker serves moves its lanes to `unserved` with one command: its agents hold no permit and block nobody.
--
-- lane names: `o:<type>` ordinary, `s:<type>` on_interrupt="survive", `@` parents that want their lent permit back.
local function lane_of(record) return (record.survive == '1' and 's:' or 'o:') .. record.type end

local function lane_index(lane)
  if lane == '@' then return 'lanes' end
  return call('EXISTS', P .. 'serving:' .. string.sub(lane, 3)) == 1 and 'lanes' or 'unserved'
end

local function refresh_lane(index, lane)
  local head = call('ZRANGE', P .. 'pending:' .. lane, 0, 0, 'WITHSCORES')
  if head[1] then call('ZADD', P .. index, head[2], lane) else call('ZREM', P .. index, lane) end
end

local function enqueue(lane, id, seq)
  call('ZADD', P .. 'pending:' .. lane, seq, id)
  call('ZADD', P .. lane_index(lane), 'LT', seq, lane)
end

local function withdraw(lane, id)
  if call('ZREM', P .. 'pending:' .. lane, id) == 1 then refresh_lane(lane_index(lane), lane) end
end

local function serve_lanes(type, from, to)
  for _, lane in ipairs({'o:' .. type, 's:' .. type}) do
    call('ZREM', P .. from, lane)
    refresh_lane(to, lane)
  end
end

local function queued_in(index)
  local total = 0
  for _, lane in ipairs(call('ZRANGE', P .. index, 0, -1)) do
    if lane ~= '@' then total = total + call('ZCARD', P .. 'pending:' .. lane) end
  end
  return total
end
