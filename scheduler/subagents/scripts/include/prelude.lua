-- Opens every script of a pool: names, settings, and the refusal to touch a pool that is missing or foreign.
--
-- KEYS[1]  the pool's prefix `sa:{pool}:`; every other key hangs on it or carries its hash tag, so a cluster keeps a pool in one slot.
-- Settings are validated on every call: a flushed pool fails closed, it never becomes an unlimited one.
local P = KEYS[1]
local TAG = string.match(P, '{.-}')
local call = redis.call

-- Lua prints large numbers as 1e+14; Redis must see plain integers.
local function int(number) return string.format('%.0f', number) end

local function each(csv) return string.gmatch(csv or '', '[^,]+') end

local setting = call('HMGET', P .. 'config', 'schema', 'max_concurrent', 'paused', 'halted', 'lease', 'max_step', 'test_now',
  'event_cap', 'keep_settled', 'keep_tombstone', 'max_bypass', 'max_depth', 'max_queued', 'version')
if setting[1] == false then return {'no_pool'} end
if setting[1] ~= '1' then return {'foreign_schema', setting[1]} end
local LIMIT, PAUSED, HALTED = tonumber(setting[2]), setting[3] == '1', setting[4] == '1'
local LEASE, MAX_STEP = tonumber(setting[5]), tonumber(setting[6])
if not (LIMIT and LEASE and MAX_STEP) then return {'foreign_schema', 'damaged'} end
