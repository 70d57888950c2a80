-- counters returns five functions. Scripts call counters as late as possible, because the definitions
-- take time.
local function counters()
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

  -- count_at returns the number of strings of a tree that are less than k, and if distinct is true, the
  -- number of their different rank keys. g, gi, s and si are the results of seek for k (see tree.lua). If
  -- another leaf has strings with the rank key k too, equal may be true.
  local function count_at(distinct, equal, at, k, g, gi, s, si)
    local leaf, n, f, _ = at .. 'l' .. s, 0, 0, nil
    if not si then
      n = call('ZLEXCOUNT', leaf, '-', '(' .. k)
      return n, distinct and n > 0 and n - count_pairs(call('ZRANGE', leaf, '0', format('%d', n - 1))) or n
    end
    local followed, last_byte = true, format('%d', (si + 1) * BLOCK - 1)
    if gi then n, _, followed, f = sum_before(at, gi) end
    local rest = call('ZLEXCOUNT', leaf, '[' .. k, '+') -- strings of the leaf that are not less than k
    n = n + call('BITCOUNT', at .. 'c' .. g, '0', last_byte) - rest
    if not (distinct and followed) then return n, n end
    local upto = call('BITCOUNT', at .. 'f' .. g, '0', last_byte)
    f = f + upto
    if upto > 0 and rest > 1 then
      -- Subtract the followers in the rest. The first string of the rest is none. If the last string has
      -- the rank key k, all others are.
      if equal or sub(call('ZRANGE', leaf, '-1', '-1')[1], 1, kb) == k then
        f = f - (rest - 1)
      else
        f = f - count_pairs(call('ZRANGE', leaf, format('%d', -rest), '-1'))
      end
    end
    return n, n - f
  end

  -- count returns the number of strings of a tree that are less than x.
  local function count(at, x) return (count_at(false, false, at, x, seek(at, x))) end

  -- count_homes returns the number of rank keys less than k whose home is this shard.
  local function count_homes(k)
    local at = z .. 'k'
    local _, n = count_at(true, false, at, k, seek(at, k))
    return n
  end

  -- count_less returns the number of standings in the ladder with a smaller rank key than k, and the
  -- number of different smaller rank keys. If S > 1, the second number includes only rank keys whose home
  -- is this shard. k may be the beginning of a rank key. If S = 1 and k is the rank key of a standing, g, gi
  -- and si may be the results of seek for this standing. count_less is then fast.
  local function count_less(k, g, gi, si)
    if S ~= '1' then return count(z, k), DENSE and count_homes(k) or 0 end
    local dir = gi and z .. 'd' .. g
    local t = dir and call('ZREVRANGEBYLEX', dir, '[' .. k, '-', 'LIMIT', '0', '1')[1]
    if not t then return count_at(DENSE, false, z, k, seek(z, k)) end
    local ti = call('ZRANK', dir, t)
    return count_at(DENSE, ti < si, z, k, g, gi, t, ti)
  end

  local tied = false -- whether the last x probably had a standing with its rank key before it

  -- count_less_at returns the results of count_less for the rank key of x. But if S > 1, the second
  -- number has no meaning. x is at the position i of a leaf, and n strings of the tree precede x.
  local function count_less_at(x, g, gi, s, si, i, n)
    local k = sub(x, 1, kb)
    if tied then -- this is then likely for x too
      local better, distinct = count_less(k, g, gi, si)
      tied = better < n
      return better, distinct
    end
    if i > 0 then
      local j = format('%d', i - 1)
      tied = sub(call('ZRANGE', z .. 'l' .. s, j, j)[1], 1, kb) == k
    else
      tied = #s > kb and sub(s, 1, kb) == k
    end
    if tied then return count_less(k, g, gi, si) end
    if S ~= '1' or not DENSE then return n, n end
    return count_at(DENSE, false, z, k, g, gi, s, si)
  end

  -- count_not_worse returns the number of standings with the rank key k or a smaller one.
  local function count_not_worse(k)
    local i = #k
    while i > 0 and byte(k, i) == 255 do i = i - 1 end
    if i == 0 then return (size(z)) end
    return count(z, sub(k, 1, i - 1) .. string.char(byte(k, i) + 1))
  end

  return count_less, count_less_at, count, count_not_worse, count_homes
end
