-- Reads standings at positions of the ladder in this shard, and counts rank keys. The arguments are:
--   ARGV[5]  the number of positions
--   ARGV[6]  the number of percentages
--   ARGV[7]  Buckets of SurveyQuery, or 0; ARGV[8] FromWorst
--   ARGV[9]  the number of the first edge to count, from 1; ARGV[10] the number of edges
--   then     the positions, from 0; the percentages, which select positions as PercentPosition does;
--            and beginnings of rank keys
-- Returns each position and the sort key there. If the ladder ends before a position, the sort key is '';
-- but if S > 1, the last position and its sort key replace the position. Two numbers follow for each
-- beginning: standings with a smaller rank key, and different smaller rank keys. If there are buckets,
-- the result of count_buckets follows.

--include base
--include tree
--include read

--include inline/size

-- seek_at returns the leaf of the string at a position of the ladder, and the string's position in it.
local function seek_at(position)
  local g, gi, s, si, i
  --include inline/seek_at
  return s, i
end

-- count_buckets counts the standings that are better than the edges that BucketEdges returns, from the edge
-- first on, at most n edges. It returns the values of the best and of the worst standing, the size of the
-- ladder, and the counts. If first is not 1, the edge before first comes first: each bucket is then the
-- difference of two numbers of one answer. If the ladder is empty, count_buckets returns an empty list.
--
-- The value of a standing is the first 8 bytes of its rank key. Lua's numbers are exact up to 53 bits only,
-- so count_buckets calculates with the two halves of a value: bh and bl for the best standing.
local function count_buckets(buckets, from_worst, first, n)
  local W = 4294967296
  if all == 0 then return {} end
  local function value_at(position)
    local s, i = seek_at(position)
    return sub(call('ZRANGE', z .. 'l' .. s, i, i)[1], 1, 8)
  end
  local function halves(value)
    local a, b, c, d, e, f, g, h = byte(value, 1, 8)
    return ((a * 256 + b) * 256 + c) * 256 + d, ((e * 256 + f) * 256 + g) * 256 + h
  end
  local function add(high, low, h, l)
    high, low = high + h, low + l
    if low >= W then return high + 1, low - W end
    if low < 0 then return high - 1, low + W end
    return high, low
  end
  local function digits(n) return string.char(floor(n / 16777216), floor(n / 65536) % 256, floor(n / 256) % 256, n % 256) end
  local found = {value_at(0), value_at(all - 1), all}
  local bh, bl = halves(found[1])
  local wh, wl = halves(found[2])
  local dh, dl = add(wh, wl, -bh, -bl)
  local h = floor(dh / buckets)
  local l
  h, l = add(h, floor(((dh - h * buckets) * W + dl) / buckets), 0, 1)
  for i = math.max(first - 1, 1), first + n - 1 do
    local oh, ol = h * i + floor(l * i / W), l * i % W -- the distance of the edge
    if oh > dh or oh == dh and ol > dl then break end
    local eh, el = add(bh, bl, oh, ol)
    if from_worst then
      eh, el = add(wh, wl, -oh, -ol)
      eh, el = add(eh, el, 0, 1)
    end
    found[#found + 1] = count(digits(eh) .. digits(el))
  end
  return found
end

reply[5] = all
local percents, keys = 11 + ARGV[5], 11 + ARGV[5] + ARGV[6]
for a = 11, keys - 1 do
  local position = tonumber(ARGV[a])
  if a >= percents then position = math.max(all - floor(all * position / 100), 1) - 1 end
  if S ~= '1' then position = math.min(position, all - 1) end
  n = n + 2
  reply[n - 1], reply[n] = position, ''
  if position >= 0 and position < all then
    local s, i = seek_at(position)
    reply[n] = call('ZRANGE', z .. 'l' .. s, i, i)[1]
  end
end
if keys <= #ARGV or ARGV[7] ~= '0' then
  --include count
end
for a = keys, #ARGV do
  n = n + 2
  reply[n - 1], reply[n] = count_less(ARGV[a])
end
if ARGV[7] ~= '0' then
  n = n + 1
  reply[n] = count_buckets(tonumber(ARGV[7]), ARGV[8] == '1', tonumber(ARGV[9]), tonumber(ARGV[10]))
end
return reply
