-- Taking a settled agent out of the pool: record, input, result, events and list entries go, the tombstone stays for its time.
local function remove(id, record)
  call('ZREM', P .. 'settled', id)
  call('ZREM', P .. 'index:all', id)
  for status in pairs(TERMINAL) do call('ZREM', P .. 'index:status:' .. status, id) end
  if record then
    call('ZREM', P .. 'index:type:' .. record.type, id)
    for scope in each(record.scopes) do call('ZREM', P .. 'index:scope:' .. scope, id) end
    local root = call('HGET', P .. 'agent:' .. id, 'root') or id
    call('ZREM', P .. 'index:tree:' .. root, id)
  end
  call('DEL', P .. 'agent:' .. id, P .. 'input:' .. id, P .. 'result:' .. id, P .. 'events:' .. id, P .. 'inbox:' .. id, P .. 'saved:' .. id)
end
