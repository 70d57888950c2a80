-- Defines functions that count strings, unless they are defined. Scripts include the file as late as possible,
-- because each run takes time to define functions.
if not count then
  --include find

  -- count_pairs returns the number of adjacent strings with equal rank keys.
  local function count_pairs(strings)
    local last, n = false, 0
    for _, x in ipairs(strings) do
      local k = sub(x, 1, kb)
      if k == last then n = n + 1 end
      last = k
    end
    return n
  end

  -- count_at returns the number of strings of the tree z that are less than k, and if distinct is true, the
  -- number of their different rank keys. g, gi, s and si are the results of seek for k (see find.lua). If
  -- another leaf has strings with the rank key k too, equal may be true.
  function count_at(distinct, equal, k, g, gi, s, si)
    local leaf, f, any = z .. 'l' .. s, 0, true
    local less = call('ZLEXCOUNT', leaf, '-', '(' .. k) -- strings of the leaf that are less than k
    local n = less
    if not si then return n, distinct and n > 0 and n - count_pairs(call('ZRANGE', leaf, '0', format('%d', n - 1))) or n end
    if si > 0 then n = n + call('BITCOUNT', z .. 'c' .. g, '0', format('%d', si * BLOCK - 1)) end
    if gi then
      --include inline/sum
      n, any, f = n + strings_before, followed, followers_before
    end
    if not (distinct and any) then return n, n end
    local upto = call('BITCOUNT', z .. 'f' .. g, '0', format('%d', (si + 1) * BLOCK - 1))
    f = f + upto
    if upto > 0 then
      local rest = call('ZCARD', leaf) - less
      -- Subtract the followers in the rest. The first string of the rest is none. If the last string has
      -- the rank key k, all others are.
      if rest < 2 then
        -- nothing to subtract
      elseif equal or sub(call('ZRANGE', leaf, '-1', '-1')[1], 1, kb) == k then
        f = f - (rest - 1)
      else
        f = f - count_pairs(call('ZRANGE', leaf, format('%d', -rest), '-1'))
      end
    end
    return n, n - f
  end

  -- count returns the number of strings of the tree z that are less than x.
  function count(x) return (count_at(false, false, x, seek(z, x))) end

  -- count_less returns the number of standings in the ladder with a smaller rank key than k, and the
  -- number of different smaller rank keys. k may be the beginning of a rank key. If k is the rank key of a
  -- standing, g, gi and si may be the results of seek for this standing. count_less is then fast.
  function count_less(k, g, gi, si)
    local dir = gi and z .. 'd' .. g
    local t = dir and call('ZREVRANGEBYLEX', dir, '[' .. k, '-', 'LIMIT', '0', '1')[1]
    if not t then return count_at(DENSE, false, k, seek(z, k)) end
    local ti = call('ZRANK', dir, t)
    return count_at(DENSE, ti < si, k, g, gi, t, ti)
  end

  -- count_not_worse returns the number of standings with the rank key k or a smaller one. all must be set: see
  -- inline/size.lua.
  function count_not_worse(k)
    local i = #k
    while i > 0 and byte(k, i) == 255 do i = i - 1 end
    if i == 0 then return all end
    return count(sub(k, 1, i - 1) .. string.char(byte(k, i) + 1))
  end
end
