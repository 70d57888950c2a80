-- counters returns five functions. Scripts call counters as late as possible, because the definitions
-- take time.
local function counters()
  -- The function followers returns the number of followers in a tree before the string at the position
  -- i of a leaf. This string must not be a follower (see tree.lua).
  local function followers(at, g, gi, s, si, i)
    if not si and i == 0 then return 0 end
    local n, from, to = 0, 0, i - 1
    if gi then n = sum_before(at, 'f', gi) end
    if si then
      local upto, sofar = call('BITCOUNT', at .. 'f' .. g, '0', (si + 1) * BLOCK - 1), 0
      if upto == 0 then return n end
      if si > 0 then sofar = call('BITCOUNT', at .. 'f' .. g, '0', si * BLOCK - 1) end
      n = n + sofar
      if i == 0 or upto == sofar then return n end
      n = n + upto - sofar
      from, to = i, -1 -- subtract the followers after this string
    end
    local last, pairs = false, 0
    for _, x in ipairs(call('ZRANGE', at .. 'l' .. s, from, to)) do
      local k = sub(x, 1, kb)
      if k == last then pairs = pairs + 1 end
      last = k
    end
    return si and n - pairs or n + pairs
  end

  -- count returns the number of strings of a tree that are less than x.
  local function count(at, x)
    local g, gi, s, si = seek(at, x)
    return (count_before(at, g, gi, si)) + call('ZLEXCOUNT', at .. 'l' .. s, '-', '(' .. x)
  end

  -- count_homes returns the number of rank keys less than k whose home is this shard.
  local function count_homes(k)
    local at = z .. 'k'
    local g, gi, s, si = seek(at, k)
    local i = call('ZLEXCOUNT', at .. 'l' .. s, '-', '(' .. k)
    local n, _, _, followed = count_before(at, g, gi, si)
    return n + i - (followed and followers(at, g, gi, s, si, i) or 0)
  end

  -- count_less returns the number of standings in the ladder with a smaller rank key than k, and the
  -- number of different smaller rank keys. If S > 1, the second number includes only rank keys whose home
  -- is this shard. k may be the beginning of a rank key.
  local function count_less(k)
    if S ~= '1' then return count(z, k), DENSE and count_homes(k) or 0 end
    local g, gi, s, si = seek(z, k)
    local i = call('ZLEXCOUNT', z .. 'l' .. s, '-', '(' .. k)
    local n, _, ties = count_before(z, g, gi, si)
    n = n + i
    return n, DENSE and ties and n - followers(z, g, gi, s, si, i) or n
  end

  -- count_less_at returns the results of count_less for the rank key of x. But if S > 1, the second
  -- number has no meaning. x is at the position i of a leaf, and n strings of the tree precede x.
  local function count_less_at(x, g, gi, s, si, i, n)
    local k, same = sub(x, 1, kb), false
    if i > 0 then
      local j = tostring(i - 1)
      same = sub(call('ZRANGE', z .. 'l' .. s, j, j)[1], 1, kb) == k
    else
      same = #s > kb and sub(s, 1, kb) == k
    end
    if same then return count_less(k) end
    return n, S == '1' and DENSE and n - followers(z, g, gi, s, si, i) or n
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
