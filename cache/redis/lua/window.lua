-- Reads this shard's part of a window of the ladder. ARGV[4] is the kind of cut:
-- 'k' a sort key, 'i' a position from 0, 'u' right before the user. Then come the
-- sort key or position, the number of standings before the cut, the number behind
-- it, and a user and its hash, or ''.
-- Returns the user's sort key, or '' if the user is not in the ladder. In that case,
-- if the kind is 'u', the answer ends here. Otherwise these follow:
--   cut       standings before the cut
--   better    standings with a smaller rank key than the cut's
--   smaller   rank keys smaller than the cut's whose home is this shard
--   equal     the same, the cut's own included
--   first     position of the part's first standing
--   start     standings with a smaller rank key than the first standing's
--   distinct  rank keys smaller than the first standing's; 0 if S > 1
--   keys      lists of the sort keys, in order
local by, x, above, below, user = ARGV[4], ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8]
local mine = ''
if user ~= '' then mine = sort_key(user, ARGV[9]) end
reply[7] = mine
if by == 'u' and mine == '' then
  reply[6] = size(z)
  return reply
end

local cut, better, smaller, equal = 0, 0, 0, 0
local g, gi, s, si, i -- the leaf of the cut, and the cut's position in it
local n, f            -- the results of before
if by == 'i' then
  reply[6] = size(z)
  cut = math.min(tonumber(x), reply[6])
elseif x ~= '' or by == 'u' then
  if by == 'u' then
    g, gi, s, si = seek(z, mine)
    i = call('ZRANK', z .. 'l' .. s, mine)
    if not i then -- members were removed by hand, as in standings.lua
      empty_shard()
      return {LOST}
    end
  else
    g, gi, s, si = seek(z, x)
    i = call('ZLEXCOUNT', z .. 'l' .. s, '-', '(' .. x)
  end
  n, f = before(z, g, gi, si)
  cut = n + i
  if by == 'k' and S ~= '1' then
    local k = sub(x, 1, kb)
    better, smaller = less(k)
    equal = count(z .. 'k', k .. '\0')
  end
end
if not reply[6] then reply[6] = size(z) end

local first = math.max(cut - above, 0)
local want = math.min(cut + below, reply[6]) - first
local keys, start, distinct = {}, 0, 0
if want > 0 then
  if i and i - (cut - first) >= 0 then
    i = i - (cut - first)
  elseif first == 0 then
    g, gi, s, si, i = '', 0, '', 0, 0 -- next_leaf finds none if there is none
  else
    g, gi, s, si, i = seek_at(z, first)
    n = false
  end
  local part = call('ZRANGE', z .. 'l' .. s, i, i + want - 1)
  if #part == 0 then -- the cut is behind the last string of its leaf
    g, gi, s, si = next_leaf(z, g, gi, s, si)
    i, n = 0, false
    part = call('ZRANGE', z .. 'l' .. s, 0, want - 1)
  end
  if first > 0 then
    if not n then n, f = before(z, g, gi, si) end
    start, distinct = less_than_at(part[1], g, gi, s, si, i, n, f)
  end
  repeat
    keys[#keys + 1] = part
    want = want - #part
    if want <= 0 then break end
    g, gi, s, si = next_leaf(z, g, gi, s, si)
    if g then part = call('ZRANGE', z .. 'l' .. s, 0, want - 1) end
  until not g
end
for a, value in ipairs({cut, better, smaller, equal, first, start, distinct, keys}) do reply[7 + a] = value end
return reply
