-- Counts a generation that is being built, ARGV[3]. Answers with pairs of what
-- was counted as it was written and what is there: users, standings, rank keys;
-- and with the last batch.
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
