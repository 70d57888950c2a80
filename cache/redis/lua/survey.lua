-- Reads standings at positions of the ladder in this shard, and counts rank keys. ARGV[5] is
-- the number of positions. ARGV[6] is the number of percentages: each one means the
-- position that PercentPosition returns for it. Then come the positions, from 0, the
-- percentages, and beginnings of rank keys.
-- Returns each position and the sort key there. If the ladder ends before a position, the
-- sort key is ''. But if S > 1, the script then returns the last position and its sort key.
-- After these come two numbers for each key: standings with a smaller rank key, and
-- different smaller rank keys.
local all = size(z)
reply[6] = all
local n, percents, keys = #reply, 7 + ARGV[5], 7 + ARGV[5] + ARGV[6]
for a = 7, keys - 1 do
  local position = tonumber(ARGV[a])
  if a >= percents then position = math.max(all - floor(all * position / 100), 1) - 1 end
  if S ~= '1' then position = math.min(position, all - 1) end
  n = n + 2
  reply[n - 1], reply[n] = position, ''
  if position >= 0 and position < all then
    local _, _, s, _, i = seek_at(z, position, all)
    reply[n] = call('ZRANGE', z .. 'l' .. s, i, i)[1]
  end
end
if keys <= #ARGV then
  local count_less = counters()
  for a = keys, #ARGV do
    n = n + 2
    reply[n - 1], reply[n] = count_less(ARGV[a])
  end
end
return reply
