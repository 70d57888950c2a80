-- Where users stand in a ladder. ARGV[3] is the ladder, ARGV[4] the number of
-- users, who follow. Then come sort keys, or beginnings of rank keys.
-- Answers for each user with the sort key, '' if none, and, if this is the only
-- shard, what is before it; for each key with what is before it: standings,
-- standings with a smaller rank key, and smaller rank keys whose home this is.
local c, refusal = enter()
if refusal then return refusal end
if not c.live then return {NONE} end
local ladder, users = ARGV[3], tonumber(ARGV[4])
local z, d = key(c.live, 'z:' .. ladder), key(c.live, 'd:' .. ladder)
local reply = header(c, z)

local function before(x)
  local k = sub(x, 1, c.kb)
  local better = less(z, k)
  local n = better
  if #x > c.kb then n = less(z, x) end
  reply[#reply + 1] = n
  reply[#reply + 1] = better
  reply[#reply + 1] = less(d, k)
end

for i = 5, 4 + users do
  local x = place(c, ARGV[i], ladder)
  reply[#reply + 1] = x
  if S == '1' and x ~= '' then before(x) end
end
for i = 5 + users, #ARGV do before(ARGV[i]) end
return reply
