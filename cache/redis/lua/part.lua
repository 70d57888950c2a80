-- Reads this shard's part of an excerpt of the ladder: the standings around a cut. A cut is a point
-- between two standings. The arguments are:
--   ARGV[5]   how the caller names the cut: 'i' by the number of standings before the cut, 'k' by a sort
--             key, 'u' by a user. The cut is right before this sort key or user
--   ARGV[6]   a user or '', and ARGV[7] the user's hash
--   ARGV[8]   the sort key or number
--   ARGV[9]   the number of standings to read before the cut, and ARGV[10] after the cut
-- Returns the user's sort key, or '' if the user is not in the ladder. If ARGV[5] is 'u' and the user is
-- not in the ladder, the answer ends here. Otherwise these follow:
--   cut       standings before the cut
--   first     position of the part's first standing
--   start     standings with a smaller rank key than the first standing's
--   distinct  rank keys smaller than the first standing's; no meaning if S > 1
--   notworse  standings with the cut's rank key or a smaller one. If the part ends with a greater rank
--             key, notworse is 0, because the caller can count these standings in the part
--   keys      a string for each leaf: its sort keys in order, separated by zero bytes. Users' ids have
--             no zero bytes
-- If S > 1, excerpt.lua adds to the answer.
local by, above, below = ARGV[5], ARGV[9] + 0, ARGV[10] + 0
local cut = p or 0
if by == 'i' then
  all, ties = size(z)
  cut = math.min(ARGV[8] + 0, all)
elseif by == 'k' then
  x = ARGV[8]
  if x ~= '' then
    g, gi, s, si = seek(z, x)
    i = call('ZLEXCOUNT', z .. 'l' .. s, '-', '(' .. x)
    cut, all, ties = count_before(z, g, gi, si)
    cut = cut + i
  end
end
if not all then all, ties = size(z) end
reply[6], reply[7] = all, by == 'u' and x or ''
if by == 'u' and x == '' then return reply end

local first = math.max(cut - above, 0)
local want = math.min(cut + below, all) - first
local keys, read, last = {}, 0, nil
local head, hg, hgi, hs, hsi, hi -- the first string, its leaf, and its position in the leaf
if want > 0 then
  if i and i - (cut - first) >= 0 then
    i = i - (cut - first)
  elseif first == 0 then
    g, gi, s, si, i = '', 0, '', 0, 0 -- the first leaf; next_leaf works even if it is the only leaf
  else
    g, gi, s, si, i = seek_at(z, first, all)
  end
  local part = call('ZRANGE', z .. 'l' .. s, format('%d', i), format('%d', i + want - 1))
  if #part == 0 then -- the cut is after the last string of its leaf
    g, gi, s, si = next_leaf(z, g, gi, s, si)
    i = 0
    part = call('ZRANGE', z .. 'l' .. s, '0', format('%d', want - 1))
  end
  head, hg, hgi, hs, hsi, hi = part[1], g, gi, s, si, i
  repeat
    keys[#keys + 1] = table.concat(part, '\0')
    read, last = read + #part, part[#part]
    want = want - #part
    if want <= 0 then break end
    g, gi, s, si = next_leaf(z, g, gi, s, si)
    if g then part = call('ZRANGE', z .. 'l' .. s, '0', format('%d', want - 1)) end
  until not g
end
reply[8], reply[9], reply[10], reply[11], reply[12], reply[13] = cut, first, first, first, 0, keys
local NOT_WORSE = byte(ARGV[4], -1) == 119
local count_first = ties and first > 0 and head and (COMPETITION or DENSE)
if not ties and NOT_WORSE then reply[12] = cut + 1 end
if S == '1' and not (count_first or ties and NOT_WORSE) then return reply end

