-- Records positions of the log: see doubt.go. ARGV[3] is the server on which the caller's updates of
-- the shard were made, or '' if there were none. Then come triples of a partition and two offsets. The
-- caller has made the updates of the messages at the first offset and later, before the second offset.
-- Returns OK and the server. The script records nothing, and returns DOUBT, if
--   1. the shard is in doubt, or
--   2. the caller's updates were made on another server, or
--   3. the recorded offset of a partition is less than the caller's first offset, so updates between
--      these offsets may be missing.
-- After DOUBT come the present server, 1 in the third case, otherwise 0, and for each partition the
-- recorded offset. If there is none: -1, or in case 3 alone, the caller's second offset.

--include base
--include server
--include write

local c, refusal = enter(true)
if refusal then return refusal end
local at, known, gap = T .. ':at', {}, 0
for i = 4, #ARGV, 3 do
  local offset = tonumber(call('HGET', at, ARGV[i]) or -1)
  if offset >= 0 and offset < tonumber(ARGV[i + 1]) then gap = 1 end
  known[#known + 1] = offset
end
local moved = c.doubt or ARGV[3] ~= '' and ARGV[3] ~= c.server
if not moved and gap == 0 then
  for i, offset in ipairs(known) do
    if tonumber(ARGV[3 * i + 3]) > offset then call('HSET', at, ARGV[3 * i + 1], ARGV[3 * i + 3]) end
  end
  return {OK, c.server}
end
if not moved then -- without a recorded offset, the partition has no gap
  for i, offset in ipairs(known) do
    if offset < 0 then known[i] = tonumber(ARGV[3 * i + 3]) end
  end
end
return {DOUBT, c.server, gap, unpack(known)}
