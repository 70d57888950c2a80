-- Scripts with this file answer a question about the ladder ARGV[3] of the live generation.
-- ARGV[4] has a letter for each count that the caller uses, in this order: c for standings
-- with a smaller rank key, d for different smaller rank keys, w for standings with the same
-- rank key or a smaller one. Other counts in the answer have no meaning.
-- The answer begins with:
--   OK and the live generation
--   the time of the last change
--   the length of rank keys
--   the size of the ladder
local v = call('HMGET', T, 'S', 'live', 'busy', 'seen', 'asof', 'kb', 'buckets')
if not (v[2] and v[3]) then return {NONE} end
if v[1] ~= S then return {SHARDS, tonumber(v[1])} end
-- While the slot moves, updates fail, and the answer could lack them.
--include inline/slot
local t = call('TIME')
local now = t[1] * 1000000 + t[2]
-- Usually the last check is still valid: see check_server.
if v[3] ~= '0' or math.abs(now - v[4]) >= FRESH then
  --include server
  local _, state = check_server(call('HGET', T, 'id'), v[4], v[3])
  if state ~= OK then return {state} end
end
local kb, buckets, number = v[6] + 0, v[7] + 0, '0' -- arithmetic converts faster than tonumber
local live = T .. ':' .. v[2]
if ARGV[3] ~= '' then number = call('HGET', live .. ':l', ARGV[3]) or 'none' end
local z = live .. ':' .. number
local reply, n = {OK, v[2], v[5], kb, false, nil, nil, nil, nil, nil, nil, nil}, 5 -- the nils reserve room
local c, d = byte(ARGV[4], 1, 2)
local COMPETITION, DENSE = c == 99, c == 100 or d == 100
local all, ties = nil, true -- see inline/locate.lua
local summed_gi, strings_before, all_strings, followed, followers_before -- see inline/sum.lua
local count_at, count, count_less, count_not_worse -- see count.lua
