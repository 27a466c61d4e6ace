-- A record as people see it: an agent that an interrupt hit reads `stopped` (or `stopping`) at once, before the sweep has come to it.
local function position_of(record)
  local ahead = 0
  for _, lane in ipairs(call('ZRANGE', P .. 'lanes', 0, -1)) do
    if lane ~= '@' then ahead = ahead + call('ZCOUNT', P .. 'pending:' .. lane, '-inf', '(' .. record.seq) end
  end
  return ahead + 1
end

local function seen_status(record)
  if TERMINAL[record.status] or record.status == 'stopping' or not hit(record) then return record.status end
  return ON_WORKER[record.status] and 'stopping' or 'stopped'
end

local function add(view, ...)
  for _, value in ipairs({...}) do view[#view + 1] = value end
end

-- {field, value, ...}: the stored fields, then those that are derived; a later value of a field stands.
local function view_of(record)
  local view = call('HGETALL', P .. 'agent:' .. record.id)
  local status = seen_status(record)
  add(view, 'id', record.id)
  if status ~= record.status then
    local reason, by = interrupt_cause(record)
    add(view, 'status', status, 'stop_reason', reason, 'stopped_by', by)
    if status == 'stopped' then add(view, 'ended_at', int(WALL)) end
  end
  if status == 'queued' and not record.token then
    if record.bypass == '1' then
      add(view, 'waiting_reason', 'held')
    elseif lane_index(lane_of(record)) == 'unserved' then
      add(view, 'waiting_reason', 'no_worker')
    else
      local reason = 'permit'
      if HALTED then reason = 'halted' elseif PAUSED then reason = 'paused' elseif LIMIT == 0 then reason = 'limit' end
      add(view, 'waiting_reason', reason, 'queue_position', int(position_of(record)))
    end
  elseif status == 'queued' then
    add(view, 'waiting_reason', 'worker')
  end
  local result = call('GET', P .. 'result:' .. record.id)
  if result then add(view, 'result', result) end
  return view, #(result or '')
end
