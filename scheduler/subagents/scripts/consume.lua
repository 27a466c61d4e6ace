#!lua flags=allow-oom
-- consume: a caller has taken an agent's result; the record and the result are kept a short time from now on.
-- KEYS  1 prefix
-- ARGV  ids
-- Returns  {consumed}
-- Events   none
-- include: agents
advance_clock()
local keep = call('HGET', P .. 'config', 'keep_consumed') or '600000'
for _, id in ipairs(ARGV) do
  local record = read(id)
  if record and TERMINAL[record.status] then
    call('ZADD', P .. 'settled', 'LT', int(WALL + keep), id)
    for _, key in ipairs({'agent:', 'input:', 'result:', 'events:'}) do
      if call('PTTL', P .. key .. id) > tonumber(keep) then call('PEXPIRE', P .. key .. id, keep) end
    end
  end
end
return {'consumed'}
