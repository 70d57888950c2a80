-- Applies entries, each only if it is newer than what the shard holds.
-- ARGV[3] is the generation to write, which must be the one being built, or '' for
-- all generations. ARGV[4] is the number of a batch of a generation being built; a
-- batch that is sent twice counts once. ARGV[5] is the time of the change or ''.
-- Then come the number of acknowledgements and the acknowledgements: generation,
-- shard, the number of items that the shard received. Then come entries: user,
-- version, prefix or '', divisions. A byte with its length precedes each division.
-- Returns OK, the generation that is being built or '', and the outboxes:
-- generation, shard, the number of items that precede these, items.
-- If an entry's prefix has a wrong length, the script writes no entry and returns
-- FORMAT and the length of the board's rank keys.
local ITEMS = 1000 -- most items of one outbox in an answer

local c, refusal = enter()
if refusal then return refusal end
check_memory()
local only, batch, at = ARGV[3], tonumber(ARGV[4]), ARGV[5]

local generations = {}
if only ~= '' then
  if c.next ~= only then return {FENCED, c.fence} end
  generations[1] = {g = only, kb = c.nkb}
else
  if c.live then
    generations[#generations + 1] = {g = c.live, kb = c.kb}
    if at ~= '' and newer(at, c.asof) then call('HSET', T, 'asof', at) end
  end
  if c.next then
    generations[#generations + 1] = {g = c.next, kb = c.nkb}
    if at ~= '' and newer(at, c.nasof) then call('HSET', T, 'nasof', at) end
  end
end

local arg = 7
for _ = 1, tonumber(ARGV[6]) do
  local g, j, received = ARGV[arg], ARGV[arg + 1], tonumber(ARGV[arg + 2])
  arg = arg + 3
  if g == c.live or g == c.next then
    local w, o = key(g, 'w'), key(g, 'o:' .. j)
    local n = received - tonumber(call('HGET', w, 'o' .. j) or 0)
    if n > 0 then
      -- The other shard received more than this shard sent, so this shard lost data.
      if n > call('LLEN', o) then
        empty_shard()
        return {LOST}
      end
      call('LTRIM', o, n, -1)
      call('HSET', w, 'o' .. j, received)
      if call('HINCRBY', w, 'untold', -n) == 0 then
        call('HDEL', w, 'oldest')
      else
        call('HSET', w, 'oldest', c.now)
      end
    end
  end
end

local function home(k) return tostring(tonumber(sub(redis.sha1hex(k), 1, 8), 16) % tonumber(S)) end

-- change records at the home of a rank key that this shard now holds the rank key
-- ('+') or no longer does ('-'). If the home is another shard, it uses the outbox.
local function change(t, sign, name, k)
  local j = S == '1' and ME or home(k)
  if j == ME then
    t.keys = t.keys + (sign == '+' and hold or release)(t.g, name, k)
  else
    t.outbox[j] = t.outbox[j] or {}
    table.insert(t.outbox[j], sign .. string.char(#name) .. name .. k)
  end
end

-- held reports whether any user of this shard stands with a rank key in a ladder.
local function held(z, k)
  local m = call('ZRANGEBYLEX', z, '[' .. k, '+', 'LIMIT', 0, 1)[1]
  return m and sub(m, 1, #k) == k
end

local function put(t, name, prefix, user)
  local z, k = key(t.g, 'z:' .. name), sub(prefix, 1, t.kb)
  if S == '1' or not held(z, k) then change(t, '+', name, k) end
  call('ZADD', z, 0, prefix .. user)
end

local function take(t, name, prefix, user)
  local z, k = key(t.g, 'z:' .. name), sub(prefix, 1, t.kb)
  call('ZREM', z, prefix .. user)
  if not held(z, k) then change(t, '-', name, k) end
end

local function ladders(prefix, divisions)
  if prefix == '' then return {} end
  local list, i = {''}, 1
  while i <= #divisions do
    local n = byte(divisions, i)
    list[#list + 1] = sub(divisions, i + 1, i + n)
    i = i + 1 + n
  end
  return list
end

local function move(t, user, version, prefix, divisions)
  local u = key(t.g, 'u')
  local old = call('HGET', u, user)
  if old and not newer(version, old) then return end
  call('HSET', u, user, version .. prefix .. divisions)
  local was, wasin = '', ''
  if not old then
    t.users = t.users + 1
  elseif #old > TIME then
    was, wasin = sub(old, TIME + 1, 2 * TIME + t.kb), sub(old, 2 * TIME + t.kb + 1)
  end
  if was == prefix and wasin == divisions then return end
  local before, after = ladders(was, wasin), ladders(prefix, divisions)
  local arriving = {}
  for _, name in ipairs(after) do arriving[name] = true end
  for _, name in ipairs(before) do
    if not arriving[name] then
      take(t, name, was, user)
      t.standings = t.standings - 1
    else
      arriving[name] = nil
      if was ~= prefix then
        put(t, name, prefix, user) -- before take, so that a rank key that stays the same is not released in between
        take(t, name, was, user)
      end
    end
  end
  for _, name in ipairs(after) do
    if arriving[name] then
      put(t, name, prefix, user)
      call('SADD', key(t.g, 'l'), name)
      t.standings = t.standings + 1
    end
  end
end

for _, t in ipairs(generations) do
  for i = arg + 2, #ARGV, 4 do
    if ARGV[i] ~= '' and #ARGV[i] ~= t.kb + TIME then return {FORMAT, t.kb} end
  end
end
local reply = {OK, c.next or ''}
for _, t in ipairs(generations) do
  t.users, t.standings, t.keys, t.outbox = 0, 0, 0, {}
  local w = key(t.g, 'w')
  local seen = only ~= '' and batch <= tonumber(call('HGET', w, 'batch') or 0)
  if not seen then
    for i = arg, #ARGV, 4 do move(t, ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]) end
    if only ~= '' then call('HSET', w, 'batch', batch) end
  end
  for _, counter in ipairs({'users', 'standings', 'keys'}) do
    if t[counter] ~= 0 then call('HINCRBY', w, counter, t[counter]) end
  end
  if S ~= '1' then
    for j, items in pairs(t.outbox) do
      local o = key(t.g, 'o:' .. j)
      for _, item in ipairs(items) do call('RPUSH', o, item) end
      call('HINCRBY', w, 'untold', #items)
      call('HSETNX', w, 'oldest', c.now)
    end
    if tonumber(call('HGET', w, 'untold') or 0) > 0 then
      for j = 0, tonumber(S) - 1 do
        local items = call('LRANGE', key(t.g, 'o:' .. j), 0, ITEMS - 1)
        if #items > 0 then
          reply[#reply + 1] = {t.g, j, tonumber(call('HGET', w, 'o' .. j) or 0), items}
        end
      end
    end
  end
end
return reply
