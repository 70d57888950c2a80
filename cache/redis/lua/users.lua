-- Returns the records of some buckets of the live generation: see base.lua. The arguments are:
--   ARGV[3]  the live generation
--   ARGV[4]  0 in the first call, later the number of buckets that the first call returned
--   ARGV[5]  the number of the first bucket to read
--   ARGV[6]  the number of buckets to read
-- Returns OK, the number of buckets at the first call, and a list of users, each followed by the record.
--
-- Buckets may be added between the calls. A new bucket takes users of only one other bucket. So with
-- each bucket, the script also reads the buckets added since the first call that took its users,
-- directly or through other new buckets. So the calls return each user once.

--include base
--include server
--include write

local c, refusal = enter()
if refusal then return refusal end
if c.live ~= ARGV[3] then return {FENCED, c.fence} end
local buckets, all = tonumber(ARGV[4]), {}
if buckets == 0 then buckets = c.buckets end
local function read(i)
  for _, v in ipairs(call('HGETALL', key(c.live, 'u' .. i))) do all[#all + 1] = v end
  local m = 1
  while m <= i do m = m + m end
  while i + m < c.buckets do
    if i + m >= buckets then read(i + m) end
    m = m + m
  end
end
for i = tonumber(ARGV[5]), math.min(ARGV[5] + ARGV[6], buckets) - 1 do read(i) end
return {OK, buckets, all}
