#!lua
-- spawn: takes in agents, in order: record, queue place, event, and at once a permit and a job for those that may run.
-- KEYS  1 prefix
-- ARGV  1 nonce, 2 parent id or '', 3 parent token or '', then 11 for each agent:
--       id, type, input, scopes (csv), key, fingerprint, description, timeout ms, stall_timeout ms, retries, policy (o|s, b = bypass: ob|sb)
-- Returns  {spawned, {code, id} for each agent}; codes: new, duplicate
--          refused as a whole, nothing is spawned: {queue_full, bound} | {halted} | {parent_stopped, parent} | {too_deep, max_depth, path}
--          | {unknown_type, type, known types (csv)} | {key_conflict, key, holder} | {bypass_refused, max_bypass}
-- Events   created, admitted
-- include: agents
local WIDTH, FIRST = 11, 4
NONCE = ARGV[1]
local parent_id, parent_token = ARGV[2], ARGV[3]
advance_clock()
if HALTED then return {'halted'} end
local count = (#ARGV - FIRST + 1) / WIDTH
if call('ZCARD', P .. 'scope:*') + count > tonumber(setting[13]) then return {'queue_full', setting[13]} end

local inherited = {scopes = '', ancestors = '', survive = '0', depth = 0, root = ''}
if parent_id ~= '' then
  local parent = read(parent_id)
  if not parent or not ON_WORKER[parent.status] or parent.status == 'stopping' or parent.token ~= parent_token or hit(parent) then
    return {'parent_stopped', parent_id}
  end
  for ancestor in each(parent.ancestors) do
    local above = read(ancestor)
    if not above or TERMINAL[above.status] or above.status == 'stopping' or hit(above) then return {'parent_stopped', ancestor} end
  end
  local depth = tonumber(parent.depth or nil) or 0
  if depth + 1 > tonumber(setting[12]) then
    return {'too_deep', setting[12], (parent.ancestors and parent.ancestors ~= '') and (parent.ancestors .. ',' .. parent_id) or parent_id}
  end
  inherited.scopes, inherited.survive, inherited.depth = parent.scopes or '', parent.survive or '0', depth + 1
  inherited.ancestors = (parent.ancestors and parent.ancestors ~= '') and (parent.ancestors .. ',' .. parent_id) or parent_id
  inherited.root = call('HGET', P .. 'agent:' .. parent_id, 'root') or parent_id
end

local types_known = call('HLEN', P .. 'types') > 0
local function type_known(type) return not types_known or call('HEXISTS', P .. 'types', type) == 1 end

local function merged(scopes)
  if inherited.scopes == '' then return scopes end
  local known, all = {}, inherited.scopes
  for scope in each(all) do known[scope] = true end
  for scope in each(scopes) do
    if not known[scope] then all = all .. ',' .. scope end
  end
  return all
end

-- The agent that a repeated call means: by its id (a lost reply), or by its key. Its fingerprint, if it is still known, must be the same.
local function holder_of(at)
  if call('EXISTS', P .. 'agent:' .. ARGV[at], P .. 'gone:' .. ARGV[at]) > 0 then return ARGV[at] end
  return ARGV[at + 4] ~= '' and call('GET', P .. 'key:' .. ARGV[at + 4]) or nil
end

local first_with_key = {}
local bypass_places = tonumber(setting[11]) - call('ZCARD', P .. 'bypass')
local function refusal(at)
  local holder = holder_of(at)
  if holder then
    local fingerprint = call('HGET', P .. 'agent:' .. holder, 'fingerprint')
    if fingerprint and fingerprint ~= ARGV[at + 5] then return {'key_conflict', ARGV[at + 4], holder} end
    return nil
  end
  local first = first_with_key[ARGV[at + 4]]
  if first then
    if ARGV[first + 5] ~= ARGV[at + 5] then return {'key_conflict', ARGV[at + 4], ARGV[first]} end
    return nil
  end
  if ARGV[at + 4] ~= '' then first_with_key[ARGV[at + 4]] = at end
  if not type_known(ARGV[at + 1]) then return {'unknown_type', ARGV[at + 1], table.concat(call('HKEYS', P .. 'types'), ',')} end
  if string.sub(ARGV[at + 10], 2) == 'b' then
    bypass_places = bypass_places - 1
    if bypass_places < 0 then return {'bypass_refused', setting[11]} end
  end
  return nil
end

local function spawn(at)
  local holder = holder_of(at)
  if holder then return {'duplicate', holder} end
  local id, type, input, key, fingerprint, policy = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 4], ARGV[at + 5], ARGV[at + 10]
  local record_key, bypass = P .. 'agent:' .. id, string.sub(policy, 2) == 'b'
  local seq = int(call('INCR', P .. 'seq'))
  local scopes = merged(ARGV[at + 3])
  local survive = (inherited.survive == '1' or string.sub(policy, 1, 1) == 's') and '1' or '0'
  local record = {id = id, seq = seq, number = tonumber(seq), type = type, scopes = scopes, ancestors = inherited.ancestors, survive = survive}
  call('HSET', record_key, 'status', 'queued', 'seq', seq, 'type', type, 'scopes', scopes, 'survive', survive, 'fingerprint', fingerprint,
    'enqueued_at', int(WALL), 'attempt', '0', 'run', '1', 'retries', ARGV[at + 9], 'depth', inherited.depth)
  if ARGV[at + 6] ~= '' then call('HSET', record_key, 'description', ARGV[at + 6]) end
  if ARGV[at + 7] ~= '' then call('HSET', record_key, 'timeout', ARGV[at + 7]) end
  if ARGV[at + 8] ~= '' then call('HSET', record_key, 'stall_timeout', ARGV[at + 8]) end
  if key ~= '' then call('HSET', record_key, 'key', key); call('SET', P .. 'key:' .. key, id) end
  if bypass then call('HSET', record_key, 'bypass', '1') end
  if parent_id ~= '' then
    call('HSET', record_key, 'parent', parent_id, 'root', inherited.root, 'ancestors', inherited.ancestors)
    call('ZADD', P .. 'index:tree:' .. inherited.root, seq, id, call('HGET', P .. 'agent:' .. inherited.root, 'seq') or '0', inherited.root)
    call('PERSIST', P .. 'index:tree:' .. inherited.root)
  end
  call('SET', P .. 'input:' .. id, input)
  for _, scope in ipairs(all_scopes(record)) do call('ZADD', P .. 'scope:' .. scope, seq, id) end
  for scope in each(scopes) do
    call('ZADD', P .. 'index:scope:' .. scope, seq, id)
    call('PERSIST', P .. 'index:scope:' .. scope)
  end
  call('ZADD', P .. 'index:all', seq, id)
  call('ZADD', P .. 'index:type:' .. type, seq, id)
  event('created', id, seq, 'type', type, 'bypass', bypass and '1' or '0', 'parent', parent_id)
  if bypass then
    call('ZADD', P .. 'bypass', '+inf', id)
    call('ZADD', P .. 'bypass:held', seq, id)
  else
    enqueue(lane_of(record), id, seq)
  end
  return {'new', id}
end

for at = FIRST, #ARGV, WIDTH do
  local refused = refusal(at)
  if refused then return refused end
end
local replies = {}
for at = FIRST, #ARGV, WIDTH do replies[#replies + 1] = spawn(at) end
admit(count + 32)
admit_bypass(count)
publish_told()
return {'spawned', replies}
