-- A question about the ladder ARGV[3] of the live generation. The answer begins
-- with OK, the generation, the time of the last change, the age of the shard's
-- outboxes in microseconds (0 if they are empty), the length of rank keys and the
-- size of the ladder.
local v = call('HMGET', T, 'S', 'live', 'busy', 'seen', 'asof', 'kb', 'buckets')
if not (v[2] and v[3]) then return {NONE} end
if v[1] ~= S then return {SHARDS, tonumber(v[1])} end
local now = check_server(v[4], v[3])
if not now then return {LOST} end
local kb, buckets, number = tonumber(v[6]), tonumber(v[7]), '0'
local live = T .. ':' .. v[2]
if ARGV[3] ~= '' then number = call('HGET', live .. ':l', ARGV[3]) or 'none' end
local z = live .. ':' .. number
local reply = {OK, v[2], v[5], 0, kb, false}
if S ~= '1' then
  local oldest = call('HGET', live .. ':w', 'oldest')
  if oldest then reply[4] = now - oldest end
end

-- size returns the number of strings of a tree.
local function size(at)
  local n = call('HGET', at .. 's', 't')
  if n then return tonumber(n) end
  n = call('BITCOUNT', at .. 'c')
  if n > 0 then return n end
  return call('ZCARD', at .. 'l')
end

-- sort_key returns the sort key of a user in the ladder, or '' if the user does
-- not stand there.
local function sort_key(user, h)
  local s = call('HGET', live .. ':u' .. bucket(h, buckets), user)
  if not s then return '' end
  local from = byte(s, 1) + 2
  local to = from + kb + TIME - 1
  if #s < to then return '' end
  local prefix = sub(s, from, to)
  if number == '0' then return prefix .. user end
  for i = to + 1, #s, LADDER do
    local a, b, c = byte(s, i, i + 2)
    if a * 65536 + b * 256 + c == tonumber(number) then return prefix .. user end
  end
  return ''
end

-- before returns the number of strings before the leaf that seek found, and the
-- number of followers in groups before its own, or nil if the tree has none.
local function before(at, g, gi, si)
  local n, followers = 0, 0
  if si and si > 0 then n = call('BITCOUNT', at .. 'c' .. g, '0', si * BLOCK - 1) end
  if gi then
    local fields, i = {'t', 'ft'}, gi
    while i > 0 do
      fields[#fields + 1] = i
      i = i - low(i)
    end
    local v = call('HMGET', at .. 's', unpack(fields))
    for i = 3, #v do n = n + v[i] end
    if at == z then reply[6] = tonumber(v[1]) end
    if v[2] == '0' then return n, S ~= '1' and 0 or nil end
    if gi > 0 then
      for i = 3, #fields do fields[i] = 'f' .. fields[i] end
      v = call('HMGET', at .. 's', unpack(fields))
      for i = 3, #v do followers = followers + v[i] end
    end
  end
  return n, followers
end

-- followers returns the number of followers in the ladder before the i-th string of
-- a leaf, which is not a follower. The last argument is the result of before.
local function followers(g, s, si, i, n)
  local from, to = 0, i - 1
  if si then
    local upto, sofar = call('BITCOUNT', z .. 'f' .. g, 0, (si + 1) * BLOCK - 1), 0
    if upto == 0 then return n end
    if si > 0 then sofar = call('BITCOUNT', z .. 'f' .. g, 0, si * BLOCK - 1) end
    n = n + sofar
    if i == 0 or upto == sofar then return n end
    n = n + upto - sofar
    from, to = i, -1 -- those that are not before
  elseif i == 0 then
    return 0
  end
  local last, pairs = false, 0
  for _, x in ipairs(call('ZRANGE', z .. 'l' .. s, from, to)) do
    local k = sub(x, 1, kb)
    if k == last then pairs = pairs + 1 end
    last = k
  end
  return si and n - pairs or n + pairs
end

-- count returns the number of strings of a tree that are less than x.
local function count(at, x)
  local g, gi, s, si = seek(at, x)
  return before(at, g, gi, si) + call('ZLEXCOUNT', at .. 'l' .. s, '-', '(' .. x)
end

-- less returns the number of standings in the ladder with a smaller rank key than
-- k, and of different smaller rank keys. k may be the beginning of a rank key.
local function less(k)
  if S ~= '1' then return count(z, k), count(z .. 'k', k) end
  local g, gi, s, si = seek(z, k)
  local i = call('ZLEXCOUNT', z .. 'l' .. s, '-', '(' .. k)
  local n, f = before(z, g, gi, si)
  return n + i, f and n + i - followers(g, s, si, i, f) or n + i
end

-- less_than_at returns the same as less for the rank key of x, which is the i-th
-- string of a leaf. n and f are the results of before.
local function less_than_at(x, g, gi, s, si, i, n, f)
  if not f then return n + i, n + i end -- all rank keys are different
  local k = sub(x, 1, kb)
  local same
  if i > 0 then
    local j = tostring(i - 1)
    same = sub(call('ZRANGE', z .. 'l' .. s, j, j)[1], 1, kb) == k
  else
    same = #s > kb and sub(s, 1, kb) == k
  end
  if same then return less(k) end
  return n + i, S == '1' and n + i - followers(g, s, si, i, f) or 0
end
