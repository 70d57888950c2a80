-- Sets better to the number of standings with a smaller rank key than x, and distinct to the number of
-- different smaller rank keys, as far as the caller uses them. g, gi, s and si are the results of seek for the
-- sort key x (see find.lua), i is the position of x in its leaf, and before is the number of standings before x.
-- Sets tied to whether a standing with the same rank key precedes x. Until then, tied states this of the last x,
-- which is a good guess.
better, distinct = before, before
if ties and (COMPETITION or DENSE) then
  local k = sub(x, 1, kb)
  if not tied then
    if i > 0 then
      local j = format('%d', i - 1)
      tied = sub(call('ZRANGE', z .. 'l' .. s, j, j)[1], 1, kb) == k
    else
      tied = #s > kb and sub(s, 1, kb) == k
    end
  end
  if tied or DENSE then
    --include count
    if tied then
      better, distinct = count_less(k, g, gi, si)
      tied = better < before
    else
      better, distinct = count_at(true, false, k, g, gi, s, si)
    end
  end
end
