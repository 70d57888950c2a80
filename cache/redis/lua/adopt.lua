-- Records at a home the terms of channels to the home: see channel.lua. If the sender has lost items that
-- the home has received, the script moves these items to the list :d, and counts them as not received.
--
-- ARGV[3] is the live generation. Then come channels. Each has the sender, the terms that the caller
-- has read here, and the terms and the number of items that the caller then read at the sender.
-- Returns OK, and for each channel the number of items received, the name of the list :d or '', and
-- the list. Instead of the number, the script returns -1 if the terms here have changed since the
-- caller read them, or -2 if this shard no longer has the items that it must move.

--include base
--include server
--include write
--include channel

local c, refusal = enter(true)
if refusal then return refusal end
if c.live ~= ARGV[3] then return {FENCED, c.fence} end
mark_busy()

-- common returns the number of first items that the home and the sender have in common, or nil if they
-- share no term. ours and received are the home's terms and number of items, theirs and sent the sender's.
local function common(ours, received, theirs, sent)
  local found = {}
  for i, term in ipairs(theirs) do found[term.start .. ' ' .. term.name] = i end
  for i = #ours, 1, -1 do
    local j = found[ours[i].start .. ' ' .. ours[i].name]
    if j and i == #ours and j == #theirs then return received end -- sent may be less: the caller read it earlier
    if j then
      return math.min(received, ours[i + 1] and ours[i + 1].start or received, theirs[j + 1] and theirs[j + 1].start or sent)
    end
  end
end

-- adopt replaces the terms old of a channel by the terms e. It returns the number of items received, or -2.
local function adopt(sender, old, e, sent)
  local w, log = key(c.live, 'w'), key(c.live, 'i:' .. sender)
  local received = tonumber(call('HGET', w, 'i' .. sender) or 0)
  local n = common(terms(old), received, terms(e), sent)
  local removed = received - call('LLEN', log)
  if not n or n < received and n < removed then return -2 end
  if n < received then
    local list = key(c.live, 'd:' .. sender)
    append(list, call('LRANGE', log, format('%d', n - received), -1))
    if n > removed then call('LTRIM', log, 0, format('%d', n - received - 1)) else call('UNLINK', log) end
    call('HSET', w, 'i' .. sender, n, 't' .. sender, format('%d-%d', c.now, call('LLEN', list)))
    if tonumber(call('HGET', w, 'q' .. sender) or 0) > n then call('HSET', w, 'q' .. sender, n) end
  end
  call('HSET', w, 'f' .. sender, e)
  return n
end

local reply = {OK}
for arg = 4, #ARGV, 4 do
  local sender, old, w = ARGV[arg], ARGV[arg + 1], key(c.live, 'w')
  local result = -1
  if (call('HGET', w, 'f' .. sender) or '') == old then
    result = adopt(sender, old, ARGV[arg + 2], tonumber(ARGV[arg + 3]))
  end
  reply[#reply + 1], reply[#reply + 2] = result, call('HGET', w, 't' .. sender) or ''
  reply[#reply + 1] = call('LRANGE', key(c.live, 'd:' .. sender), 0, -1)
end
call('HSET', T, 'busy', 0)
return reply
