-- The end of a run. Every path to a terminal status goes through `settle`, exactly once per run: permit back, indexes, history,
-- retention, and word to everyone who waits. `mark_stopping` is the one way into `stopping`.
local KEEP_SETTLED, KEEP_TOMBSTONE = setting[9] or '43200000', setting[10] or '604800000'

-- Waiters are told once per script and client, whatever number of agents a batch settles.
local told = {}
local function tell_watchers(record)
  for watcher in each(record.watchers) do
    told[watcher] = told[watcher] and (told[watcher] .. ',' .. record.id) or record.id
  end
end
local function publish_told()
  for watcher, ids in pairs(told) do call('PUBLISH', P .. 'client:' .. watcher, ids) end
end

local function leave_permit(record)
  call('ZREM', P .. 'active', record.id)
  if record.status == 'waiting' or record.status == 'stopping' then call('ZREM', P .. 'waiting', record.id) end
  if record.returning then withdraw('@', record.id) end
  if record.bypass == '1' then call('ZREM', P .. 'bypass', record.id); call('ZREM', P .. 'bypass:held', record.id) end
  if ON_WORKER[record.status] then call('ZREM', P .. 'started', record.id) end
  if record.worker then call('SREM', P .. 'held:' .. record.worker, record.id) end
end

-- The interrupts whose sweep has not yet passed this agent and that hit it; with those already on its record they must account for it.
local function join_interrupts(record)
  local known = {}
  for id in each(record.interrupts) do known[id] = true end
  for _, scope in ipairs(all_scopes(record)) do
    if cut_off(record.number, record.survive, scope) then
      for id in each(call('HGET', P .. 'sweeping', scope) or '') do
        local state = call('HMGET', P .. 'interrupt:' .. id, 'cutoff', 'forced')
        if not known[id] and record.number <= (tonumber(state[1] or nil) or 0) and aims_at(record, state[2]) then
          known[id] = true
          record.interrupts = record.interrupts and (record.interrupts .. ',' .. id) or id
          call('HSET', P .. 'interrupt:' .. id .. ':agents', record.id, (record.worker or '') .. '|')
          call('ZADD', P .. 'interrupt:' .. id .. ':left', record.seq, record.id)
          call('HINCRBY', P .. 'interrupt:' .. id, 'queued_stopped', -1)
          call('PEXPIRE', P .. 'interrupt:' .. id .. ':agents', '86400000')
          call('PEXPIRE', P .. 'interrupt:' .. id .. ':left', '86400000')
        end
      end
    end
  end
end

-- An interrupt counts everyone up to its cutoff as queued and stopped, before its sweep has looked at them. Who leaves before it comes
-- counts for the oldest interrupt that means it, and for no other: survivors for none, and whom several hit only once.
local function leave_sweeps(record)
  local known, oldest, since = {}, nil, nil
  for id in each(record.interrupts) do known[id] = true end
  for _, scope in ipairs(all_scopes(record)) do
    for id in each(call('HGET', P .. 'sweeping', scope) or '') do
      local state = call('HMGET', P .. 'interrupt:' .. id, 'cutoff', 'forced', 'cursor', 'at')
      local cutoff, cursor, at = tonumber(state[1] or nil) or 0, tonumber(state[3] or nil) or 0, tonumber(state[4] or nil) or 0
      if not known[id] and record.number <= cutoff and record.number > cursor then
        call('HINCRBY', P .. 'interrupt:' .. id, 'queued_stopped', -1)
        if aims_at(record, state[2]) and (not oldest or at < since or (at == since and id < oldest)) then oldest, since = id, at end
      end
    end
  end
  if oldest then call('HINCRBY', P .. 'interrupt:' .. oldest, 'queued_stopped', 1) end
end

-- The cutoffs of a scope that no unsettled agent carries say nothing any more: dropped, so that scopes do not pile up. As long as
-- someone carries it they stand, also when one interrupt of several is through.
local function forget_cutoff(scope)
  if scope ~= '*' and call('EXISTS', P .. 'scope:' .. scope) == 0 then
    call('HDEL', P .. 'cutoff', scope)
    call('HDEL', P .. 'cutoff:forced', scope)
    call('HDEL', P .. 'cutoff:cause', scope .. '|reason', scope .. '|by')
  end
end

-- An interrupt is complete when its sweep is through and every agent it found running is out.
local function close_interrupt(id)
  local key = P .. 'interrupt:' .. id
  local state = call('HMGET', key, 'swept', 'watchers', 'scope')
  if state[1] == '1' and call('EXISTS', key .. ':left') == 0 then
    call('HSETNX', key, 'completed_at', int(WALL))
    forget_cutoff(state[3])
    tell_watchers({id = id, watchers = state[2] or nil})
  end
end

local function leave_interrupts(record)
  for id in each(record.interrupts) do
    local key = P .. 'interrupt:' .. id
    call('HSET', key .. ':agents', record.id, (record.worker or '') .. '|' .. int(WALL))
    call('ZREM', key .. ':left', record.id)
    close_interrupt(id)
  end
end

local function mark_stopping(record, reason, by)
  if record.status ~= 'stopping' then
    if record.returning then withdraw('@', record.id); call('HDEL', P .. 'agent:' .. record.id, 'returning'); record.returning = nil end
    record.status, record.stop_requested_at = 'stopping', int(WALL)
    call('HSET', P .. 'agent:' .. record.id, 'status', 'stopping', 'stop_requested_at', int(WALL),
      'stop_reason', reason or '', 'stopped_by', by or '')
    call('ZADD', P .. 'stopping', int(WALL), record.id)
    event('stopping', record.id, record.seq, 'reason', reason or '', 'by', by or '')
  end
  join_interrupts(record)
  if record.interrupts then call('HSET', P .. 'agent:' .. record.id, 'interrupts', record.interrupts) end
end

local function leave_scopes(record)
  for _, scope in ipairs(all_scopes(record)) do
    call('ZREM', P .. 'scope:' .. scope, record.id)
    if call('EXISTS', P .. 'scope:' .. scope) == 0 then
      call('PUBLISH', P .. 'idle', scope)
      if scope ~= '*' then call('PEXPIRE', P .. 'index:scope:' .. scope, KEEP_SETTLED * 2) end
      forget_cutoff(scope)
    end
  end
end

-- `facts` is a flat list of further fields to write (error, error_kind, outcome, ...); `result` is the JSON text or nil.
local function settle(record, status, facts, result)
  local id, key = record.id, P .. 'agent:' .. record.id
  if status == 'stopped' or record.survive == '1' then leave_sweeps(record) end
  if admitted(record) then undispatch(id, record.token, record.type) end
  if record.status == 'queued' and not record.token and record.bypass ~= '1' then withdraw(lane_of(record), id) end
  leave_permit(record)
  call('HSET', key, 'status', status, 'ended_at', int(WALL), unpack(facts or {}))
  call('HDEL', key, 'watchers', 'returning')
  if result then call('SET', P .. 'result:' .. id, result, 'PX', KEEP_SETTLED) end
  call('PEXPIRE', key, KEEP_SETTLED)
  call('PEXPIRE', P .. 'input:' .. id, KEEP_SETTLED)
  local root = each(record.ancestors)()
  call('SET', P .. 'gone:' .. id, table.concat({status, record.type, root or id, record.scopes or ''}, '|'), 'PX', KEEP_TOMBSTONE)
  if record.key then call('PEXPIRE', P .. 'key:' .. record.key, KEEP_TOMBSTONE) end
  call('ZADD', P .. 'settled', int(WALL + KEEP_SETTLED), id)
  call('ZADD', P .. 'index:status:' .. status, record.seq, id)
  if record.stop_requested_at then call('ZREM', P .. 'stopping', id) end
  leave_scopes(record)
  if root then call('PEXPIRE', P .. 'index:tree:' .. root, KEEP_SETTLED * 2) end
  event(status, id, record.seq, 'run', record.run or '1')
  if call('EXISTS', P .. 'events:' .. id) == 1 then
    call('XADD', P .. 'events:' .. id, '*', 'kind', status, 'data', '{}')
    call('PEXPIRE', P .. 'events:' .. id, KEEP_SETTLED)
  end
  if record.interrupts then leave_interrupts(record) end
  tell_watchers(record)
  record.status = status
end

-- Why an agent that a cutoff hit was stopped: the reason and author of the newest interrupt of the scope that hit it.
local function interrupt_cause(record)
  for _, scope in ipairs(all_scopes(record)) do
    if cut_off(record.number, record.survive, scope) then
      local cause = call('HMGET', P .. 'cutoff:cause', scope .. '|reason', scope .. '|by')
      return cause[1] or '', cause[2] or ''
    end
  end
  return '', ''
end

local function settle_interrupted(record)
  local reason, by = interrupt_cause(record)
  settle(record, 'stopped', {'stop_reason', reason, 'stopped_by', by, 'stop_requested_at', record.stop_requested_at or int(WALL)})
end
