#!lua flags=allow-oom
-- abort: stops one agent and every descendant of it. Not started: `stopped` at once. Running: told to stop; its permit is held until it is out.
-- KEYS  1 prefix
-- ARGV  1 nonce, 2 id, 3 reason, 4 by
-- Returns  {stopped} | {stopping} | {already_terminal, status} | {expired} | {unknown}
-- Events   stopping, stopped, interrupt (for its descendants), admitted
-- include: agents
-- include: interrupting
NONCE = ARGV[1]
local id, reason, by = ARGV[2], ARGV[3], ARGV[4]
local record = read(id)
if not record then return {call('EXISTS', P .. 'gone:' .. id) == 1 and 'expired' or 'unknown'} end
if TERMINAL[record.status] then -- perhaps by this very call, whose answer was lost
  if call('HGET', P .. 'agent:' .. id, 'abort') == NONCE then return {'stopped'} end
  return {'already_terminal', record.status}
end
advance_clock()
if call('EXISTS', P .. 'scope:@' .. id) == 1 and call('EXISTS', P .. 'interrupt:' .. NONCE) == 0 then raise_cutoff(NONCE, '@' .. id, true, false, reason, by) end
call('HSET', P .. 'agent:' .. id, 'abort', NONCE)
if record.status == 'queued' then
  if hit(record) then
    settle_interrupted(record)
  else
    settle(record, 'stopped', {'stop_reason', reason, 'stopped_by', by, 'stop_requested_at', int(WALL)})
  end
  admit(32)
  publish_told()
  return {'stopped'}
end
mark_stopping(record, reason, by)
call('PUBLISH', P .. 'control', 'abort ' .. id)
return {'stopping'}
