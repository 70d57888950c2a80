-- Delivers items from the outboxes of other shards to this shard, which is the home of the items'
-- rank keys: see base.lua. An item has:
--   '+' if the sender holds the rank key, otherwise '-'
--   a byte with the length of the ladder's name, and this name
--   the rank key
-- An item of '!' and a name of the list :d (see channel.lua) ends the sender's answer to this list: see
-- restate.lua.
-- From ARGV[3] on, the arguments are deliveries. Each has:
--   a generation, the sending shard, and the terms of the channel (see channel.lua)
--   the number of items that the sender put into the outbox before these items
--   the number of items, and the items
-- Returns OK, the server, and a number for each delivery:
--   the number of all items received from its sender
--   -1 if the generation does not exist here
--   -2 if the channel has other terms here, or if items before the delivery are missing

--include base
--include tree
--include find
--include leaf
--include server
--include write
--include edit
--include homes
--include channel

local c, refusal = enter(true)
if refusal then return refusal end
mark_busy()
local trees_of = {}
if c.live then trees_of[c.live] = new_trees(c.live, c.kb) end
if c.next then trees_of[c.next] = new_trees(c.next, c.nkb) end

-- receive applies n items of a sender, in order. They are in ARGV from the index arg on. receive returns the
-- change of the number of strings in the trees of rank keys.
local function receive(g, sender, arg, n)
  local w, changed = key(g, 'w'), 0
  for i = arg, arg + n - 1 do
    local item = ARGV[i]
    local sign, length = sub(item, 1, 1), byte(item, 2)
    if sign ~= '!' then
      local keys = trees_of[g].keys(ladder_number(g, sub(item, 3, 2 + length)))
      changed = changed + state(keys, sign, sub(item, 3 + length), sender)
    elseif call('HGET', w, 't' .. sender) == sub(item, 2) then
      call('HDEL', w, 't' .. sender)
      call('UNLINK', key(g, 'd:' .. sender))
    end
  end
  local log = key(g, 'i:' .. sender)
  cut_front(log, call('RPUSH', log, unpack(ARGV, arg, arg + n - 1)) - LIMIT)
  return changed
end

local reply, arg = {OK, c.server}, 3
while arg <= #ARGV do
  local g, sender, e, offset, n = ARGV[arg], ARGV[arg + 1], ARGV[arg + 2], tonumber(ARGV[arg + 3]), tonumber(ARGV[arg + 4])
  arg = arg + 5
  local result = -1
  if trees_of[g] then
    local w = key(g, 'w')
    local v = call('HMGET', w, 'i' .. sender, 'f' .. sender, 'mark')
    local received = tonumber(v[1] or 0)
    if (v[2] or '') ~= e or offset > received then
      result = -2
    else
      result = math.max(received, offset + n)
      if result > received then
        local changed = receive(g, sender, arg + received - offset, result - received)
        call('HSET', w, 'i' .. sender, result)
        if changed ~= 0 then call('HINCRBY', w, 'keys', changed) end
        forget(g, c.now, v[3])
      end
    end
  end
  reply[#reply + 1] = result
  arg = arg + n
end
for _, t in pairs(trees_of) do t.flush() end
call('HSET', T, 'busy', 0)
return reply
