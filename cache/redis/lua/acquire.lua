-- Takes the lease of a season and begins a generation in shard 0. Shard 0 decides
-- for the season: the generation that is live in shard 0 is the season's live one.
-- KEYS[2] is the lease. From ARGV[3] on, the arguments are:
--   token of the lease
--   lifetime of the lease in ms
--   suffix of the new generation's name
--   length of rank keys
--   time as of which the caller reads the store
--   a fence that the new generation's fence must exceed
--   a fence above which a live generation is recent enough for the caller, unless it has
--   copies of older shards
--   the tag of the board
-- Returns one of:
--   OK, the generation, its fence, the number of shards, the live generation, its length
--   of rank keys;
--   OK, '', 0, the number of shards, the live generation: the live generation is
--   recent enough, so the script began none;
--   FENCED and the newest fence: another process holds the lease.
local token, ttl, nonce, kb, at, above = ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], tonumber(ARGV[8])
local c = read_control()
local recent = c.live and tonumber(string.match(c.live, '^%d+')) > tonumber(ARGV[9])
if recent and sub(c.live, -1) ~= 'c' then return {OK, '', 0, tonumber(c.S), c.live} end
local holder = call('GET', KEYS[2])
if holder and holder ~= token then return {FENCED, c.fence} end
call('SET', KEYS[2], token, 'PX', ttl)
S = c.S or S -- the number is fixed when the season is first filled
local fence = math.max(c.fence, above) + 1
local g = fence .. '-' .. nonce
begin(c, g, fence, kb, at, ARGV[10])
return {OK, g, fence, tonumber(S), c.live or '', c.kb}
