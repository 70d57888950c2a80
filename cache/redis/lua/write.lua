local function key(g, kind) return T .. ':' .. g .. ':' .. kind end

-- is_newer reports whether version a is greater than b. Neither has leading zero bytes.
local function is_newer(a, b)
  if #a ~= #b then return #a > #b end
  for i = 1, #a do
    local x, y = byte(a, i), byte(b, i)
    if x ~= y then return x > y end
  end
  return false
end

-- read_control returns the control hash (see base.lua). If the shard is empty, live and next are false.
-- In the result, dead lists all generations that free.lua must free, and queued is the hash's field dead,
-- which lacks the generations of an empty shard.
local function read_control()
  local v = call('HMGET', T, 'S', 'fence', 'live', 'next', 'id', 'seen', 'busy', 'dead', 'kb', 'asof', 'buckets', 'nkb', 'nasof', 'nbuckets', 'aside', 'tag', 'ntag', 'nS')
  local c = {
    S = v[1], fence = tonumber(v[2] or 0), live = v[3], next = v[4], id = v[5], seen = v[6], busy = v[7], queued = v[8] or '', dead = v[8] or '',
    kb = tonumber(v[9] or 0), asof = v[10], buckets = tonumber(v[11] or 0),
    nkb = tonumber(v[12] or 0), nasof = v[13], nbuckets = tonumber(v[14] or 0), aside = v[15] or '',
    tag = v[16] or '', ntag = v[17] or '', nS = v[18] or v[1],
  }
  if not c.busy then
    if c.live then c.dead = c.dead .. c.live .. ' ' .. c.buckets .. ' ' end
    if c.next then c.dead = c.dead .. c.next .. ' ' .. c.nbuckets .. ' ' end
    c.dead = c.dead .. c.aside
    c.live, c.next, c.aside = false, false, ''
  end
  return c
end

-- enter returns the result of read_control and check_server: see server.lua. In the result, doubt is true
-- if the shard is in doubt. enter returns nil and the script's answer instead if
--   - the shard is empty or lost, or
--   - no generation has S shards, or
--   - the shard is in doubt, and in_doubt is false.
-- A generation without S shards moves from the field live to other_live, or from next to other_next.
local function enter(in_doubt)
  local c = read_control()
  if not (c.live or c.next) then return nil, {NONE} end
  if not (c.live and c.S == S or c.next and c.nS == S) then return nil, {SHARDS, tonumber(c.live and c.S or c.nS)} end
  local state
  c.now, state, c.server = check_server(c.id, c.seen, c.busy)
  c.doubt = state == DOUBT
  if state == LOST or c.doubt and not in_doubt then return nil, {state} end
  if c.live and c.S ~= S then c.live, c.other_live = false, c.live end
  if c.next and c.nS ~= S then c.next, c.other_next = false, c.next end
  return c
end

-- mark_busy marks the shard as being changed. Scripts call mark_busy before their first change. If the
-- server has no memory left, or if the slot is being moved (see inline/slot.lua), mark_busy raises an error.
local function mark_busy()
  --include inline/slot
  call('HSET', T, 'busy', 1)
end

local function forget_next() call('HDEL', T, 'next', 'nkb', 'nasof', 'nbuckets', 'aside', 'ntag', 'nS') end

-- flip makes the generation that is being built the live one.
local function flip(c)
  local old = c.live or c.other_live
  if old then c.dead = c.dead .. old .. ' ' .. c.buckets .. ' ' end
  call('HSET', T, 'S', c.nS, 'live', c.next, 'kb', c.nkb, 'asof', c.nasof, 'buckets', c.nbuckets, 'tag', c.ntag, 'dead', c.dead .. c.aside)
  call('HDEL', T, 'next', 'nkb', 'nasof', 'nbuckets', 'aside', 'ntag')
  c.S, c.live, c.kb, c.asof, c.buckets, c.next, c.other_live = c.nS, c.next, c.nkb, c.nasof, c.nbuckets, false, false
  c.dead, c.aside = c.dead .. c.aside, ''
end

-- record records positions in the hash :at (see base.lua). In ARGV, pairs of a partition and an offset
-- begin at the index first. Recorded offsets never become smaller.
local function record(first)
  local at = T .. ':at'
  for i = first, #ARGV, 2 do
    if tonumber(ARGV[i + 1]) > tonumber(call('HGET', at, ARGV[i]) or -1) then call('HSET', at, ARGV[i], ARGV[i + 1]) end
  end
end

-- begin prepares a new generation of S shards in this shard. In ARGV, pairs of a partition and an offset
-- begin at the index first. The store has the results of all messages before these offsets.
local function begin(c, g, fence, kb, at, tag, first)
  local server = identity()
  if c.next then c.dead = c.dead .. c.next .. ' ' .. c.nbuckets .. ' ' end
  c.dead = c.dead .. c.aside
  if c.live and (c.id ~= LAYOUT .. server or c.busy == '1') then
    c.dead = c.dead .. c.live .. ' ' .. c.buckets .. ' '
    c.live = false
  end
  call('HSET', key(g, 'l'), '', 0)
  local old = c.live and c.S or S
  call('HSET', T, 'S', old, 'nS', S, 'fence', fence, 'next', g, 'nkb', kb, 'nasof', at, 'nbuckets', 1, 'ntag', tag, 'dead', c.dead, 'id', LAYOUT .. server, 'seen', 0, 'busy', 0)
  call('HDEL', T, 'aside')
  if not c.live then
    call('HDEL', T, 'live', 'kb', 'asof', 'buckets')
    record(first)
  end
end
