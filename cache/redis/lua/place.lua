-- ties states whether standings may have equal rank keys, and all is the size of the ladder. locate
-- sets both, but in a tree of one group, it leaves all unchanged.
local all, ties = nil, true

-- sort_key returns a user's sort key, or '' if the user is not in the ladder. h is the user's hash.
local function sort_key(user, h)
  local record = call('HGET', live .. format(':u%d', bucket(h, buckets)), user)
  if not record then return '' end
  local from = byte(record, 1) + 2
  local to = from + kb + TIME - 1
  if #record < to then return '' end
  local prefix = sub(record, from, to)
  if number == '0' then return prefix .. user end
  for i = to + 1, #record, LADDER do
    local a, b, c = byte(record, i, i + 2)
    if format('%d', a * 65536 + b * 256 + c) == number then return prefix .. user end
  end
  return ''
end

-- locate returns the number of standings before a user's sort key x, the results of seek for x (see
-- tree.lua), and the position of x in its leaf. The user's record states that the user is in the ladder.
-- If the tree does not have x, someone removed members by hand, and others may be missing too. locate
-- then empties the shard and returns nil.
local function locate(x)
  local g, gi, s, si = seek(z, x)
  local i = call('ZRANK', z .. 'l' .. s, x)
  if not i then
    empty_shard()
    return nil
  end
  local n, total
  n, total, ties = count_before(z, g, gi, si)
  all = all or total
  return n + i, g, gi, s, si, i
end
