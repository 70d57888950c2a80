local function key(g, kind) return T .. ':' .. g .. ':' .. kind end

-- newer reports whether a is greater than b. Both are 8 bytes, big endian.
local function newer(a, b)
  for i = 1, TIME do
    local x, y = byte(a, i), byte(b, i)
    if x ~= y then return x > y end
  end
  return false
end

local function control()
  local v = call('HMGET', T, 'S', 'fence', 'live', 'next', 'id', 'vouched', 'kb', 'asof', 'nkb', 'nasof')
  return {
    S = v[1], fence = tonumber(v[2] or 0), live = v[3], next = v[4], id = v[5], vouched = v[6],
    kb = tonumber(v[7] or 0), asof = v[8], nkb = tonumber(v[9] or 0), nasof = v[10],
  }
end

-- enter returns the shard's control, or nil and the answer of the script.
local function enter()
  local c = control()
  if not (c.live or c.next) then return nil, {NONE} end
  if c.S ~= S then return nil, {SHARDS, tonumber(c.S)} end
  c.now = check_server(c.id, c.vouched)
  if not c.now then return nil, {LOST} end
  return c
end

-- check_memory raises an error if the server has no memory left. It runs before
-- the first change, because otherwise some commands of a script would fail and
-- others would not.
local function check_memory() call('HSET', T, 'room', 1) end

-- flip makes the generation that is being built the live one.
local function flip(c)
  local old = c.live
  call('HSET', T, 'live', c.next, 'kb', c.nkb, 'asof', c.nasof)
  call('HDEL', T, 'next', 'nkb', 'nasof')
  if old then unlink(old, c.S) end
  c.live, c.next = c.next, false
end

-- begin prepares a new generation in the shard.
local function begin(c, g, fence, kb, at)
  local id = identity()
  call('HSET', T, 'S', S, 'fence', fence, 'next', g, 'nkb', kb, 'nasof', at, 'id', id, 'vouched', clock())
  if c.next then unlink(c.next, c.S) end
  if c.live and (c.S ~= S or c.id ~= id) then
    call('HDEL', T, 'live', 'kb', 'asof')
    unlink(c.live, c.S)
  end
end

-- The dense rank counts different rank keys. Each rank key has a home among the
-- shards. The home is notified when a shard gets its first standing with the rank
-- key or loses its last. hold and release run at the home, and return the change
-- of its number of rank keys.
local function hold(g, name, k)
  local d = key(g, 'd:' .. name)
  if call('ZADD', d, 0, k) == 0 then
    -- With one shard, a rank key is held once, for any number of standings.
    if S ~= '1' then call('HINCRBY', key(g, 'c:' .. name), k, 1) end
    return 0
  end
  if S ~= '1' and call('ZCARD', d) == 1 then call('SADD', key(g, 'l'), name) end
  return 1
end

local function release(g, name, k)
  local c = key(g, 'c:' .. name)
  if S ~= '1' and call('HEXISTS', c, k) == 1 then
    if call('HINCRBY', c, k, -1) == 0 then call('HDEL', c, k) end
    return 0
  end
  return -call('ZREM', key(g, 'd:' .. name), k)
end
