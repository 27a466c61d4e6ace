-- An agent's record, read as a table of the fields that transitions decide on. Absent fields are nil.
local FIELDS = {'status', 'seq', 'type', 'scopes', 'ancestors', 'survive', 'bypass', 'token', 'worker', 'attempt', 'retries',
  'stop_requested_at', 'interrupts', 'watchers', 'key', 'admitted_at', 'returning', 'dispatches', 'outcome', 'depth', 'run'}
local TERMINAL = {completed = true, steered = true, aborted = true, stopped = true, error = true}
local ON_WORKER = {running = true, waiting = true, stopping = true}

local function read(id)
  local values = call('HMGET', P .. 'agent:' .. id, unpack(FIELDS))
  if not values[1] then return nil end
  local record = {id = id}
  for i, field in ipairs(FIELDS) do record[field] = values[i] or nil end
  record.number = tonumber(record.seq)
  return record
end

-- Admitted, on its way to a worker: it holds a permit (or a bypass place) and reads `queued`.
local function admitted(record) return record.status == 'queued' and record.token ~= nil end
