-- A stretch of a ladder in this shard. ARGV: ladder; 'k', 'u' or 'i', that is
-- what the cut goes by; the sort key or position, from 0, of the cut; how many
-- before it; how many after it; a user or ''. By 'u' the cut is right before
-- the user.
-- Answers with the user's sort key, '' if none (then, by 'u', with nothing
-- more); the number before the cut; of those the number with a smaller rank key
-- than the cut; smaller rank keys whose home this is; the same, or equal; the
-- position of the first of the stretch; how many have a smaller rank key than
-- that; smaller rank keys whose home this is; the sort keys.
local c, refusal = enter()
if refusal then return refusal end
if not c.live then return {NONE} end
local ladder, by, x, above, below, user = ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8]
local z, d = key(c.live, 'z:' .. ladder), key(c.live, 'd:' .. ladder)
local reply = header(c, z)

local mine = ''
if user ~= '' then mine = place(c, user, ladder) end
reply[#reply + 1] = mine
if by == 'u' then
  if mine == '' then return reply end
  x = mine
end

local cut, better, smaller, equal = 0, 0, 0, 0
if by == 'i' then
  cut = math.min(tonumber(x), reply[6])
else
  cut = less(z, x)
  if S ~= '1' then
    local k = sub(x, 1, c.kb)
    better, smaller, equal = less(z, k), less(d, k), call('ZLEXCOUNT', d, '-', '[' .. k)
  end
end
local first = math.max(cut - above, 0)
local stretch = {}
if cut + below > first then stretch = call('ZRANGE', z, first, cut + below - 1) end
local start, distinct = 0, 0
if #stretch > 0 then
  local k = sub(stretch[1], 1, c.kb)
  start, distinct = less(z, k), less(d, k)
end
for _, v in ipairs({cut, better, smaller, equal, first, start, distinct}) do reply[#reply + 1] = v end
reply[#reply + 1] = stretch
return reply
