-- This file answers the most frequent question: about one user of a season with one shard. If the
-- results of place.lua are not enough, for example because rank keys may be equal, standings.lua
-- answers the question.
if all and #ARGV == 7 and not (ties and (COMPETITION or DENSE)) then
  reply[6], reply[7], reply[8], reply[9], reply[10] = all, x, p, p, p
  return reply
end
