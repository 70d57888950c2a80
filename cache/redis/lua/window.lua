-- Reads this shard's part of a window of the ladder. ARGV[4] is the kind of cut:
-- 'k' a sort key, 'i' a position from 0, 'u' right before the user. Then come the
-- sort key or position, the number of standings before the cut, the number behind
-- it, and a user or ''.
-- Returns the user's sort key, or '' if the user is not in the ladder. In that case,
-- if the kind is 'u', the answer ends here. Otherwise these follow:
--   cut       standings before the cut
--   better    standings with a smaller rank key than the cut's
--   smaller   rank keys smaller than the cut's whose home is this shard
--   equal     the same, the cut's own included
--   first     position of the part's first standing
--   start     standings with a smaller rank key than the first standing's
--   distinct  rank keys smaller than the first standing's whose home is this shard
--   keys      the sort keys
local by, x, above, below, user = ARGV[4], ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8]
local mine = ''
if user ~= '' then mine = sort_key(user) end
reply[7] = mine
if by == 'u' and mine == '' then return reply end

local cut, better, smaller, equal = 0, 0, 0, 0
if by == 'i' then
  cut = math.min(tonumber(x), reply[6])
elseif by == 'u' then
  cut = call('ZRANK', z, mine)
  if not cut then -- members were removed by hand, as in standings.lua
    empty_shard()
    return {LOST}
  end
else
  cut = count_less(z, x)
  if S ~= '1' then
    local k = sub(x, 1, kb)
    better, smaller, equal = count_less(z, k), count_less(d, k), call('ZLEXCOUNT', d, '-', '[' .. k)
  end
end
local first = math.max(cut - above, 0)
local keys = {}
if cut + below > first then keys = call('ZRANGE', z, first, cut + below - 1) end
local start, distinct = 0, 0
if #keys > 0 and first > 0 then
  local k = sub(keys[1], 1, kb)
  start, distinct = count_less(z, k), count_less(d, k)
end
for i, v in ipairs({cut, better, smaller, equal, first, start, distinct}) do reply[7 + i] = v end
reply[15] = keys
return reply
