-- Reports whether the server packs the leaves and buckets of an index. KEYS[1] is a temporary
-- key. ARGV[1] is the number of members of a leaf, ARGV[2] the number of fields of a bucket.
-- Returns the encodings of a sorted set and a hash with as many members and values of 64 bytes.
local text = string.rep('x', 60)
local function encoding(n, add)
  redis.call('DEL', KEYS[1])
  for i = 1, tonumber(n) do add(i) end
  local found = redis.call('OBJECT', 'ENCODING', KEYS[1])
  redis.call('DEL', KEYS[1])
  return found
end
return {
  encoding(ARGV[1], function(i) redis.call('ZADD', KEYS[1], '0', text .. 1000 + i) end),
  encoding(ARGV[2], function(i) redis.call('HSET', KEYS[1], i, text .. 1000 + i) end),
}
