#!lua flags=allow-oom
-- finish: the ends of runs, as their workers report them: settles each, gives its permit back, and admits the next.
-- A stop request or a cutoff beats every outcome (the result is kept, the status is `stopped`).
-- KEYS  1 prefix
-- ARGV  1 nonce, 2 keep result (1|0), then 6 for each agent: id, token, outcome, error kind, error, result ('' = none)
--       outcomes: completed, steered, aborted, error, stopped, handed_back (to its own place, if an attempt is left)
-- Returns  {finished, {code, status} for each agent}; codes: settled (also for a repeated call), queued, stale, unknown
-- Events   adopted, completed, steered, aborted, error, stopped, redispatched, admitted
-- include: agents
-- include: losing
-- include: adopting
NONCE = ARGV[1]
advance_clock()

local function finish(id, token, outcome, error_kind, error, result)
  local record = read(id)
  if not record then return {'unknown', ''} end
  if record.token ~= token then return {'stale', record.status} end
  if TERMINAL[record.status] then
    return {record.outcome == outcome and 'settled' or 'stale', record.status}
  end
  if record.status == 'queued' then adopt(record) end
  local facts = {'outcome', outcome}
  if error_kind ~= '' then facts = {'outcome', outcome, 'error_kind', error_kind, 'error', error} end
  result = result ~= '' and result or nil
  if outcome == 'stopped' or record.status == 'stopping' or hit(record) then
    mark_stopping(record, interrupt_cause(record))
    settle(record, 'stopped', facts, result)
  elseif outcome == 'handed_back' and may_run_again(record) then
    requeue(record)
    event('redispatched', id, record.seq, 'reason', 'handed_back')
    return {'queued', 'queued'}
  elseif outcome == 'handed_back' then
    settle(record, 'error', {'outcome', outcome, 'error_kind', 'shutdown', 'error', error}, result)
  else
    if record.status == 'waiting' and outcome ~= 'error' then -- only a server that lost the return of its permit has it so
      event('adopted', id, record.seq, 'worker', record.worker or '')
    end
    settle(record, outcome, facts, result)
  end
  return {'settled', record.status}
end

local replies = {}
for at = 3, #ARGV, 6 do
  replies[#replies + 1] = finish(ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], ARGV[at + 5])
end
admit(#replies + 32)
admit_bypass(#replies)
publish_told()
return {'finished', replies}
