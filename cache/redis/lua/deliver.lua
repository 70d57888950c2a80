-- Delivers items from the outboxes of other shards to this shard, which is the
-- home of the items' rank keys. An item begins with '+' if the sender has gained its first
-- standing with the rank key, or with '-' if the sender has lost its last one. Then come a
-- byte with the length of the ladder's name, that name, and the rank key.
-- After ARGV[2] come deliveries. Each delivery has a generation, the sending shard, the
-- number of items that the sender put into the outbox before these, the number of items, and
-- the items. The shard applies each sender's items in order and once.
-- Returns OK and, for each delivery, the number of items received from its
-- sender, or -1 if the generation does not exist here.
local c, refusal = enter()
if refusal then return refusal end
mark_busy()
local trees_of = {}
if c.live then trees_of[c.live] = new_trees(c.live, c.kb) end
if c.next then trees_of[c.next] = new_trees(c.next, c.nkb) end
local reply, arg = {OK}, 3
while arg <= #ARGV do
  local g, sender, offset, n = ARGV[arg], ARGV[arg + 1], tonumber(ARGV[arg + 2]), tonumber(ARGV[arg + 3])
  arg = arg + 4
  if not trees_of[g] then
    reply[#reply + 1] = -1
  else
    local w = key(g, 'w')
    local received, changed = tonumber(call('HGET', w, 'i' .. sender) or 0), 0
    if offset > received then -- the items in between were received by a server whose data is lost
      empty_shard()
      return {LOST}
    end
    for i = received - offset, n - 1 do
      local item = ARGV[arg + i]
      local length = byte(item, 2)
      local name, k = sub(item, 3, 2 + length), sub(item, 3 + length)
      local keys, m = trees_of[g].keys(ladder_number(g, name))
      changed = changed + (sub(item, 1, 1) == '+' and hold or release)(keys, m, k)
    end
    if offset + n > received then
      received = offset + n
      call('HSET', w, 'i' .. sender, received)
    end
    if changed ~= 0 then call('HINCRBY', w, 'keys', changed) end
    reply[#reply + 1] = received
  end
  arg = arg + n
end
for _, t in pairs(trees_of) do t.flush() end
call('HSET', T, 'busy', 0)
return reply
