-- Reads users' sort keys, and counts the standings and rank keys before keys. From ARGV[5] on, the
-- arguments are:
--   the number of users
--   the users, each with the user's hash
--   the keys: sort keys, or beginnings of rank keys
-- Returns for each user the sort key, or '' if the user is not in the ladder. If S = 1, the counts of
-- this sort key follow. After all users, the answer has the counts of each key.
-- The counts of a key are three numbers: standings before the key, standings with a smaller rank key,
-- and smaller rank keys.

--include base
--include tree
--include read

local keys, tied = 6 + 2 * ARGV[5], false
for a = 6, keys - 1, 2 do
  local user, h, present, x = ARGV[a], ARGV[a + 1], true, nil
  --include inline/sort_key
  n = n + 1
  reply[n] = x
  if S == '1' and x ~= '' then
    local before, g, gi, s, si, i, better, distinct
    --include inline/locate
    --include inline/better
    reply[n + 1], reply[n + 2], reply[n + 3] = before, better, distinct
    n = n + 3
  end
end
if keys <= #ARGV then
  --include count
end
for a = keys, #ARGV do
  local x = ARGV[a]
  local better, distinct = count_less(sub(x, 1, kb))
  reply[n + 1] = #x > kb and count(x) or better
  reply[n + 2] = better
  reply[n + 3] = distinct
  n = n + 3
end
--include inline/size
reply[5] = all
return reply
