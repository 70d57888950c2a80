-- This file changes trees: see tree.lua. A tree t has the fields:
--   at      the beginning of its keys
--   kb      length of a rank key
--   due     changes of t, ft and the groups' own numbers, by field. flush adds them to the hash s
-- A place p is a leaf of a tree. Its fields are g, gi, s and si, the results of seek, and the leaf's key.
local GROUP = 256       -- most leaves of a group
local UNPACKED = string.rep('x', 65) -- longer than zset-max-listpack-value, so Redis unpacks the set

local function new_tree(at, kb) return {at = at, kb = kb, due = {}} end

local function find_place(t, x)
  local g, gi, s, si = seek(t.at, x)
  return {g = g, gi = gi, s = s, si = si, leaf = t.at .. 'l' .. s}
end

local function flush(t)
  local due, fields, n = t.due, {}, nil
  t.due = {}
  local change = {}
  for field, d in pairs(due) do
    local kind, i = string.match(field, '^(f?)(%d+)$')
    if d == 0 then
      -- nothing
    elseif not i then
      change[field] = d
    else
      n = n or call('ZCARD', t.at .. 'r')
      i = tonumber(i)
      while i <= n do
        change[kind .. i] = (change[kind .. i] or 0) + d
        i = i + low_bit(i)
      end
    end
  end
  for field, d in pairs(change) do
    if d ~= 0 then fields[#fields + 1] = field end
  end
  if #fields == 0 then return end
  local v, args = call('HMGET', t.at .. 's', unpack(fields)), {}
  for i, field in ipairs(fields) do
    args[2 * i - 1], args[2 * i] = field, (v[i] or 0) + change[field]
  end
  call('HSET', t.at .. 's', unpack(args))
end

local function add_due(t, field, d) t.due[field] = (t.due[field] or 0) + d end

-- resum updates a Fenwick tree in the hash s after a group was split or joined. Groups with the numbers
-- in values replace the groups from to from+removed-1, counted from 1. Before the change, the tree has
-- n groups. kind is '' for strings or 'f' for followers.
local function resum(t, kind, n, from, removed, values)
  local sums = {}
  for i = 1, n, 1000 do
    local fields = {}
    for j = i, math.min(i + 999, n) do fields[#fields + 1] = kind .. j end
    for _, v in ipairs(call('HMGET', t.at .. 's', unpack(fields))) do sums[#sums + 1] = tonumber(v or 0) end
  end
  for i = n, 1, -1 do
    local j = i + low_bit(i)
    if j <= n then sums[j] = sums[j] - sums[i] end
  end
  for _ = 1, removed do table.remove(sums, from) end
  for i = #values, 1, -1 do table.insert(sums, from, values[i]) end
  for i = 1, #sums do
    local j = i + low_bit(i)
    if j <= #sums then sums[j] = sums[j] + sums[i] end
  end
  local args = {} -- the sums of the groups before from have not changed
  for i = from, #sums do
    args[#args + 1], args[#args + 2] = kind .. i, sums[i]
    if #args >= 2000 or i == #sums then
      call('HSET', t.at .. 's', unpack(args))
      args = {}
    end
  end
  for i = #sums + 1, n do call('HDEL', t.at .. 's', kind .. i) end
end

-- ones returns the bits of a leaf with n strings or followers: n ones, and then zeros.
local function ones(n)
  local full = floor(n / 8)
  local bits = string.rep('\255', full)
  if n % 8 > 0 then bits = bits .. string.char(256 - 2 ^ (8 - n % 8)) end
  return bits .. string.rep('\0', BLOCK - #bits)
end

-- splice replaces bits of a group by the string blocks. name is the key of the group's bits. The replaced
-- bits are of the leaves at the positions si to si+removed-1.
local function splice(name, si, removed, blocks)
  local bits = call('GET', name) or ''
  local from, to = si * BLOCK, (si + removed) * BLOCK
  if bits == '' and not string.find(blocks, '[^%z]') then return end
  if #bits < from then bits = bits .. string.rep('\0', from - #bits) end
  call('SET', name, sub(bits, 1, from) .. blocks .. sub(bits, to + 1))
end

-- followers_of returns the number of followers in the leaf at si of a group.
local function followers_of(t, g, si) return call('BITCOUNT', t.at .. 'f' .. g, si * BLOCK, si * BLOCK + BLOCK - 1) end

local function insert(leaf, strings, from, to)
  local args = {}
  for i = from, to do args[#args + 1], args[#args + 2] = '0', strings[i] end
  if #args > 0 then call('ZADD', leaf, unpack(args)) end
end

-- separator returns the shortest name of a leaf whose first string is b. The leaf before this leaf
-- ends with the string a.
local function separator(a, b)
  for i = 1, #b do
    if byte(a, i) ~= byte(b, i) then return sub(b, 1, i) end
  end
end

-- directory creates a sorted set with the member ''. The set is not packed, so that the server finds
-- members in logarithmic time.
local function directory(name)
  call('ZADD', name, '0', '', '0', UNPACKED)
  call('ZREM', name, UNPACKED)
end

local function split_group(t, g, gi)
  flush(t)
  local at = t.at
  local leaves = call('ZRANGE', at .. 'd' .. g, 0, -1)
  local half = floor(#leaves / 2)
  local new = leaves[half + 1]
  directory(at .. 'd' .. new)
  insert(at .. 'd' .. new, leaves, half + 1, #leaves)
  call('ZREM', at .. 'd' .. new, '')
  call('ZREMRANGEBYRANK', at .. 'd' .. g, half, -1)
  local counts = {}
  for _, kind in ipairs({'c', 'f'}) do
    local bits = call('GET', at .. kind .. g) or ''
    if #bits > half * BLOCK then
      call('SET', at .. kind .. g, sub(bits, 1, half * BLOCK))
      call('SET', at .. kind .. new, sub(bits, half * BLOCK + 1))
    end
    counts[kind] = {call('BITCOUNT', at .. kind .. g), call('BITCOUNT', at .. kind .. new)}
  end
  if gi then
    local n = call('ZCARD', at .. 'r')
    resum(t, '', n, gi + 1, 1, counts.c)
    resum(t, 'f', n, gi + 1, 1, counts.f)
  else
    gi = 0
    directory(at .. 'r')
    call('HSET', at .. 's', 't', counts.c[1] + counts.c[2], 'ft', counts.f[1] + counts.f[2], 'x', UNPACKED)
    call('HDEL', at .. 's', 'x')
    resum(t, '', 0, 1, 0, counts.c)
    resum(t, 'f', 0, 1, 0, counts.f)
  end
  call('ZADD', at .. 'r', 0, new)
end

-- join_group joins a small group with a neighbor if the joined group is not too large. It always joins
-- a group of one leaf.
local function join_group(t, g, gi, leaves)
  flush(t)
  local at = t.at
  local n = call('ZCARD', at .. 'r')
  local a = gi + 1 < n and gi or gi - 1 -- the first of the two
  local pair = call('ZRANGE', at .. 'r', a, a + 1)
  local first, second = pair[1], pair[2]
  local size = call('ZCARD', at .. 'd' .. first)
  local moved = call('ZRANGE', at .. 'd' .. second, 0, -1)
  if leaves > 1 and size + #moved > GROUP * 3 / 4 then return end
  insert(at .. 'd' .. first, moved, 1, #moved)
  local sums = {}
  for _, kind in ipairs({'c', 'f'}) do
    splice(at .. kind .. first, size, 0, call('GET', at .. kind .. second) or '')
    sums[kind] = {call('BITCOUNT', at .. kind .. first)}
  end
  call('DEL', at .. 'd' .. second, at .. 'c' .. second, at .. 'f' .. second)
  call('ZREM', at .. 'r', second)
  if n == 2 then
    call('DEL', at .. 'r', at .. 's')
    return
  end
  resum(t, '', n, a + 1, 2, sums.c)
  resum(t, 'f', n, a + 1, 2, sums.f)
end

-- next_name returns the name of the leaf that follows the leaf at p, or nil.
local function next_name(t, p)
  if not p.si then return nil end
  local name = call('ZRANGE', t.at .. 'd' .. p.g, p.si + 1, p.si + 1)[1]
  if not name and p.gi then name = call('ZRANGE', t.at .. 'r', p.gi + 1, p.gi + 1)[1] end
  return name
end

-- split moves the second half of a leaf to a new leaf.
local function split(t, p)
  local at, kb = t.at, t.kb
  local all = call('ZRANGE', p.leaf, 0, -1)
  -- A Rebuild adds strings in order. After a split of the last leaf, only the new leaf grows. So the old
  -- leaf keeps three quarters of the strings.
  local half = floor(#all * (next_name(t, p) and 1 / 2 or 3 / 4))
  local new = separator(all[half], all[half + 1])
  insert(at .. 'l' .. new, all, half + 1, #all)
  call('ZREMRANGEBYRANK', p.leaf, half, -1)
  local f, following, last = 0, 0, false -- numbers of followers in the old and in the new leaf
  for i, x in ipairs(all) do
    local k = sub(x, 1, kb)
    if k == last then
      if i <= half then f = f + 1 else following = following + 1 end
    end
    last = k
  end
  local dir = at .. 'd' .. p.g
  if p.si then
    f = followers_of(t, p.g, p.si) - following
    call('ZADD', dir, 0, new)
  else
    directory(dir)
    call('ZADD', dir, 0, new)
  end
  local si = p.si or 0
  splice(at .. 'c' .. p.g, si, 1, ones(half) .. ones(#all - half))
  splice(at .. 'f' .. p.g, si, 1, ones(f) .. ones(following))
  if call('ZCARD', dir) > GROUP then split_group(t, p.g, p.gi) end
end

-- join joins the leaf at p, which has n strings, with a neighbor if the joined leaf has at most limit
-- strings. It always joins an empty leaf.
local function join(t, p, n, limit)
  local at, dir = t.at, t.at .. 'd' .. p.g
  local leaves = call('ZCARD', dir)
  local a = p.si + 1 < leaves and p.si or p.si - 1 -- the first of the two
  local pair = call('ZRANGE', dir, a, a + 1)
  local first, second = at .. 'l' .. pair[1], at .. 'l' .. pair[2]
  local size = call('ZCARD', first) + call('ZCARD', second)
  if n > 0 and size > limit then return end
  local moved = call('ZRANGE', second, 0, -1)
  call('DEL', second)
  insert(first, moved, 1, #moved)
  call('ZREM', dir, pair[2])
  leaves = leaves - 1
  if leaves == 1 and not p.gi then
    call('DEL', dir, at .. 'c' .. p.g, at .. 'f' .. p.g)
    return
  end
  splice(at .. 'f' .. p.g, a, 2, ones(followers_of(t, p.g, a) + followers_of(t, p.g, a + 1)))
  splice(at .. 'c' .. p.g, a, 2, ones(size))
  if p.gi and leaves < math.max(GROUP / 8, 2) then join_group(t, p.g, p.gi, leaves) end
end

-- find_follower returns nil if no other string of the tree has the rank key of x. Otherwise x or the string
-- after x is a follower because of x, and find_follower returns the place of this follower. p is the place of x.
local function find_follower(t, p, x)
  local kb = t.kb
  local k, i = sub(x, 1, kb), call('ZRANK', p.leaf, x)
  local near = call('ZRANGE', p.leaf, math.max(i - 1, 0), i + 1)
  if i > 0 and sub(near[1], 1, kb) == k then return p end
  local next = near[i > 0 and 3 or 2]
  if next then
    if sub(next, 1, kb) == k then return p end
  else
    local q = {g = p.g, gi = p.gi, si = p.si + 1}
    q.s = call('ZRANGE', t.at .. 'd' .. p.g, q.si, q.si)[1]
    if not q.s and p.gi then
      q.s = call('ZRANGE', t.at .. 'r', p.gi + 1, p.gi + 1)[1]
      q.g, q.gi, q.si = q.s, p.gi + 1, 0
    end
    if q.s and #q.s > kb and sub(q.s, 1, kb) == k and sub(call('ZRANGE', t.at .. 'l' .. q.s, 0, 0)[1], 1, kb) == k then
      next = q -- the follower, unless the string before x has the rank key too
    end
  end
  if i == 0 and #p.s > kb and sub(p.s, 1, kb) == k then
    local s
    if p.si > 0 then
      s = call('ZRANGE', t.at .. 'd' .. p.g, p.si - 1, p.si - 1)[1]
    else
      local g = call('ZRANGE', t.at .. 'r', p.gi - 1, p.gi - 1)[1]
      s = call('ZRANGE', t.at .. 'd' .. g, -1, -1)[1]
    end
    if sub(call('ZRANGE', t.at .. 'l' .. s, -1, -1)[1], 1, kb) == k then return p end
  end
  if type(next) == 'table' then return next end
end

-- follow adds d, 1 or -1, to the number of followers of the leaf at p.
local function follow(t, p, d)
  local n = followers_of(t, p.g, p.si)
  call('SETBIT', t.at .. 'f' .. p.g, p.si * BITS + (d > 0 and n or n - 1), d > 0 and 1 or 0)
  if p.gi then
    add_due(t, 'f' .. p.gi + 1, d)
    add_due(t, 'ft', d)
  end
end

-- put adds the string x to a tree, and take removes x. If the tree has x already, or lacks it, nothing changes.
local function put(t, x)
  local p = find_place(t, x)
  if call('ZADD', p.leaf, '0', x) == 0 then return end
  local n = call('ZCARD', p.leaf)
  if p.si then
    local follower = find_follower(t, p, x)
    if follower then follow(t, follower, 1) end
    call('SETBIT', t.at .. 'c' .. p.g, p.si * BITS + n - 1, 1)
  end
  if p.gi then
    add_due(t, tostring(p.gi + 1), 1)
    add_due(t, 't', 1)
  end
  if n >= max_strings(x) then split(t, p) end
end

local function take(t, x)
  local p = find_place(t, x)
  if not call('ZSCORE', p.leaf, x) then return end
  local follower = p.si and find_follower(t, p, x)
  if follower then follow(t, follower, -1) end
  call('ZREM', p.leaf, x)
  local n = call('ZCARD', p.leaf)
  if p.si then call('SETBIT', t.at .. 'c' .. p.g, p.si * BITS + n, 0) end
  if p.gi then
    add_due(t, tostring(p.gi + 1), -1)
    add_due(t, 't', -1)
  end
  local least = floor(max_strings(x) / 4)
  if p.si and n < least then join(t, p, n, 3 * least) end
end
