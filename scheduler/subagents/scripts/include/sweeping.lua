-- Making an interrupt's effect visible in the records: it walks the interrupted scope from the lowest seq up to the cutoff, each agent
-- exactly once (the cursor is part of the interrupt), settles those that have not started and marks those that run.
local function finish_sweep(id, scope)
  call('HSET', P .. 'interrupt:' .. id, 'swept', '1')
  call('ZREM', P .. 'interrupts', id)
  local others = {}
  for other in each(call('HGET', P .. 'sweeping', scope) or '') do
    if other ~= id then others[#others + 1] = other end
  end
  if #others == 0 then call('HDEL', P .. 'sweeping', scope) else call('HSET', P .. 'sweeping', scope, table.concat(others, ',')) end
  close_interrupt(id)
end

-- Lanes that an interrupt of everyone has set aside hold nothing but names; they go in portions.
local function clear_aside(budget)
  local aside = call('SRANDMEMBER', P .. 'aside')
  if not aside then return end
  call('ZREMRANGEBYRANK', P .. aside, 0, budget - 1)
  if call('EXISTS', P .. aside) == 0 then call('SREM', P .. 'aside', aside) end
end

-- Returns how many agents it looked at and whether there are more.
local function sweep(id, budget)
  clear_aside(2 * budget)
  local key = P .. 'interrupt:' .. id
  local state = call('HMGET', key, 'scope', 'cutoff', 'cursor', 'swept', 'reason', 'by', 'forced')
  if not state[1] or state[4] == '1' then
    call('ZREM', P .. 'interrupts', id)
    return 0, false
  end
  local scope, at = state[1], state[2]
  local found = call('ZRANGEBYSCORE', P .. 'scope:' .. scope, '(' .. state[3], at, 'WITHSCORES', 'LIMIT', 0, budget)
  for i = 1, #found, 2 do
    local record = read(found[i])
    if not record or TERMINAL[record.status] then
      call('ZREM', P .. 'scope:' .. scope, found[i])
    elseif not aims_at(record, state[7]) then
      call('HINCRBY', key, 'queued_stopped', -1)
    elseif ON_WORKER[record.status] then
      mark_stopping(record, state[5], state[6])
    else
      settle_interrupted(record)
    end
  end
  local looked = #found / 2
  if looked > 0 then call('HSET', key, 'cursor', found[#found]) end
  if looked < budget then
    finish_sweep(id, scope)
    return looked, false
  end
  return looked, true
end

local function sweep_open(budget)
  clear_aside(2 * budget)
  for _, id in ipairs(call('ZRANGE', P .. 'interrupts', 0, 3)) do
    local looked, more = sweep(id, budget)
    if more then return true end
    budget = math.max(1, budget - looked)
  end
  return call('EXISTS', P .. 'interrupts') == 1
end
