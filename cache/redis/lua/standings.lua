-- Reads users' sort keys and counts what precedes sort keys. ARGV[4] is the number
-- of users, who follow. Then come sort keys, or beginnings of rank keys.
-- Returns for each user the sort key, or '' if the user is not in the ladder. If
-- there is one shard, the counts of the user's sort key follow. After the users come
-- the counts of each key in ARGV.
-- Counts are of standings before the key, of standings with a smaller rank key,
-- and of smaller rank keys whose home is this shard.
local n = #reply
local users = tonumber(ARGV[4])
for i = 5, 4 + users do
  local x = sort_key(ARGV[i])
  n = n + 1
  reply[n] = x
  if S == '1' and x ~= '' then
    -- The user is in the ladder, so the sort key and the rank key must have positions.
    -- If one has none, members were removed by hand, and others may be missing too.
    local k = sub(x, 1, kb)
    local at, distinct = call('ZRANK', z, x), call('ZRANK', d, k)
    if not at or not distinct then
      empty_shard()
      return {LOST}
    end
    local first = call('ZRANGEBYLEX', z, '[' .. k, '+', 'LIMIT', 0, 1)[1]
    reply[n + 1] = at
    reply[n + 2] = first == x and at or call('ZRANK', z, first)
    reply[n + 3] = distinct
    n = n + 3
  end
end
for i = 5 + users, #ARGV do
  local x = ARGV[i]
  local k = sub(x, 1, kb)
  local better = count_less(z, k)
  local at = better
  -- Before most keys there is no standing with the same rank key. Finding that out is
  -- cheaper than counting.
  if #x > kb and #call('ZRANGEBYLEX', z, '[' .. k, '(' .. x, 'LIMIT', 0, 1) > 0 then at = count_less(z, x) end
  reply[n + 1] = at
  reply[n + 2] = better
  reply[n + 3] = count_less(d, k)
  n = n + 3
end
return reply
