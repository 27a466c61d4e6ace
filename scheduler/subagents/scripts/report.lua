#!lua flags=allow-oom
-- report: the account of an interrupt as it stands now.
-- KEYS  1 prefix
-- ARGV  1 interrupt id, 2 client to be told when it is complete, or '', 3 cursor ('0' = from the beginning)
-- Returns  {report, wall, now, lease, complete (0|1), {scope, cutoff, queued_stopped, at, reason, by, completed_at, swept}, {agent, worker|ended_at ...},
--           {agent still in, lease end or '', worker's lease end or '', ...}, cursor of the next agents ('0' = that is all)} | {unknown}
-- Events   none
-- include: agents
local LEFT_TOLD, PAGE = 1000, 2000
local key = P .. 'interrupt:' .. ARGV[1]
local facts = call('HMGET', key, 'scope', 'cutoff', 'queued_stopped', 'at', 'reason', 'by', 'completed_at', 'swept', 'watchers')
if not facts[1] then return {'unknown'} end
advance_clock()
local complete = facts[8] == '1' and call('EXISTS', key .. ':left') == 0
if ARGV[2] ~= '' and not complete then
  local watchers = facts[9] or ''
  if not string.find(',' .. watchers .. ',', ',' .. ARGV[2] .. ',', 1, true) then
    call('HSET', key, 'watchers', watchers == '' and ARGV[2] or (watchers .. ',' .. ARGV[2]))
  end
end
local left = {}
for _, id in ipairs(call('ZRANGE', key .. ':left', 0, LEFT_TOLD - 1)) do
  local worker = call('HGET', P .. 'agent:' .. id, 'worker') or ''
  left[#left + 1] = id
  left[#left + 1] = call('ZSCORE', P .. 'active', id) or call('ZSCORE', P .. 'waiting', id) or call('ZSCORE', P .. 'bypass', id) or ''
  left[#left + 1] = call('ZSCORE', P .. 'workers', worker) or ''
end
for i = 1, 9 do facts[i] = facts[i] or '' end
local page = call('HSCAN', key .. ':agents', ARGV[3], 'COUNT', PAGE)
return {'report', int(WALL), int(NOW), int(LEASE), complete and 1 or 0, facts, page[2], left, page[1]}
