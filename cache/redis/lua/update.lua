-- Applies entries. The script ignores entries that are not newer than the shard's records: see
-- base.lua. From ARGV[3] on, the arguments are:
--   '' to write all generations, or the generation being built, to write only this one
--   the number of a Rebuild's batch, or 0. A batch that is sent twice counts once
--   the time of the change, or ''
--   the entries. Each has a user, the user's hash, a version, a prefix or '', and divisions, each
--   after a byte with its length
-- Returns one of:
--   OK, and then:
--     the generation being built or ''
--     1 if free.lua has work, otherwise 0
--     the server that the shard is on
--     the number of shards of the generation being built if it differs from S, otherwise 0
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

local FIRST = 6 -- the index of the first entry in ARGV
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
for _, t in ipairs(generations) do
  for i = FIRST + 3, #ARGV, ENTRY do
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

-- ladder_number returns the number of a ladder. It creates the number if needed.
local function ladder_number(t, name)
  local l = key(t.g, 'l')
  local number = t.number[name] or call('HGET', l, name)
  if not number then
    number = call('HLEN', l)
    call('HSET', l, name, number)
  end
  t.number[name] = number
  return tonumber(number)
end

-- tree returns the tree of a ladder's sort keys.
local function tree(t, number)
  if not t.trees[number] then t.trees[number] = new_tree(key(t.g, number), t.kb) end
  return t.trees[number]
end

-- encode_ladders encodes the numbers of the divisions' ladders for a record (see base.lua). It creates
-- missing numbers.
local function encode_ladders(t, divisions)
  local list, i = {}, 1
  while i <= #divisions do
    local n = byte(divisions, i)
    local name = sub(divisions, i + 1, i + n)
    local number = ladder_number(t, name)
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
      take(tree(t, number), old_prefix .. user)
      t.standings = t.standings - 1
    else
      arriving[number] = nil
      if old_prefix ~= prefix then
        put(tree(t, number), prefix .. user)
        take(tree(t, number), old_prefix .. user)
      end
    end
  end
  for _, number in ipairs(after) do
    if arriving[number] then
      put(tree(t, number), prefix .. user)
      t.standings = t.standings + 1
    end
  end
end

local reply = {OK, c.next or c.other_next or '', c.dead ~= '' and 1 or 0, c.server, c.other_next and tonumber(c.nS) or 0}

for _, t in ipairs(generations) do
  t.users, t.standings, t.number, t.trees = 0, 0, {}, {}
  local w = key(t.g, 'w')
  if not repeated then
    for i = FIRST, #ARGV, ENTRY do move(t, ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4]) end
    if batch > 0 then call('HSET', w, 'batch', batch) end
  end
  for _, ladder in pairs(t.trees) do flush(ladder) end
  if t.users > 0 then
    local users, buckets = call('HINCRBY', w, 'users', t.users), t.buckets
    while users > USERS * t.buckets do grow(t) end
    if t.buckets > buckets then done[#done + 1], done[#done + 2] = t.field, t.buckets end
  end
  if t.standings ~= 0 then call('HINCRBY', w, 'standings', t.standings) end
end
call('HSET', T, unpack(done))
return reply
