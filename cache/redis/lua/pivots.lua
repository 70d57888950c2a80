-- Reads standings of the ladder in this shard. The arguments after ARGV[3] are
-- their positions, from 0; a position behind the end means the last standing.
-- Returns each position and sort key, or none if the ladder is empty here.
reply[6] = size(z)
local last = reply[6] - 1
if last >= 0 then
  for a = 4, #ARGV do
    local position = math.min(tonumber(ARGV[a]), last)
    local _, _, s, _, i = seek_at(z, position)
    reply[#reply + 1] = position
    reply[#reply + 1] = call('ZRANGE', z .. 'l' .. s, i, i)[1]
  end
end
return reply
