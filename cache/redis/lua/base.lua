-- What every script begins with; then comes read.lua or write.lua, and then the
-- script's own file.
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
local TIME = 8 -- bytes of an instant or a version
local call, sub, byte = redis.call, string.sub, string.byte

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

-- unlink frees a generation of a shard that was one of so many.
local function unlink(g, shards)
  local at = T .. ':' .. g
  for _, name in ipairs(call('SMEMBERS', at .. ':l')) do
    call('UNLINK', at .. ':z:' .. name, at .. ':d:' .. name, at .. ':c:' .. name)
  end
  for j = 0, tonumber(shards) - 1 do call('UNLINK', at .. ':o:' .. j) end
  call('UNLINK', at .. ':u', at .. ':l', at .. ':w')
end

-- forget empties the shard. Its number of shards and its fence stay.
local function forget()
  local v = call('HMGET', T, 'S', 'live', 'next')
  if v[2] then unlink(v[2], v[1]) end
  if v[3] then unlink(v[3], v[1]) end
  call('HDEL', T, 'live', 'next', 'id', 'vouched', 'kb', 'asof', 'nkb', 'nasof')
end

-- vouch returns the time, or nil if this is not the server that wrote the shard,
-- which is then empty. It looks again after a tenth of a second, less than a
-- restart or an election takes.
local function vouch(id, vouched)
  local now = clock()
  if math.abs(now - (vouched or 0)) > 100000 then
    if identity() ~= id then
      forget()
      return nil
    end
    redis.pcall('HSET', T, 'vouched', now) -- a full server still answers questions
  end
  return now
end
