-- The carrier: an admitted agent travels to a worker as an ordinary arq job, written here, in the step that gives the permit, so that
-- admission and dispatch cannot part. One arq queue per agent type; the score is the admission number, so order survives clock skew
-- and equal milliseconds. The job carries ids only.
--
-- A wake list holds at most one token: one wake-up wakes one worker, and a worker that leaves work behind pushes the token on.
local NONCE, tokens = nil, 0
local function new_token()
  tokens = tokens + 1
  return NONCE .. '.' .. tokens
end

local function job_of(id, token) return TAG .. ':' .. id .. ':' .. token end
local function arq_queue(type) return 'arq:queue:' .. TAG .. ':' .. type end

local woken = {}
local function wake(type)
  if woken[type] then return end
  woken[type] = true
  call('LPUSH', P .. 'wake:' .. type, '1')
  call('LTRIM', P .. 'wake:' .. type, 0, 0)
end

local JOB_KEPT_MS = '2592000000'
local function dispatch(id, token, type)
  local job, number = job_of(id, token), call('INCR', P .. 'admissions')
  call('SET', 'arq:job:' .. job,
    '{"t":null,"f":"run_agent","a":["' .. id .. '","' .. token .. '"],"k":{},"et":' .. int(WALL) .. '}', 'PX', JOB_KEPT_MS)
  call('ZADD', arq_queue(type), int(number), job)
  wake(type)
  return int(number)
end

-- Takes an agent out of arq's hands: from here on our lease, not arq's, is what redelivers it.
local function undispatch(id, token, type)
  local job = job_of(id, token)
  call('ZREM', arq_queue(type), job)
  call('DEL', 'arq:job:' .. job, 'arq:in-progress:' .. job, 'arq:retry:' .. job)
end
