-- Sets before to the number of standings before the sort key x; g, gi, s and si to the results of seek for x
-- (see find.lua); and i to the number of strings before x in its leaf. Sets ties to whether standings may have
-- equal rank keys, and all to the size of the ladder; but in a tree of one group, both stay unchanged.
-- If present is true, a record states that x is in the ladder. If the tree does not have x then, someone
-- removed members by hand, and others may be missing too. This file then empties the shard and ends the script
-- with LOST.
do
  local at = z
  --include inline/seek
  if present then
    i = call('ZRANK', z .. 'l' .. s, x)
    if not i then
      --include server
      empty_shard()
      return {LOST}
    end
  else
    i = call('ZLEXCOUNT', z .. 'l' .. s, '-', '(' .. x)
  end
  before = i
  if gi then
    --include inline/sum
    before, all, ties = before + strings_before, all_strings, followed
  end
  if si and si > 0 then before = before + call('BITCOUNT', z .. 'c' .. g, '0', format('%d', si * BLOCK - 1)) end
end
