-- Reads users' sort keys, and counts the standings and rank keys before keys. From ARGV[5] on, the
-- arguments are:
--   the number of users
--   the users, each with the user's hash
--   the keys: sort keys, or beginnings of rank keys
-- Returns for each user the sort key, or '' if the user is not in the ladder. If S = 1, the counts of
-- this sort key follow. After all users, the answer has the counts of each key.
-- The counts of a key are three numbers: standings before the key, standings with a smaller rank key,
-- and smaller rank keys. If S > 1, the third includes only rank keys whose home is this shard.
local n, keys = #reply, 6 + 2 * ARGV[5]
local count_less, count_less_at, count
if keys <= #ARGV then count_less, count_less_at, count = counters() end
for a = 6, keys - 1, 2 do
  local x = sort_key(ARGV[a], ARGV[a + 1])
  n = n + 1
  reply[n] = x
  if S == '1' and x ~= '' then
    local p, g, gi, s, si, i = locate(x)
    if not p then return {LOST} end
    local better, distinct = p, p
    if ties and (COMPETITION or DENSE) then
      if not count_less then count_less, count_less_at, count = counters() end
      better, distinct = count_less_at(x, g, gi, s, si, i, p)
    end
    reply[n + 1], reply[n + 2], reply[n + 3] = p, better, distinct
    n = n + 3
  end
end
for a = keys, #ARGV do
  local x = ARGV[a]
  local better, distinct = count_less(sub(x, 1, kb))
  reply[n + 1] = #x > kb and count(z, x) or better
  reply[n + 2] = better
  reply[n + 3] = distinct
  n = n + 3
end
reply[6] = all or size(z)
return reply
