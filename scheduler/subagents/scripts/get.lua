#!lua flags=allow-oom
-- get: records by id, as they stand now; with a client's name, that client is told when an unsettled one settles.
-- KEYS  1 prefix
-- ARGV  1 client to be told, or '', then ids
-- Returns  {records, {record, field, value, ...} | {expired, id} | {unknown, id} ...}
-- Events   none
-- include: agents
-- include: viewing
local WATCHERS_KEPT = 64
advance_clock()

local function watch(record, client)
  local watchers = record.watchers or ''
  if string.find(',' .. watchers .. ',', ',' .. client .. ',', 1, true) then return end
  local _, count = string.gsub(watchers, '[^,]+', '')
  if count >= WATCHERS_KEPT then return end
  call('HSET', P .. 'agent:' .. record.id, 'watchers', watchers == '' and client or (watchers .. ',' .. client))
end

local reply = {'records'}
for at = 2, #ARGV do
  local record = read(ARGV[at])
  if record then
    if ARGV[1] ~= '' and not TERMINAL[record.status] then watch(record, ARGV[1]) end
    local view = view_of(record)
    reply[#reply + 1] = {'record', unpack(view)}
  else
    reply[#reply + 1] = {call('EXISTS', P .. 'gone:' .. ARGV[at]) == 1 and 'expired' or 'unknown', ARGV[at]}
  end
end
return reply
