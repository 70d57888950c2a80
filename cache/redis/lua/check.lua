-- Counts what this shard holds of the generation ARGV[3], which is being built.
-- Returns OK, then pairs of the number written and the number found, for users,
-- standings and rank keys, then the number of the last batch.
local c, refusal = enter()
if refusal then return refusal end
local g = ARGV[3]
if c.next ~= g then return {FENCED, c.fence} end
local standings, keys = 0, 0
for _, name in ipairs(call('SMEMBERS', key(g, 'l'))) do
  standings = standings + call('ZCARD', key(g, 'z:' .. name))
  keys = keys + call('ZCARD', key(g, 'd:' .. name))
end
local w = call('HMGET', key(g, 'w'), 'users', 'standings', 'keys', 'batch')
return {OK, tonumber(w[1] or 0), call('HLEN', key(g, 'u')), tonumber(w[2] or 0), standings, tonumber(w[3] or 0), keys, tonumber(w[4] or 0)}
