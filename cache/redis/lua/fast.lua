-- This file makes the most frequent update in as few commands as possible: one user's move in
-- the overall ladder. If the update is not simple, the function fast
-- changes nothing and returns nil, and update.lua makes the update. For example, a leaf (see
-- tree.lua) must split or join, or the update depends on strings of a third leaf.
local function fast()
  local user, version, prefix, at = ARGV[6], ARGV[8], ARGV[9], ARGV[5]
  local v = call('HMGET', T, 'S', 'live', 'next', 'busy', 'seen', 'kb', 'asof', 'buckets', 'dead', 'id')
  if v[1] ~= S or not v[2] or v[3] or v[4] ~= '0' or (v[9] or '') ~= '' then return end
  local now, kb = call('TIME'), tonumber(v[6])
  if math.abs(now[1] * 1000000 + now[2] - v[5]) > FRESH or #prefix ~= kb + TIME then return end

  local z = T .. ':' .. v[2]
  local u
  do
    local bucket, h, buckets = nil, ARGV[7], tonumber(v[8])
    --include inline/bucket
    u = z .. ':u' .. bucket
  end
  local old = call('HGET', u, user)
  if not old then return end
  local n = byte(old, 1)
  local old_version, old_prefix = sub(old, 2, n + 1), sub(old, n + 2)
  if #old_prefix ~= #prefix then return end -- not ranked, or in divisions
  if #version < #old_version then return end
  if #version == #old_version then
    local i = 1
    while i <= n and byte(version, i) == byte(old_version, i) do i = i + 1 end
    if i > n or byte(version, i) < byte(old_version, i) then return end
  end
  local k, l = sub(prefix, 1, kb), sub(old_prefix, 1, kb)
  if k == l then return end

  z = z .. ':0'
  local x, y = prefix .. user, old_prefix .. user -- the new and the old sort key
  local g, gi, s, si = seek(z, x)
  local h, hi, t, ti = seek(z, y)
  if not si then return end
  local to, from = z .. 'l' .. s, z .. 'l' .. t
  local arrived, left = call('ZCARD', to) + 1, call('ZCARD', from) - 1
  if arrived >= max_strings(x) or left < floor(max_strings(y) / 4) then return end
  -- k is the new rank key, and l the old rank key. Read the first string of the new leaf whose rank
  -- key is at least k.
  local near = call('ZRANGEBYLEX', to, '[' .. k, '+', 'LIMIT', '0', '1')[1]
  if not near then return end
  -- If another standing has the rank key k, the move adds a follower: see tree.lua.
  local twin = sub(near, 1, kb) == k
  if not twin and #s > kb and sub(s, 1, kb) == k then return end
  -- If another standing has the rank key l, the move removes a follower.
  local parted = false
  if not gi or call('HGET', z .. 's', 'ft') ~= '0' then -- the tree may have followers
    -- Read the first two strings of the old leaf whose rank key is at least l.
    near = call('ZRANGEBYLEX', from, '[' .. l, '+', 'LIMIT', '0', '2')
    parted = near[1] ~= y or near[2] and sub(near[2], 1, kb) == l
    if not parted and (not near[2] or #t > kb and sub(t, 1, kb) == l) then return end
  end

  --include inline/slot
  call('HSET', T, 'busy', '1')
  call('HSET', u, user, string.char(#version) .. version .. prefix)
  call('ZADD', to, '0', x)
  if call('ZREM', from, y) == 0 then return {LOST} end -- someone removed y by hand; the shard stays busy, which means lost
  if s ~= t then
    call('SETBIT', z .. 'c' .. g, si * BITS + arrived - 1, '1')
    call('SETBIT', z .. 'c' .. h, ti * BITS + left, '0')
  end
  if twin then
    local n = call('BITCOUNT', z .. 'f' .. g, si * BLOCK, si * BLOCK + BLOCK - 1)
    call('SETBIT', z .. 'f' .. g, si * BITS + n, '1')
  end
  if parted then
    local n = call('BITCOUNT', z .. 'f' .. h, ti * BLOCK, ti * BLOCK + BLOCK - 1)
    call('SETBIT', z .. 'f' .. h, ti * BITS + n - 1, '0')
  end
  if gi then
    local groups, sums = call('ZCARD', z .. 'r'), z .. 's'
    if gi ~= hi then
      local i, j = gi + 1, hi + 1
      while i ~= j and math.min(i, j) <= groups do
        if i < j then
          call('HINCRBY', sums, i, '1')
          i = i + low_bit(i)
        else
          call('HINCRBY', sums, j, '-1')
          j = j + low_bit(j)
        end
      end
    end
    local function follow(i, d)
      call('HINCRBY', sums, 'ft', d)
      while i <= groups do
        call('HINCRBY', sums, 'f' .. i, d)
        i = i + low_bit(i)
      end
    end
    if twin then follow(gi + 1, '1') end
    if parted then follow(hi + 1, '-1') end
  end
  local asof, i = v[7], 1
  while i < TIME and byte(at, i) == byte(asof, i) do i = i + 1 end
  if byte(at, i) > byte(asof, i) then
    call('HSET', T, 'busy', '0', 'asof', at)
  else
    call('HSET', T, 'busy', '0')
  end
  return {OK, '', 0, sub(v[10], 3), 0}
end

if #ARGV == 10 and ARGV[3] == '' and #ARGV[5] == TIME and ARGV[9] ~= '' and ARGV[10] == '' then
  local done = fast()
  if done then return done end
end
