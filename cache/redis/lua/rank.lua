-- This file answers the most frequent question, about one user of a season with one shard,
-- before the functions of the later files are defined. If the answer needs counts of equal rank
-- keys too, standings.lua continues with the results of place.lua.
if all and #ARGV == 7 and not (ties and (COMPETITION or DENSE)) then
  reply[6], reply[7], reply[8], reply[9], reply[10] = all, x, p, p, p
  return reply
end
