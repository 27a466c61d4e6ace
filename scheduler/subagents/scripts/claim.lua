#!lua flags=allow-oom
-- claim: a worker takes what it can run, lowest admission number first over all types it serves, and starts it in the same step.
-- It takes its share of the backlog, not all of it, so that work spreads over the workers; what it leaves wakes the next one.
-- KEYS  1 prefix
-- ARGV  1 nonce, 2 worker, 3 free slots, then the types it serves
-- Returns  {claimed, now, lease, {spec of an agent} ...}; the same nonce again returns the same agents under a lease that begins anew:
--          a worker repeats only a claim whose answer it has not seen, so none of them has run yet
-- Events   started, stopped, redispatched, admitted
-- include: agents
-- include: starting
NONCE = ARGV[1]
local worker, free = ARGV[2], tonumber(ARGV[3])
advance_clock()
local reply = {'claimed', int(NOW), int(LEASE)}

local claim_key = P .. 'claim:' .. worker
local last = call('HMGET', claim_key, 'nonce', 'ids')
if last[1] == NONCE then
  call('PEXPIRE', claim_key, int(LEASE * 4))
  for id in each(last[2] or '') do
    local record = read(id)
    if record and record.worker == worker and record.status == 'running' then
      hold(record)
      reply[#reply + 1] = spec(record)
    end
  end
  return reply
end

local heads, backlog, helpers = {}, 0, 1
for i = 4, #ARGV do
  local type = ARGV[i]
  local head = call('ZRANGE', arq_queue(type), 0, 0, 'WITHSCORES')
  if head[1] then
    heads[type] = {job = head[1], number = tonumber(head[2])}
    backlog = backlog + call('ZCARD', arq_queue(type))
    helpers = math.max(helpers, call('SCARD', P .. 'serving:' .. type))
  end
end
local share = math.min(free, math.max(1, math.ceil(backlog / helpers)))

local function lowest()
  local chosen
  for type, head in pairs(heads) do
    if not chosen or head.number < heads[chosen].number then chosen = type end
  end
  return chosen
end

local taken, looked = {}, 0
while #taken < share and looked < share + 32 do
  local type = lowest()
  if not type then break end
  looked = looked + 1
  local job = heads[type].job
  call('ZREM', arq_queue(type), job)
  call('DEL', 'arq:job:' .. job)
  local id, token = string.match(job, ':([^:]+):([^:]+)$')
  local code, started = 'unknown', nil
  if id then code, started = start(id, token, worker) end
  if code == 'started' then
    taken[#taken + 1] = id
    reply[#reply + 1] = started
  end
  local head = call('ZRANGE', arq_queue(type), 0, 0, 'WITHSCORES')
  heads[type] = head[1] and {job = head[1], number = tonumber(head[2])} or nil
end
for type in pairs(heads) do wake(type) end
if #taken > 0 then
  call('HSET', claim_key, 'nonce', NONCE, 'ids', table.concat(taken, ','))
  call('PEXPIRE', claim_key, int(LEASE * 4))
end
if looked > #taken then admit(looked) end
publish_told()
return reply
