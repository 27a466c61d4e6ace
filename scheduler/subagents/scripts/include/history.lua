-- The pool's history: every transition appends its event inside the same atomic step, so the history cannot disagree with the state.
local EVENT_CAP = setting[8] or '100000'
local function event(kind, id, seq, ...)
  call('XADD', P .. 'events', 'MAXLEN', '~', EVENT_CAP, '*', 'kind', kind, 'agent_id', id, 'seq', seq, ...)
end
