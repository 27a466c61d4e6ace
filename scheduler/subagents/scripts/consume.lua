#!lua flags=allow-oom
-- consume: a caller has taken an agent's result; the record and the result are kept a short time from now on.
-- KEYS  1 prefix
-- ARGV  1 keep ms, then ids
-- Returns  {consumed}
-- Events   none
-- include: agents
advance_clock()
for at = 2, #ARGV do
  local id = ARGV[at]
  local record = read(id)
  if record and TERMINAL[record.status] then
    call('ZADD', P .. 'settled', 'LT', int(WALL + ARGV[1]), id)
    for _, key in ipairs({'agent:', 'input:', 'result:', 'events:'}) do
      if call('PTTL', P .. key .. id) > tonumber(ARGV[1]) then call('PEXPIRE', P .. key .. id, ARGV[1]) end
    end
  end
end
return {'consumed'}
