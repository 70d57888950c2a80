-- Takes the lease of a season and begins a generation in shard 0. Shard 0 decides
-- for the season: the generation that is live in shard 0 is the season's live one.
-- KEYS[2] is the lease. From ARGV[3] on, the arguments are:
--   token of the lease
--   lifetime of the lease in ms
--   suffix of the new generation's name
--   length of rank keys
--   time as of which the caller reads the store
--   a fence that the new generation's fence must exceed
--   a fence F. The script begins no generation if the live one has a fence above F, S shards and
--   no copied records
--   the tag of the board
--   the board's own number of shards. If it is 0, S becomes the recorded number, if any
--   pairs of a partition of the log and an offset: see begin in write.lua
-- Returns one of:
--   OK, the generation, its fence, its number of shards; the live generation or '', its number of
--   shards, its length of rank keys; the former value of leftS, or 0
--   OK, '', 0, the number of shards, the live generation: no generation was begun
--   FENCED and the newest fence: another process holds the lease

--include base
--include server
--include write

local token, ttl, nonce, kb, at, above = ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], tonumber(ARGV[8])
local c = read_control()
if ARGV[11] == '0' and c.S then S = c.S end
local recent = c.live and c.S == S and tonumber(string.match(c.live, '^%d+')) > tonumber(ARGV[9])
if recent and sub(c.live, -1) ~= 'c' then return {OK, '', 0, tonumber(S), c.live} end
local holder = call('GET', KEYS[2])
if holder and holder ~= token then return {FENCED, c.fence} end
call('SET', KEYS[2], token, 'PX', ttl)
local fence = math.max(c.fence, above) + 1
local g = fence .. '-' .. nonce
begin(c, g, fence, kb, at, ARGV[10], 12)
local left = call('HGET', T, 'leftS') or 0
if c.live and c.S ~= S then call('HSET', T, 'leftS', c.S) end
return {OK, g, fence, tonumber(S), c.live or '', tonumber(c.S or S), c.kb, tonumber(left)}
