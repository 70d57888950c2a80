-- Reads standings of the ladder in this shard. The arguments after ARGV[3] are
-- their positions, from 0; a position behind the end means the last standing.
-- Returns each position and sort key, or none if the ladder is empty here.
local last = reply[6] - 1
if last >= 0 then
  for i = 4, #ARGV do
    local at = math.min(tonumber(ARGV[i]), last)
    reply[#reply + 1] = at
    reply[#reply + 1] = call('ZRANGE', z, at, at)[1]
  end
end
return reply
