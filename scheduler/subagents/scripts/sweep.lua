#!lua flags=allow-oom
-- sweep: carries an interrupt into the records, at most `budget` agents a call. Without an id, the oldest interrupts that are still open.
-- KEYS  1 prefix
-- ARGV  1 nonce, 2 interrupt id or '', 3 budget
-- Returns  {swept, looked at, more (0|1)}
-- Events   stopping, stopped, admitted
-- include: agents
-- include: sweeping
NONCE = ARGV[1]
advance_clock()
local looked, more = 0, false
if ARGV[2] ~= '' then
  looked, more = sweep(ARGV[2], tonumber(ARGV[3]))
else
  more = sweep_open(tonumber(ARGV[3]))
end
admit(32)
publish_told()
return {'swept', looked, more and 1 or 0}
