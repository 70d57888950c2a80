-- A channel carries items (see base.lua) from one shard, the sender, to another shard, the home. The
-- n-th item of a channel has the number n. The sender's outbox and the home's list of received items
-- both end with the newest item. Old items are removed from both. doubt.go shows why the home is
-- correct after a loss.
--
-- The sender's items are divided into terms: a new term begins when the sender is on another
-- server (see identity in server.lua). A text has, for each term, the number of the last item before
-- the term, and the term's name, each followed by a space. The fields of the hash :w are:
--   eN        as the sender: the terms of the channel to shard N, oldest first; absent if the only
--             term is the one in which the generation was filled
--   fN        as the home: the terms of the channel from shard N, as adopt.lua last recorded them
--   tN        the name of the list d:N, new for each change; absent if the list is empty
--   server    the server of the present term
--   mark      the time at which items were last removed
--   pN, qN    oN and iN at that time
local KEEP = 30000000 -- minimum time to keep items, in microseconds
local LIMIT = 65536 -- most acknowledged items that a channel keeps

-- terms returns a list of the terms in the text e. Each has the fields start and name.
local function terms(e)
  local list = {}
  for start, name in string.gmatch((e or '') == '' and '0 - ' or e, '(%d+) (%S+) ') do
    list[#list + 1] = {start = tonumber(start), name = name}
  end
  return list
end

-- begin_term begins a new term of all channels from this shard, unless the term of this server has begun.
-- It removes the terms whose items have all been removed.
local function begin_term(g, server)
  local w = key(g, 'w')
  if call('HGET', w, 'server') == server then return end
  local fields, name = {'server', server}, sub(redis.sha1hex(server), 1, 12)
  for j = 0, S - 1 do
    if j ~= tonumber(ME) then
      local v = call('HMGET', w, 's' .. j, 'e' .. j)
      local sent, list = tonumber(v[1] or 0), terms(v[2])
      local oldest = sent - call('LLEN', key(g, 'o:' .. j))
      while list[2] and list[2].start <= oldest do table.remove(list, 1) end
      list[#list + 1] = {start = sent, name = name}
      for i, term in ipairs(list) do list[i] = format('%d %s ', term.start, term.name) end
      fields[#fields + 1], fields[#fields + 2] = 'e' .. j, table.concat(list)
    end
  end
  call('HSET', w, unpack(fields))
end

local function cut_front(list, n)
  if n > 0 then call('LTRIM', list, format('%d', n), -1) end
end

-- forget removes the items that were acknowledged or received before the time mark. If mark is less than
-- KEEP ago, forget does nothing.
local function forget(g, now, mark)
  if mark and math.abs(now - mark) < KEEP then return end
  local w = key(g, 'w')
  local fields = {'mark', now}
  for j = 0, S - 1 do
    local v = call('HMGET', w, 's' .. j, 'o' .. j, 'p' .. j, 'i' .. j, 'q' .. j)
    local o, i = key(g, 'o:' .. j), key(g, 'i:' .. j)
    if v[3] then cut_front(o, v[3] - (v[1] - call('LLEN', o))) end
    if v[5] then cut_front(i, v[5] - (v[4] - call('LLEN', i))) end
    if v[2] then fields[#fields + 1], fields[#fields + 2] = 'p' .. j, v[2] end
    if v[4] then fields[#fields + 1], fields[#fields + 2] = 'q' .. j, v[4] end
  end
  call('HSET', w, unpack(fields))
end

local function append(list, items)
  local n = 0
  for i = 1, #items, 1000 do n = call('RPUSH', list, unpack(items, i, math.min(i + 999, #items))) end
  return n
end

local function send(g, j, items, now)
  local w, o = key(g, 'w'), key(g, 'o:' .. j)
  local length = append(o, items)
  call('HINCRBY', w, 's' .. j, #items)
  call('HINCRBY', w, 'untold', #items)
  call('HSETNX', w, 'oldest', now)
  if length > LIMIT then
    local v = call('HMGET', w, 's' .. j, 'o' .. j)
    cut_front(o, math.min(length - LIMIT, length - (v[1] - (v[2] or 0))))
  end
end
