-- This file answers the most frequent question in as few steps as possible: one user in the
-- overall ladder of a season with one shard. It runs before the functions of the later files
-- are defined. If the answer needs counts of equal rank keys too, standings.lua continues
-- with the sort key x, its place and the number p of standings before it.
local x, g, gi, s, si, i, p
local ties = true
if S == '1' and #ARGV == 7 and ARGV[5] == '1' and number == '0' then
  local record = call('HGET', live .. format(':u%d', bucket(ARGV[7], buckets)), ARGV[6])
  local from = record and byte(record, 1) + 2
  if record and #record >= from + kb + TIME - 1 then
    x = sub(record, from, from + kb + TIME - 1) .. ARGV[6]
    g, gi, s, si = seek(z, x)
    i = call('ZRANK', z .. 'l' .. s, x)
  end
  if i then
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
      reply[6], ties = tonumber(sums[1]), sums[2] ~= '0'
      if not (ties and (COMPETITION or DENSE)) then
        reply[7], reply[8], reply[9], reply[10] = x, p, p, p
        return reply
      end
    end
  end
end
