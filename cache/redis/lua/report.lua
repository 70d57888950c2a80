-- Reports the states of the live generation's channels from and to this shard: see channel.lua. If the
-- shard is in doubt, the script first begins a new term of the channels from this shard.
-- Returns OK, the server, the live generation, and for each shard N the fields sN, eN, iN, fN and tN.

--include base
--include server
--include write
--include channel

local c, refusal = enter(true)
if refusal then return refusal end
if not c.live then return {NONE} end
if c.doubt then
  mark_busy()
  begin_term(c.live, c.server)
  call('HSET', T, 'busy', 0)
end
local reply, w = {OK, c.server, c.live}, key(c.live, 'w')
for j = 0, S - 1 do
  local v = call('HMGET', w, 's' .. j, 'e' .. j, 'i' .. j, 'f' .. j, 't' .. j)
  for _, x in ipairs({tonumber(v[1] or 0), v[2] or '', tonumber(v[3] or 0), v[4] or '', v[5] or ''}) do reply[#reply + 1] = x end
end
return reply
