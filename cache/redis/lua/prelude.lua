-- What every script begins with.
--
-- KEYS[1] is the control hash of one shard of a scope. The shard's other keys
-- begin with it, so they have its hash tag and its slot. ARGV[1] is the number
-- of shards that the caller believes in, ARGV[2] this shard's number.
--
-- A generation's keys, after the control key, a colon and the generation:
--   :u        hash, user -> version, then prefix and divisions if ranked
--   :z:LADDER sorted set, all scores 0: the sort keys of the standings
--   :d:LADDER sorted set, all scores 0: rank keys whose home is this shard
--   :c:LADDER hash, rank key -> further shards that hold it
--   :l        set, the ladders
--   :o:SHARD  list, what SHARD has yet to be told about rank keys whose home it is
--   :w        hash, counters
-- A prefix is a rank key and achieved_at: a sort key without its user.
--
-- Strings are never compared with <, which goes by the server's locale.

local T, S, ME = KEYS[1], ARGV[1], ARGV[2]
local OK, NONE, SHARDS, LOST, FENCED, FORMAT = 0, 1, 2, 3, 4, 5
local VOUCHED = 100000 -- microseconds for which the server's identity is believed
local TIME = 8         -- bytes of an instant or a version
local call, sub, byte = redis.call, string.sub, string.byte

local function key(g, kind) return T .. ':' .. g .. ':' .. kind end

-- newer says whether a is greater than b, both 8 bytes, big endian.
local function newer(a, b)
  for i = 1, TIME do
    local x, y = byte(a, i), byte(b, i)
    if x ~= y then return x > y end
  end
  return false
end

-- identity names the server process and its term as master: after a restart or
-- a failover it is another one, and what it holds may be old.
local function identity()
  local info = redis.pcall('INFO', 'server', 'replication')
  if type(info) ~= 'string' then return '' end
  return (string.match(info, 'run_id:(%w+)') or '') .. '/' .. (string.match(info, 'master_replid2:(%w+)') or '')
end

local function clock()
  local t = call('TIME')
  return t[1] * 1000000 + t[2]
end

local function control()
  local v = call('HMGET', T, 'S', 'fence', 'live', 'next', 'id', 'vouched', 'kb', 'asof', 'nkb', 'nasof')
  return {
    S = v[1], fence = tonumber(v[2] or 0), live = v[3], next = v[4], id = v[5], vouched = tonumber(v[6] or 0),
    kb = tonumber(v[7] or 0), asof = v[8], nkb = tonumber(v[9] or 0), nasof = v[10],
  }
end

-- unlink frees a generation of a shard that was one of so many.
local function unlink(g, shards)
  for _, name in ipairs(call('SMEMBERS', key(g, 'l'))) do
    call('UNLINK', key(g, 'z:' .. name), key(g, 'd:' .. name), key(g, 'c:' .. name))
  end
  for j = 0, tonumber(shards) - 1 do call('UNLINK', key(g, 'o:' .. j)) end
  call('UNLINK', key(g, 'u'), key(g, 'l'), key(g, 'w'))
end

-- forget empties the shard. Its number of shards and its fence stay.
local function forget(c)
  if c.live then unlink(c.live, c.S) end
  if c.next then unlink(c.next, c.S) end
  call('HDEL', T, 'live', 'next', 'id', 'vouched', 'kb', 'asof', 'nkb', 'nasof')
end

-- enter returns the shard's control, or nil and what to answer instead.
local function enter()
  local c = control()
  if not (c.live or c.next) then return nil, {NONE} end
  if c.S ~= S then return nil, {SHARDS, tonumber(c.S)} end
  c.now = clock()
  if math.abs(c.now - c.vouched) > VOUCHED then
    if identity() ~= c.id then
      forget(c)
      return nil, {LOST}
    end
    call('HSET', T, 'vouched', c.now)
  end
  return c
end

-- flip makes the generation that was being built the live one.
local function flip(c)
  local old = c.live
  call('HSET', T, 'live', c.next, 'kb', c.nkb, 'asof', c.nasof)
  call('HDEL', T, 'next', 'nkb', 'nasof')
  if old then unlink(old, c.S) end
  c.live, c.next = c.next, false
end

-- begin makes room for a new generation that is to be built.
local function begin(c, g, fence, kb, at)
  local id = identity()
  if c.next then unlink(c.next, c.S) end
  if c.live and (c.S ~= S or c.id ~= id) then
    unlink(c.live, c.S)
    call('HDEL', T, 'live', 'kb', 'asof')
  end
  call('HSET', T, 'S', S, 'fence', fence, 'next', g, 'nkb', kb, 'nasof', at, 'id', id, 'vouched', clock())
end

-- header begins the answer to a question about a ladder.
local function header(c, z)
  local pending = 0
  if S ~= '1' then
    local oldest = call('HGET', key(c.live, 'w'), 'oldest')
    if oldest then pending = c.now - oldest end
  end
  return {OK, c.live, c.asof, pending, c.kb, call('ZCARD', z)}
end

-- place returns the sort key of a user in a ladder, '' if not standing there.
local function place(c, user, ladder)
  local s = call('HGET', key(c.live, 'u'), user)
  if not s or #s == TIME then return '' end
  local prefix = sub(s, TIME + 1, 2 * TIME + c.kb)
  if ladder == '' then return prefix .. user end
  local i = 2 * TIME + c.kb + 1
  while i <= #s do
    local n = byte(s, i)
    if n == #ladder and sub(s, i + 1, i + n) == ladder then return prefix .. user end
    i = i + 1 + n
  end
  return ''
end

-- less counts the members of a sorted set that are smaller than x.
local function less(set, x) return call('ZLEXCOUNT', set, '-', '(' .. x) end

-- The dense rank counts different rank keys. Each has a home among the shards,
-- which is told when a shard gets its first standing of it or loses its last.
-- hold and release are done at the home.
local function hold(g, name, k)
  local d = key(g, 'd:' .. name)
  if call('ZADD', d, 0, k) == 0 then
    -- At an only shard a rank key is held once, however many stand with it.
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
