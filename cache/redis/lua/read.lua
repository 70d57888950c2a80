-- A question about the ladder ARGV[3] of the live generation. The answer begins
-- with OK, the generation, the time of the last change, the age of the shard's
-- outboxes in microseconds (0 if they are empty), the length of rank keys and the
-- size of the ladder.
local v = call('HMGET', T, 'S', 'live', 'id', 'vouched', 'asof', 'kb')
if not v[2] then return {NONE} end
if v[1] ~= S then return {SHARDS, tonumber(v[1])} end
local now = check_server(v[3], v[4])
if not now then return {LOST} end
local kb, ladder = tonumber(v[6]), ARGV[3]
local live = T .. ':' .. v[2]
local u, z, d = live .. ':u', live .. ':z:' .. ladder, live .. ':d:' .. ladder
local reply = {OK, v[2], v[5], 0, kb, call('ZCARD', z)}
if S ~= '1' then
  local oldest = call('HGET', live .. ':w', 'oldest')
  if oldest then reply[4] = now - oldest end
end

-- sort_key returns the sort key of a user in the ladder, or '' if the user does
-- not stand there.
local function sort_key(user)
  local s = call('HGET', u, user)
  if not s or #s == TIME then return '' end
  local prefix = sub(s, TIME + 1, 2 * TIME + kb)
  if ladder == '' then return prefix .. user end
  local i = 2 * TIME + kb + 1
  while i <= #s do
    local n = byte(s, i)
    if n == #ladder and sub(s, i + 1, i + n) == ladder then return prefix .. user end
    i = i + 1 + n
  end
  return ''
end

-- count_less returns the number of members of a sorted set that are smaller than x.
local function count_less(set, x) return call('ZLEXCOUNT', set, '-', '(' .. x) end
