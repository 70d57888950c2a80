-- Every script begins with this file, then read.lua or write.lua, then its own.
--
-- KEYS[1] is the control hash of one shard of a season. The shard's other keys
-- begin with this key, so they share its hash tag and slot. ARGV[1] is the number
-- of shards that the caller expects, ARGV[2] the number of this shard.
--
-- A generation is one fill of the season by a Rebuild, in keys of its own. Its name
-- begins with its fence, a number that is greater for each new generation. The
-- fields of the control hash are:
--   S         number of shards of the season
--   fence     fence of the newest generation
--   live      the generation that readers use
--   next      the generation that is being built
--   id        the server that the shard was written on: see identity
--   vouched   when a script last found the shard on that server
--   kb, asof  length of rank keys, and time of the last change, of live
--   nkb, nasof  the same of next
--
-- A generation's keys are the control key, a colon, the generation and:
--   :u        hash, user -> version, then prefix and divisions if ranked
--   :z:LADDER sorted set, all scores 0: the sort keys of the standings
--   :d:LADDER sorted set, all scores 0: rank keys whose home is this shard
--   :c:LADDER hash, rank key -> number of shards that hold it, less one; absent if 0
--   :l        set, the ladders
--   :o:SHARD  list, the outbox: changes of rank keys whose home is SHARD
--   :w        hash, counters. iN: items received from shard N; oN: items that
--             shard N acknowledged; untold: items in all outboxes; oldest: the
--             time of the last acknowledgement, or of the first item after the
--             outboxes were empty
-- A prefix is a rank key and achieved_at: a sort key without its user. Each rank key
-- has a home: the shard that counts it once for all shards. The hash of the rank key
-- determines which shard that is.
--
-- Scripts never compare strings with <, which depends on the server's locale.

local T, S, ME = KEYS[1], ARGV[1], ARGV[2]
local OK, NONE, SHARDS, LOST, FENCED, FORMAT = 0, 1, 2, 3, 4, 5
local TIME = 8 -- bytes of an instant or a version
local call, sub, byte = redis.call, string.sub, string.byte

-- identity returns a name of the server process and its term as master. It
-- changes with a restart or a failover, after which the data may be old.
local function identity()
  local info = redis.pcall('INFO', 'server', 'replication')
  if type(info) ~= 'string' then return '' end
  return (string.match(info, 'run_id:(%w+)') or '') .. '/' .. (string.match(info, 'master_replid2:(%w+)') or '')
end

local function clock()
  local t = call('TIME')
  return t[1] * 1000000 + t[2]
end

-- unlink frees a generation of a shard of a season with the given number of shards.
local function unlink(g, shards)
  local at = T .. ':' .. g
  for _, name in ipairs(call('SMEMBERS', at .. ':l')) do
    call('UNLINK', at .. ':z:' .. name, at .. ':d:' .. name, at .. ':c:' .. name)
  end
  for j = 0, tonumber(shards) - 1 do call('UNLINK', at .. ':o:' .. j) end
  call('UNLINK', at .. ':u', at .. ':l', at .. ':w')
end

-- empty_shard frees all generations of the shard. It keeps the number of shards
-- and the fence.
local function empty_shard()
  local v = call('HMGET', T, 'S', 'live', 'next')
  if v[2] then unlink(v[2], v[1]) end
  if v[3] then unlink(v[3], v[1]) end
  call('HDEL', T, 'live', 'next', 'id', 'vouched', 'kb', 'asof', 'nkb', 'nasof')
end

-- check_server returns the time. If this is not the server that the shard was
-- written on, it empties the shard and returns nil. A check is valid for 100 ms,
-- because a restart or an election takes longer.
local function check_server(id, vouched)
  local now = clock()
  if math.abs(now - (vouched or 0)) > 100000 then
    if identity() ~= id then
      empty_shard()
      return nil
    end
    redis.pcall('HSET', T, 'vouched', now) -- pcall, so that a server without memory still answers questions
  end
  return now
end
