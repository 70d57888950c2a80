-- Standings at some positions of a ladder in this shard. ARGV[3] is the ladder,
-- positions follow, from 0; one behind the end is the end's. Answers with each
-- position and sort key; with none if the ladder is empty here.
local c, refusal = enter()
if refusal then return refusal end
if not c.live then return {NONE} end
local z = key(c.live, 'z:' .. ARGV[3])
local reply = header(c, z)
local last = reply[6] - 1
if last >= 0 then
  for i = 4, #ARGV do
    local at = math.min(tonumber(ARGV[i]), last)
    reply[#reply + 1] = at
    reply[#reply + 1] = call('ZRANGE', z, at, at)[1]
  end
end
return reply
