-- Tells a shard which rank keys, whose home it is, other shards hold now or hold
-- no more. After ARGV[2] come tellings: generation, the shard that tells, how
-- much it had told before these, the number of items, the items. Each shard's
-- items are taken in its order, and each once. Answers with how far each
-- telling's shard has been heard, -1 where the generation is not here.
local c, refusal = enter()
if refusal then return refusal end
room()
local reply, arg = {OK}, 3
while arg <= #ARGV do
  local g, from, told, n = ARGV[arg], ARGV[arg + 1], tonumber(ARGV[arg + 2]), tonumber(ARGV[arg + 3])
  arg = arg + 4
  if g ~= c.live and g ~= c.next then
    reply[#reply + 1] = -1
  else
    local w = key(g, 'w')
    local heard, keys = tonumber(call('HGET', w, 'i' .. from) or 0), 0
    if told > heard then -- it was heard once, by a server that is no more
      forget()
      return {LOST}
    end
    for i = heard - told, n - 1 do
      local item = ARGV[arg + i]
      local length = byte(item, 2)
      local name, k = sub(item, 3, 2 + length), sub(item, 3 + length)
      keys = keys + (sub(item, 1, 1) == '+' and hold or release)(g, name, k)
    end
    if told + n > heard then
      heard = told + n
      call('HSET', w, 'i' .. from, heard)
    end
    if keys ~= 0 then call('HINCRBY', w, 'keys', keys) end
    reply[#reply + 1] = heard
  end
  arg = arg + n
end
return reply
