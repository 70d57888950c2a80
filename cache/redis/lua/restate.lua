-- As the sender of channels (see channel.lua), this shard sends the items that homes lack, and states
-- again whether it holds the rank keys in the homes' lists :d. Such an item has the sign '?' until
-- update.lua replaces '?' by '+' or '-'.
--
-- ARGV[3] is the live generation. Then come channels. Each has the home, the terms that the home has
-- adopted, the number of items that the home has received, the name of the home's list :d or '', the
-- number of items in this list, and the items.
-- Returns OK, and for each channel 1, or 0 if the outbox no longer has the items that the home lacks.

--include base
--include server
--include write
--include channel

local c, refusal = enter(true)
if refusal then return refusal end
if c.live ~= ARGV[3] then return {FENCED, c.fence} end
mark_busy()
local w, reply, arg = key(c.live, 'w'), {OK}, 4
while arg <= #ARGV do
  local j, e, received, name, n = ARGV[arg], ARGV[arg + 1], tonumber(ARGV[arg + 2]), ARGV[arg + 3], tonumber(ARGV[arg + 4])
  local v = call('HMGET', w, 's' .. j, 'o' .. j, 'e' .. j, 'p' .. j)
  local sent, acknowledged = tonumber(v[1] or 0), tonumber(v[2] or 0)
  local result = 1
  if (v[3] or '') == e and received < acknowledged then
    if received < sent - call('LLEN', key(c.live, 'o:' .. j)) then
      result = 0
    else
      call('HSET', w, 'o' .. j, received, 'p' .. j, math.min(received, tonumber(v[4] or 0)), 'oldest', c.now)
      call('HINCRBY', w, 'untold', acknowledged - received)
    end
  end
  local items, seen = {}, {}
  for i = arg + 5, arg + 4 + n do
    local item = '?' .. sub(ARGV[i], 2)
    if sub(ARGV[i], 1, 1) ~= '!' and not seen[item] then
      items[#items + 1], seen[item] = item, true
    end
  end
  if name ~= '' then items[#items + 1] = '!' .. name end
  if #items > 0 then send(c.live, j, items, c.now) end
  reply[#reply + 1] = result
  arg = arg + 5 + n
end
call('HSET', T, 'busy', 0)
return reply
