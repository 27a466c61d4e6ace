-- Raising a cutoff: O(1) however many agents it hits. Durable first, then the broadcast; the sweep makes the records follow.
--
-- For `*` the ordinary lanes are set aside whole, by their names alone, so the next spawn never waits behind the dead; the agents
-- themselves stay listed in their scope, from which the sweep settles them. What was set aside is cleared in portions: freeing a
-- long queue at once would hold up the calls that follow, also where the server frees it in a thread of its own.
local INTERRUPT_KEPT_MS = '86400000'

local function set_lanes_aside(id, forced)
  for _, index in ipairs({'lanes', 'unserved'}) do
    for _, lane in ipairs(call('ZRANGE', P .. index, 0, -1)) do
      if lane ~= '@' and (forced or string.sub(lane, 1, 2) == 'o:') then
        local aside = 'aside:' .. id .. ':' .. lane
        if call('EXISTS', P .. 'pending:' .. lane) == 1 then
          call('RENAME', P .. 'pending:' .. lane, P .. aside)
          call('SADD', P .. 'aside', aside)
        end
        call('ZREM', P .. index, lane)
      end
    end
  end
end

local function raise_cutoff(id, scope, forced, kill, reason, by)
  local at = tonumber(call('GET', P .. 'seq') or nil) or 0
  local hash = forced and 'cutoff:forced' or 'cutoff'
  local key = P .. 'interrupt:' .. id
  at = math.max(at, tonumber(call('HGET', P .. hash, scope) or nil) or 0)
  call('HSET', P .. hash, scope, int(at))
  cutoff_cache = {}
  call('HSET', P .. 'cutoff:cause', scope .. '|reason', reason, scope .. '|by', by)
  call('HSET', key, 'scope', scope, 'cutoff', int(at), 'forced', forced and '1' or '0', 'kill', kill and '1' or '0', 'reason', reason,
    'by', by, 'at', int(WALL), 'cursor', '0', 'swept', '0', 'queued_stopped', call('ZCOUNT', P .. 'scope:' .. scope, '-inf', int(at)))
  call('PEXPIRE', key, INTERRUPT_KEPT_MS)
  call('ZADD', P .. 'interrupts', int(WALL), id)
  local sweeping = call('HGET', P .. 'sweeping', scope)
  call('HSET', P .. 'sweeping', scope, sweeping and (sweeping .. ',' .. id) or id)
  if scope == '*' then set_lanes_aside(id, forced) end
  event('interrupt', id, int(at), 'scope', scope, 'forced', forced and '1' or '0', 'reason', reason, 'by', by)
  call('PUBLISH', P .. 'control', 'interrupt ' .. int(at) .. ' ' .. (forced and '1' or '0') .. ' ' .. (kill and '1' or '0') .. ' ' .. id .. ' ' .. scope)
  return at
end
