-- Counts the standings and rank keys of the generation ARGV[3], which is being built.
-- Returns OK, the numbers of standings written and found, the same numbers of rank
-- keys, and the number of the last batch.

--include base
--include server
--include write

local c, refusal = enter()
if refusal then return refusal end
local g = ARGV[3]
if c.next ~= g then return {FENCED, c.fence} end
local function size(z) -- of the tree z: see tree.lua
  local all, ties
  --include inline/size
  return all
end
local standings, keys = 0, 0
for _, number in ipairs(call('HVALS', key(g, 'l'))) do
  standings = standings + size(key(g, number))
  keys = keys + size(key(g, number .. 'k'))
end
local w = call('HMGET', key(g, 'w'), 'standings', 'keys', 'batch')
return {OK, tonumber(w[1] or 0), standings, tonumber(w[2] or 0), keys, tonumber(w[3] or 0)}
