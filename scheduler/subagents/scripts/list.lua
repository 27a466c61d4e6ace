#!lua flags=allow-oom
-- list: a page of records, newest first. It walks the narrowest index for its filters, a bounded number of entries a call.
-- KEYS  1 prefix
-- ARGV  1 status or '', 2 type or '', 3 scope or '', 4 tree or '', 5 most records, 6 below this seq ('+inf' = from the newest), 7 most looked at
-- Returns  {page, next seq or '', {record, field, value, ...} ...}
-- Events   none
-- include: agents
-- include: viewing
local status, type, scope, tree = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local most, below, looks = tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7])
local PAGE_BYTES = 4194304
advance_clock()
local index = P .. 'index:all'
if ON_WORKER[status] then index = P .. 'started'
elseif tree ~= '' then index = P .. 'index:tree:' .. (call('HGET', P .. 'agent:' .. tree, 'root') or tree)
elseif scope ~= '' and scope ~= '*' then index = P .. 'index:scope:' .. scope
elseif status == 'queued' then index = P .. 'scope:*'
elseif TERMINAL[status] and status ~= 'stopped' then index = P .. 'index:status:' .. status -- `stopped` may be ahead of its record
elseif type ~= '' then index = P .. 'index:type:' .. type
end

local function in_scope(record)
  if scope == '' or scope == '*' then return true end
  return string.find(',' .. (record.scopes or '') .. ',', ',' .. scope .. ',', 1, true) ~= nil
end

local function in_tree(record)
  return tree == '' or record.id == tree or string.find(',' .. (record.ancestors or '') .. ',', ',' .. tree .. ',', 1, true) ~= nil
end

local reply, bytes, last = {'page', ''}, 0, nil
local found = call('ZREVRANGEBYSCORE', index, below == '+inf' and below or ('(' .. below), '-inf', 'WITHSCORES', 'LIMIT', 0, looks)
if tree ~= '' and below == '+inf' and not found[1] then  -- an agent without children is a tree of one
  local seq = call('HGET', P .. 'agent:' .. tree, 'seq')
  if seq then found = {tree, seq} end
end
for at = 1, #found, 2 do
  local record = read(found[at])
  last = found[at + 1]
  if not record then
    call('ZREM', index, found[at])
  elseif record.seq == found[at + 1] and (type == '' or record.type == type) and in_scope(record) and in_tree(record)
      and (status == '' or seen_status(record) == status) then
    local view, size = view_of(record)
    reply[#reply + 1] = {'record', unpack(view)}
    bytes = bytes + size
  end
  if #reply - 2 >= most or bytes >= PAGE_BYTES then break end
end
if last and (#reply - 2 >= most or bytes >= PAGE_BYTES or #found / 2 >= looks) then reply[2] = last end
return reply
