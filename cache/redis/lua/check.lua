-- Counts the standings of the generation ARGV[3], which is being built. Returns OK, the numbers of
-- standings written and found, and the number of the last batch.

--include base
--include server
--include write

local c, refusal = enter()
if refusal then return refusal end
local g = ARGV[3]
if c.next ~= g then return {FENCED, c.fence} end
local standings = 0
for _, number in ipairs(call('HVALS', key(g, 'l'))) do
  local z, all, ties = key(g, number), nil, nil
  --include inline/size
  standings = standings + all
end
local w = call('HMGET', key(g, 'w'), 'standings', 'batch')
return {OK, tonumber(w[1] or 0), standings, tonumber(w[2] or 0)}
