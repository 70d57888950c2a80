-- Takes the lease of a scope and begins a generation in shard 0, whose control
-- is the scope's: the generation that is live there is the scope's.
-- KEYS[2] is the lease. ARGV: token, milliseconds, the end of the new
-- generation's name, length of rank keys, time, the least fence to go above,
-- a fence.
-- Answers with the generation, its fence, the number of shards and the live
-- generation; with '' for the generation, and begins none, if one of a greater
-- fence than the last argument is live; while another has the lease, FENCED and
-- the newest fence.
local token, ttl, nonce, kb, at, above = ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], tonumber(ARGV[8])
local c = control()
if c.live and tonumber(string.match(c.live, '^%d+')) > tonumber(ARGV[9]) then return {OK, '', 0, tonumber(c.S), c.live} end
local holder = call('GET', KEYS[2])
if holder and holder ~= token then return {FENCED, c.fence} end
call('SET', KEYS[2], token, 'PX', ttl)
S = c.S or S -- fixed when the scope came to be
local fence = math.max(c.fence, above) + 1
local g = fence .. '-' .. nonce
begin(c, g, fence, kb, at)
local live = call('HGET', T, 'live')
return {OK, g, fence, tonumber(S), live or ''}
