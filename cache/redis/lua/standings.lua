-- Where users stand. ARGV[4] is the number of users, who follow. Then come sort
-- keys, or beginnings of rank keys. Answers for each user with the sort key, ''
-- if none, and, if this is the only shard, what is before it; for each key with
-- what is before it: standings, standings with a smaller rank key, and smaller
-- rank keys whose home this is.
local n = #reply
local users = tonumber(ARGV[4])
for i = 5, 4 + users do
  local x = place(ARGV[i])
  n = n + 1
  reply[n] = x
  if S == '1' and x ~= '' then
    -- It stands here, and its rank key is known here: both have positions, unless
    -- somebody took them away. What else is missing then, nobody knows.
    local k = sub(x, 1, kb)
    local at, distinct = call('ZRANK', z, x), call('ZRANK', d, k)
    if not at or not distinct then
      forget()
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
  local better = less(z, k)
  local at = better
  -- Most have no tie before them, which is sooner seen than counted.
  if #x > kb and #call('ZRANGEBYLEX', z, '[' .. k, '(' .. x, 'LIMIT', 0, 1) > 0 then at = less(z, x) end
  reply[n + 1] = at
  reply[n + 2] = better
  reply[n + 3] = less(d, k)
  n = n + 3
end
return reply
