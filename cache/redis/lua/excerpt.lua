-- Reads this shard's parts of excerpts of the ladder: the standings around a cut. A cut is a point
-- between two standings. From ARGV[5] on, the arguments are:
--   how the caller names the cut: 'i' by the number of standings before the cut, 'k' by a sort key, 'u' by
--   a user, if S = 1. The cut is right before this sort key or user
--   the number of standings to read before the cut, and the number to read after the cut
--   for 'i', the number of standings before the cut
--   for 'k', the sort key; then a user or '', and the user's hash
--   for 'u', users, each with the user's hash. Each user has an excerpt
-- Returns a sort key and the part for each excerpt. The sort key is that of the user in the arguments, or ''
-- if there is no user, or the user is not in the ladder. For 'u', only a sort key that is not '' has a part.
-- A part is:
--   cut       standings before the cut
--   first     position of the part's first standing
--   start     standings with a smaller rank key than the first standing's
--   distinct  rank keys smaller than the first standing's
--   notworse  standings with the cut's rank key or a smaller one. If the part ends with a greater rank
--             key, notworse is 0, because the caller can count these standings in the part
--   keys      a string for each leaf: its sort keys in order, separated by zero bytes. Users' ids have
--             no zero bytes
-- If S > 1, the number of standings with a smaller rank key than that of the sort key that names the cut follows
-- the keys. It is 0 if no sort key names the cut.

--include base
--include tree
--include read

local by, above, below = ARGV[5], ARGV[6] + 0, ARGV[7] + 0
local NOT_WORSE, tied = byte(ARGV[4], -1) == 119, false
for a = 8, by == 'u' and #ARGV or 8, 2 do
  -- x is the sort key that names the cut, or ''. g, gi, s and si are the results of seek for x (see
  -- find.lua), and i is the position of the cut in its leaf. All five may be nil.
  local x, before, g, gi, s, si, i = '', 0, nil, nil, nil, nil, nil
  local user, h, present = ARGV[9], ARGV[10], by == 'u'
  if present then user, h = ARGV[a], ARGV[a + 1] end
  if by ~= 'i' and user ~= '' then
    --include inline/sort_key
  end
  n = n + 1
  reply[n] = x
  if by == 'k' then x = ARGV[8] end
  if x ~= '' then
    --include inline/locate
  end
  --include inline/size
  if by == 'i' then before = math.min(ARGV[8] + 0, all) end
  if x ~= '' or not present then
    local cut = before
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
        local position = first
        --include inline/seek_at
      end
      repeat
        local part = call('ZRANGE', z .. 'l' .. s, format('%d', i), format('%d', i + want - 1))
        if #part > 0 then -- otherwise the cut is after the last string of its leaf
          if not head then head, hg, hgi, hs, hsi, hi = part[1], g, gi, s, si, i end
          keys[#keys + 1] = table.concat(part, '\0')
          read, last, i = read + #part, part[#part], i + #part
          want = want - #part
          if want <= 0 then break end
        end
        --include inline/next_leaf
        i = 0
      until not g
    end
    local start, distinct, not_worse = first, first, 0
    local k = sub(x, 1, kb)
    if first > 0 and head then
      local x, g, gi, s, si, i, before, better = head, hg, hgi, hs, hsi, hi, first, nil
      --include inline/better
      start = better
    end
    if NOT_WORSE and present and not ties then
      not_worse = cut + 1
    elseif NOT_WORSE and k ~= '' and (first + read <= cut or sub(last, 1, kb) == k) then
      -- If the next standing in the leaf of last has another rank key, all standings up to last count.
      local after = first + read > cut and s and call('ZRANGE', z .. 'l' .. s, format('%d', i), format('%d', i))[1]
      if after and sub(after, 1, kb) ~= k then
        not_worse = first + read
      else
        --include count
        not_worse = count_not_worse(k)
      end
    end
    reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4], reply[n + 5], reply[n + 6] = cut, first, start, distinct, not_worse, keys
    n = n + 6
    if S ~= '1' then
      n = n + 1
      reply[n] = 0
      if k ~= '' then
        --include count
        reply[n] = count_less(k)
      end
    end
  end
end
reply[5] = all
return reply
