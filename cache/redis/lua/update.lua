-- Applies entries. The script ignores entries that are not newer than the shard's records: see
-- base.lua. From ARGV[3] on, the arguments are:
--   '' to write all generations, or the generation being built, to write only this one. In the second
--   case, the entries must come in the order of their sort keys
--   the number of a Rebuild's batch, or 0. A batch that is sent twice counts once
--   the time of the change, or ''
--   the number of acknowledgements, and the acknowledgements. Each has a generation, another shard N,
--   the terms of the channel to N (see channel.lua), and the number of items that N has received
--   the entries. Each has a user, the user's hash, a version, a prefix or '', and divisions, each
--   after a byte with its length
-- Returns one of:
--   OK, and then:
--     the generation being built or ''
--     1 if free.lua has work, otherwise 0
--     the server that the shard is on
--     the number of shards of the generation being built if it differs from S, otherwise 0
--     the outboxes with items that are not acknowledged. Each has a generation, the receiving shard N,
--     the terms of the channel to N, the number of items that N has acknowledged, and the next items
--   GAP: earlier batches are missing, so the script has written nothing
--   FORMAT and the length of the generation's rank keys: the prefix of an entry has another length, so
--   the script has written nothing

--include base
--include tree
--include find
--include leaf
--include fast
-- The file fast often ends the script, so the files with more functions follow it.
--include server
--include write
--include edit
--include homes
--include run
--include channel

local ITEMS = 1000 -- most items of one outbox in an answer
local ENTRY = 5 -- arguments of an entry
local USERS = 64 -- average number of users in a bucket

local c, refusal = enter(true)
if refusal then return refusal end
local target, batch, at = ARGV[3], tonumber(ARGV[4]), ARGV[5]

local generations = {}
if target ~= '' then
  if c.next ~= target then return {FENCED, c.fence} end
  generations[1] = {g = target, kb = c.nkb, buckets = c.nbuckets, field = 'nbuckets'}
else
  if c.live then generations[1] = {g = c.live, kb = c.kb, buckets = c.buckets, field = 'buckets'} end
  if c.next then generations[#generations + 1] = {g = c.next, kb = c.nkb, buckets = c.nbuckets, field = 'nbuckets'} end
end
local first = 7 + 4 * ARGV[6]
for _, t in ipairs(generations) do
  for i = first + 3, #ARGV, ENTRY do
    if ARGV[i] ~= '' and #ARGV[i] ~= t.kb + TIME then return {FORMAT, t.kb} end
  end
end
local repeated = false
if batch > 0 then
  local last = tonumber(call('HGET', key(target, 'w'), 'batch') or 0)
  if batch > last + 1 then return {GAP} end
  repeated = batch <= last
end
mark_busy()
if c.doubt and S ~= '1' and c.live then begin_term(c.live, c.server) end

local function is_later(a, b)
  for i = 1, TIME do
    local x, y = byte(a, i), byte(b, i)
    if x ~= y then return x > y end
  end
  return false
end
local done = {'busy', 0} -- what the script writes to the control hash at its end
if target == '' and at ~= '' then
  if c.live and is_later(at, c.asof) then done[3], done[4] = 'asof', at end
  if c.next and is_later(at, c.nasof) then done[#done + 1], done[#done + 2] = 'nasof', at end
end

local arg = 7
for _ = 1, tonumber(ARGV[6]) do
  local g, j, e, received = ARGV[arg], ARGV[arg + 1], ARGV[arg + 2], tonumber(ARGV[arg + 3])
  arg = arg + 4
  if g == c.live or g == c.next then
    local w = key(g, 'w')
    local v = call('HMGET', w, 'e' .. j, 'o' .. j)
    local n = received - (v[2] or 0)
    if n > 0 and (v[1] or '') == e then
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

-- notify_home notifies the home of the rank key k (see base.lua). The sign is '+' if this shard now holds
-- k, otherwise '-'. If the home is another shard, notify_home adds an item to that shard's outbox.
local function notify_home(t, sign, number, k)
  local j = home(k)
  if j == ME then
    t.keys = t.keys + state(t.trees.keys(number), sign, k, ME)
  else
    t.outbox[j] = t.outbox[j] or {}
    local name = number == 0 and '' or call('HGET', key(t.g, 'n'), number)
    table.insert(t.outbox[j], sign .. string.char(#name) .. name .. k)
  end
end

-- arrive adds a user to a ladder, and leave removes a user from a ladder. Both notify the home of
-- the rank key if needed.
local function arrive(t, number, prefix, user)
  if put(t.trees.standings(number), prefix .. user) and S ~= '1' then notify_home(t, '+', number, sub(prefix, 1, t.kb)) end
end

local function leave(t, number, prefix, user)
  if take(t.trees.standings(number), prefix .. user) and S ~= '1' then notify_home(t, '-', number, sub(prefix, 1, t.kb)) end
end

-- encode_ladders encodes the numbers of the divisions' ladders for a record (see base.lua). It creates
-- missing numbers.
local function encode_ladders(t, divisions)
  local list, i = {}, 1
  while i <= #divisions do
    local n = byte(divisions, i)
    local name = sub(divisions, i + 1, i + n)
    local number = t.number[name] or ladder_number(t.g, name)
    t.number[name] = number
    list[#list + 1] = string.char(floor(number / 65536), floor(number / 256) % 256, number % 256)
    i = i + 1 + n
  end
  return table.concat(list)
end

-- ladders_of returns the numbers of a user's ladders: the overall ladder and the ladders of the
-- divisions. A user without a prefix is in no ladder.
local function ladders_of(prefix, divisions)
  if prefix == '' then return {} end
  local list = {0}
  for i = 1, #divisions, LADDER do
    local x, y, z = byte(divisions, i, i + 2)
    list[#list + 1] = x * 65536 + y * 256 + z
  end
  return list
end

local function grow(t)
  local new, m = t.buckets, 1
  while 2 * m <= new do m = 2 * m end
  t.buckets = new + 1
  local from, to = key(t.g, 'u' .. new - m), key(t.g, 'u' .. new)
  local all, moved, names = call('HGETALL', from), {}, {}
  for i = 1, #all, 2 do
    local h = tonumber(sub(redis.sha1hex(all[i]), 9, 16), 16)
    if h % (2 * m) == new then
      names[#names + 1] = all[i]
      moved[#moved + 1], moved[#moved + 2] = all[i], all[i + 1]
    end
  end
  if #moved > 0 then
    call('HSET', to, unpack(moved))
    call('HDEL', from, unpack(names))
  end
end

-- move writes the record of a user and moves the user in all ladders. If the version is not newer than
-- the record's version, move does nothing.
local function move(t, user, h, version, prefix, divisions)
  local bucket, buckets = nil, t.buckets
  --include inline/bucket
  local u = key(t.g, 'u' .. bucket)
  if t.run then -- a Rebuild: most users have no record yet
    local named = encode_ladders(t, divisions)
    if call('HSETNX', u, user, string.char(#version) .. version .. prefix .. named) == 1 then
      t.users = t.users + 1
      for _, number in ipairs(ladders_of(prefix, named)) do
        t.standings = t.standings + 1
        if number == 0 then t.run[#t.run + 1] = prefix .. user else arrive(t, number, prefix, user) end
      end
      return
    end
  end
  local old = call('HGET', u, user)
  local old_prefix, old_divisions = '', ''
  if old then
    local n = byte(old, 1)
    if not is_newer(version, sub(old, 2, n + 1)) then return end
    old_prefix, old_divisions = sub(old, n + 2, n + 1 + t.kb + TIME), sub(old, n + 2 + t.kb + TIME)
  else
    t.users = t.users + 1
  end
  divisions = encode_ladders(t, divisions)
  call('HSET', u, user, string.char(#version) .. version .. prefix .. divisions)
  if old_prefix == prefix and old_divisions == divisions then return end
  local before, after = ladders_of(old_prefix, old_divisions), ladders_of(prefix, divisions)
  local arriving = {}
  for _, number in ipairs(after) do arriving[number] = true end
  for _, number in ipairs(before) do
    if not arriving[number] then
      leave(t, number, old_prefix, user)
      t.standings = t.standings - 1
    else
      arriving[number] = nil
      if old_prefix ~= prefix then
        arrive(t, number, prefix, user) -- before leave: if the rank key is unchanged, the shard holds it all the time
        leave(t, number, old_prefix, user)
      end
    end
  end
  for _, number in ipairs(after) do
    if arriving[number] then
      arrive(t, number, prefix, user)
      t.standings = t.standings + 1
    end
  end
end

-- present replaces the sign '?' of an item (see restate.lua) by '+' or '-'.
local function present(t, item)
  local n = byte(item, 2)
  local k, number = sub(item, 3 + n), call('HGET', key(t.g, 'l'), sub(item, 3, 2 + n))
  local found
  if number then
    local tree = t.trees.standings(number)
    local p = find_place(tree, k)
    found = call('ZRANGEBYLEX', p.leaf, '[' .. k, '+', 'LIMIT', 0, 1)[1]
    local next = not found and next_name(tree, p)
    if next then found = call('ZRANGE', tree.at .. 'l' .. next, 0, 0)[1] end
  end
  return (found and sub(found, 1, #k) == k and '+' or '-') .. sub(item, 2)
end

local reply = {OK, c.next or c.other_next or '', c.dead ~= '' and 1 or 0, c.server, c.other_next and tonumber(c.nS) or 0}

-- add_outboxes adds the outboxes with items that are not acknowledged to the reply.
local function add_outboxes(t)
  local w, fields = key(t.g, 'w'), {}
  for j = 0, S - 1 do fields[2 * j + 1], fields[2 * j + 2] = 's' .. j, 'o' .. j end
  local v = call('HMGET', w, unpack(fields))
  for j = 0, S - 1 do
    local acknowledged = tonumber(v[2 * j + 2] or 0)
    local n = (v[2 * j + 1] or 0) - acknowledged
    if n > 0 then
      local items = call('LRANGE', key(t.g, 'o:' .. j), format('%d', -n), format('%d', math.min(ITEMS - n, 0) - 1))
      for i, item in ipairs(items) do
        if byte(item) == 63 then items[i] = present(t, item) end
      end
      reply[#reply + 1] = {t.g, j, call('HGET', w, 'e' .. j) or '', acknowledged, items}
    end
  end
end

for _, t in ipairs(generations) do
  t.users, t.standings, t.keys, t.outbox, t.number, t.trees = 0, 0, 0, {}, {}, new_trees(t.g, t.kb)
  local w = key(t.g, 'w')
  if not repeated then
    if target ~= '' and S == '1' then t.run = {} end
    for i = first, #ARGV, ENTRY do move(t, ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4]) end
    if t.run then put_all(t.trees.standings(0), t.run) end
    if batch > 0 then call('HSET', w, 'batch', batch) end
  end
  t.trees.flush()
  if t.users > 0 then
    local users, buckets = call('HINCRBY', w, 'users', t.users), t.buckets
    while users > USERS * t.buckets do grow(t) end
    if t.buckets > buckets then done[#done + 1], done[#done + 2] = t.field, t.buckets end
  end
  for _, counter in ipairs({'standings', 'keys'}) do
    if t[counter] ~= 0 then call('HINCRBY', w, counter, t[counter]) end
  end
  if S ~= '1' then
    for j, items in pairs(t.outbox) do send(t.g, j, items, c.now) end
    local v = call('HMGET', w, 'untold', 'mark')
    -- While the shard is in doubt, homes refuse its items until they have adopted its new term (see
    -- adopt.lua). So only calls without entries, which follow the adoption, read the outboxes.
    if tonumber(v[1] or 0) > 0 and (not c.doubt or #ARGV < first) then add_outboxes(t) end
    forget(t.g, c.now, v[2])
  end
end
call('HSET', T, unpack(done))
return reply
