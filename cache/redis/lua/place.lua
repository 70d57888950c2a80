-- If the question is about one user of a season with one shard, this file finds the user
-- ARGV[6], whose hash is ARGV[7]. ARGV[5] is '1' for standings.lua, or 'u' for part.lua.
-- This file sets:
--   x             the user's sort key, or '' if the user is not in the ladder
--   g, gi, s, si  the results of seek for x: see tree.lua
--   i             the position of x in its leaf
--   p             the number of standings before x
--   all           the size of the ladder, or nil if the tree has only one group
--   ties          whether standings may have equal rank keys
local x, g, gi, s, si, i, p, all
local ties = true
if S == '1' and (ARGV[5] == '1' or ARGV[5] == 'u') then
  local record = call('HGET', live .. format(':u%d', bucket(ARGV[7], buckets)), ARGV[6])
  local from = record and byte(record, 1) + 2
  local to = from and from + kb + TIME - 1
  x = ''
  if from and #record >= to then
    local inside = number == '0'
    for j = to + 1, inside and 0 or #record, LADDER do
      local a, b, c = byte(record, j, j + 2)
      inside = inside or format('%d', a * 65536 + b * 256 + c) == number
    end
    if inside then x = sub(record, from, to) .. ARGV[6] end
  end
  if x ~= '' then
    g, gi, s, si = seek(z, x)
    i = call('ZRANK', z .. 'l' .. s, x)
    -- The record states that the user is in the ladder. If the sort key is missing, someone
    -- removed members by hand, and others may be missing too.
    if not i then
      empty_shard()
      return {LOST}
    end
    p = i
    if si and si > 0 then p = p + call('BITCOUNT', z .. 'c' .. g, '0', format('%d', si * BLOCK - 1)) end
    if gi then
      local fields, j = {'t', 'ft'}, gi
      while j > 0 do
        fields[#fields + 1] = format('%d', j)
        local b = 1
        while j % (b + b) == 0 do b = b + b end
        j = j - b
      end
      local sums = call('HMGET', z .. 's', unpack(fields))
      for f = 3, #fields do p = p + (sums[f] or 0) end
      all, ties = sums[1] + 0, sums[2] ~= '0'
    end
  end
end
