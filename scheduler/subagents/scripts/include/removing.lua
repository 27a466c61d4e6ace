-- Taking a settled agent out of the pool: record, input, result, events and list entries go, the tombstone stays for its time.
-- The record may have expired already; the tombstone knows in which lists it stands.
local function remove(id)
  call('ZREM', P .. 'settled', id)
  call('ZREM', P .. 'index:all', id)
  for status in pairs(TERMINAL) do call('ZREM', P .. 'index:status:' .. status, id) end
  local type, root, scopes = string.match(call('GET', P .. 'gone:' .. id) or '', '^[^|]*|([^|]*)|([^|]*)|(.*)$')
  if type then
    call('ZREM', P .. 'index:type:' .. type, id)
    for scope in each(scopes) do call('ZREM', P .. 'index:scope:' .. scope, id) end
    call('ZREM', P .. 'index:tree:' .. root, id)
  end
  call('DEL', P .. 'agent:' .. id, P .. 'input:' .. id, P .. 'result:' .. id, P .. 'events:' .. id, P .. 'inbox:' .. id, P .. 'saved:' .. id)
end
