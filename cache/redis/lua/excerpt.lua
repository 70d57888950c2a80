-- Completes the answer of part.lua if rank keys may be equal, or if the season has several shards.
-- If S > 1, three numbers follow the keys. k is the rank key of the sort key that names the cut, if any.
--   better    standings with a rank key smaller than k
--   smaller   rank keys smaller than k whose home is this shard
--   equal     rank keys not greater than k whose home is this shard
local count_less, count_less_at, count, count_not_worse, count_homes = counters()
local k = sub(x or '', 1, kb)
if S ~= '1' then
  if ARGV[6] ~= '' then reply[7] = sort_key(ARGV[6], ARGV[7]) end
  reply[14], reply[15], reply[16] = 0, 0, 0
  if k ~= '' then
    reply[14], reply[15] = count_less(k)
    if DENSE then reply[16] = count_homes(k .. '\255\255') end -- greater than all strings of k
  end
end
if count_first then reply[10], reply[11] = count_less_at(head, hg, hgi, hs, hsi, hi, first) end
if NOT_WORSE and k ~= '' and (first + read <= cut or sub(last, 1, kb) == k) then reply[12] = count_not_worse(k) end
return reply
