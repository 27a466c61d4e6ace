-- Interrupts as numbers: an agent whose spawn number is at or below the cutoff of one of its scopes is stopped, by definition.
-- Every agent carries the scope `*`; a descendant also carries `@<ancestor>`, the scope that a stopped ancestor cuts off.
local cutoff_cache = {}
local function cutoff(hash, scope)
  local key = hash .. ' ' .. scope
  local value = cutoff_cache[key]
  if value == nil then
    value = tonumber(call('HGET', P .. hash, scope) or nil) or 0
    cutoff_cache[key] = value
  end
  return value
end

local function cut_off(number, survive, scope)
  if number <= cutoff('cutoff:forced', scope) then return true end
  return survive ~= '1' and number <= cutoff('cutoff', scope)
end

local function all_scopes(record)
  local scopes = {'*'}
  for scope in each(record.scopes) do scopes[#scopes + 1] = scope end
  for ancestor in each(record.ancestors) do scopes[#scopes + 1] = '@' .. ancestor end
  return scopes
end

-- Whether an interrupt, ordinary or forced ('1'), means this agent if its spawn number is at or below the interrupt's cutoff.
local function aims_at(record, forced) return forced == '1' or record.survive ~= '1' end

local function hit(record)
  for _, scope in ipairs(all_scopes(record)) do
    if cut_off(record.number, record.survive, scope) then return true end
  end
  return false
end
