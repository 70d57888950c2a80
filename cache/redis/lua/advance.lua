-- Records positions of the log. ARGV[3] is the server on which the caller's updates of the shard
-- were made, or '' if it made none. Then come pairs of a partition and an offset. The caller
-- states that the shard lacks no update of a message of the partition before the offset.
-- Returns OK and the server, or DOUBT, the present server, and for each partition the
-- recorded offset, or -1. In the second case, the script records nothing: the shard is in doubt,
-- or the caller's updates were made on another server.
local c, refusal = enter(true)
if refusal then return refusal end
local at, known = T .. ':at', {}
for i = 4, #ARGV, 2 do
  known[#known + 1] = tonumber(call('HGET', at, ARGV[i]) or -1)
end
if c.doubt or ARGV[3] ~= '' and ARGV[3] ~= c.server then
  return {DOUBT, c.server, unpack(known)}
end
for i, offset in ipairs(known) do
  if tonumber(ARGV[2 * i + 3]) > offset then call('HSET', at, ARGV[2 * i + 2], ARGV[2 * i + 3]) end
end
return {OK, c.server}
