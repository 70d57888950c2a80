-- Reads this shard's part of an excerpt of the ladder: the standings around a cut. A cut is a
-- point between two standings. ARGV[5] states how the caller names it: 'k' by a sort key,
-- which is behind the cut; 'i' by the number of standings before it; 'u' right before a user's
-- standing. Then come that sort key or number, the numbers of standings to read before and
-- behind the cut, and a user and the user's hash, or ''.
-- Returns the user's sort key, or '' if the user is not in the ladder. In that case,
-- if the kind is 'u', the answer ends here. Otherwise these follow:
--   cut       standings before the cut
--   better    standings with a smaller rank key than the cut's, the rank key of the sort key
--             that names the cut
--   smaller   rank keys smaller than the cut's whose home is this shard
--   equal     the same, including the cut's own rank key
--   notworse  standings with the cut's rank key or a smaller one; 0 if the part ends with
--             a greater rank key: the caller then counts these standings in the part
--   first     position of the part's first standing
--   start     standings with a smaller rank key than the first standing's
--   distinct  rank keys smaller than the first standing's; 0 if S > 1
--   keys      lists of the sort keys, in order
local by, x, above, below, user = ARGV[5], ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9]
local mine = ''
if user ~= '' then mine = sort_key(user, ARGV[10]) end
reply[7] = mine
if by == 'u' then
  if mine == '' then
    reply[6] = (size(z))
    return reply
  end
  x = mine
end

local cut, better, smaller, equal, notworse = 0, 0, 0, 0, 0
local g, gi, s, si, i -- the leaf of the cut, and the cut's position in it
local all, ties = nil, true
local count_less, count_less_at, count, count_not_worse
if by == 'i' then
  all, ties = size(z)
  cut = math.min(tonumber(x), all)
elseif x ~= '' then
  g, gi, s, si = seek(z, x)
  if by == 'u' then
    i = call('ZRANK', z .. 'l' .. s, x)
    if not i then -- members were removed by hand: see standings.lua
      empty_shard()
      return {LOST}
    end
  else
    i = call('ZLEXCOUNT', z .. 'l' .. s, '-', '(' .. x)
  end
  cut, all, ties = count_before(z, g, gi, si)
  cut = cut + i
  if S ~= '1' then
    count_less, count_less_at, count, count_not_worse = counters()
    local k = sub(x, 1, kb)
    better, smaller = count_less(k)
    if DENSE then equal = count(z .. 'k', k .. '\0') end
  end
end
if not all then all, ties = size(z) end
reply[6] = all

local first = math.max(cut - above, 0)
local want = math.min(cut + below, all) - first
local keys, start, distinct = {}, first, first
local read, last = 0, nil
if want > 0 then
  if i and i - (cut - first) >= 0 then
    i = i - (cut - first)
  elseif first == 0 then
    g, gi, s, si, i = '', 0, '', 0, 0 -- the first leaf; next_leaf works even if it is the only leaf
  else
    g, gi, s, si, i = seek_at(z, first)
  end
  local part = call('ZRANGE', z .. 'l' .. s, format('%d', i), format('%d', i + want - 1))
  if #part == 0 then -- the cut is behind the last string of its leaf
    g, gi, s, si = next_leaf(z, g, gi, s, si)
    i = 0
    part = call('ZRANGE', z .. 'l' .. s, '0', format('%d', want - 1))
  end
  if first > 0 and ties and (COMPETITION or DENSE) then
    if not count_less then count_less, count_less_at, count, count_not_worse = counters() end
    start, distinct = count_less_at(part[1], g, gi, s, si, i, first)
  end
  repeat
    keys[#keys + 1] = part
    read, last = read + #part, part[#part]
    want = want - #part
    if want <= 0 then break end
    g, gi, s, si = next_leaf(z, g, gi, s, si)
    if g then part = call('ZRANGE', z .. 'l' .. s, '0', format('%d', want - 1)) end
  until not g
end
if x ~= '' and byte(ARGV[4], -1) == 119 then
  local k = sub(x, 1, kb)
  if first + read <= cut or sub(last, 1, kb) == k then
    notworse = cut + 1
    if ties then
      if not count_not_worse then count_less, count_less_at, count, count_not_worse = counters() end
      notworse = count_not_worse(k)
    end
  end
end
for a, value in ipairs({cut, better, smaller, equal, notworse, first, start, distinct, keys}) do reply[7 + a] = value end
return reply
