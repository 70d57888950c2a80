-- Standings at some positions of the ladder in this shard, which follow ARGV[3],
-- from 0; one behind the end is the end's. Answers with each position and sort
-- key; with none if the ladder is empty here.
local last = reply[6] - 1
if last >= 0 then
  for i = 4, #ARGV do
    local at = math.min(tonumber(ARGV[i]), last)
    reply[#reply + 1] = at
    reply[#reply + 1] = call('ZRANGE', z, at, at)[1]
  end
end
return reply
