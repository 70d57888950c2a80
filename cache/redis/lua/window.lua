-- A stretch of the ladder in this shard. ARGV[4] says what the cut goes by: 'k',
-- 'u' or 'i'. Then: the sort key or position, from 0, of the cut; how many before
-- it; how many behind it; a user or ''. By 'u' the cut is right before the user.
-- Answers with the user's sort key, '' if none (then, by 'u', with nothing
-- more); the number before the cut; of those the number with a smaller rank key
-- than the cut; smaller rank keys whose home this is; the same, or equal; the
-- position of the first of the stretch; how many have a smaller rank key than
-- that; smaller rank keys whose home this is; the sort keys.
local by, x, above, below, user = ARGV[4], ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8]
local mine = ''
if user ~= '' then mine = place(user) end
reply[7] = mine
if by == 'u' and mine == '' then return reply end

local cut, better, smaller, equal = 0, 0, 0, 0
if by == 'i' then
  cut = math.min(tonumber(x), reply[6])
elseif by == 'u' then
  cut = call('ZRANK', z, mine)
  if not cut then -- as in standings.lua
    forget()
    return {LOST}
  end
else
  cut = less(z, x)
  if S ~= '1' then
    local k = sub(x, 1, kb)
    better, smaller, equal = less(z, k), less(d, k), call('ZLEXCOUNT', d, '-', '[' .. k)
  end
end
local first = math.max(cut - above, 0)
local stretch = {}
if cut + below > first then stretch = call('ZRANGE', z, first, cut + below - 1) end
local start, distinct = 0, 0
if #stretch > 0 and first > 0 then
  local k = sub(stretch[1], 1, kb)
  start, distinct = less(z, k), less(d, k)
end
for i, v in ipairs({cut, better, smaller, equal, first, start, distinct}) do reply[7 + i] = v end
reply[15] = stretch
return reply
