-- Frees some keys of a generation that the shard no longer needs: see dead in base.lua. Returns OK; 1
-- if more keys remain, otherwise 0; and how many of the generation's keys :u0, :u1… are freed by now.
-- The next call passes this number as ARGV[3]. The first call passes 0.

--include base
--include server
--include write

-- While keys of the generation remain, a call frees at least so many. It frees whole groups of trees, and most
-- groups have more keys, so usually it frees one.
local PIECE = 128
local c = read_control()
local g, buckets = string.match(c.dead, '^(%S+) (%d+) ')
if not g then return {OK, 0, 0} end
local l, freed, n = key(g, 'l'), tonumber(ARGV[3]), 0
-- From now on, no piece of a bulk load (see bulk.lua) can write keys of this generation.
call('UNLINK', key(g, 'b'))

-- cut frees groups of a tree until the call has freed PIECE keys. It reports whether all groups are freed.
local function cut(at)
  while n < PIECE do
    local group = call('ZRANGE', at .. 'r', 0, 0)[1]
    local name = group or ''
    local names = {at .. 'l' .. name, at .. 'd' .. name, at .. 'c' .. name, at .. 'f' .. name}
    for _, s in ipairs(call('ZRANGE', at .. 'd' .. name, 0, -1)) do names[#names + 1] = at .. 'l' .. s end
    call('UNLINK', unpack(names))
    n = n + #names
    if not group then
      call('UNLINK', at .. 's')
      return true
    end
    call('ZREM', at .. 'r', group)
  end
  return false
end

while n < PIECE do
  local ladders = call('HSCAN', l, 0, 'COUNT', 10)[2]
  if #ladders == 0 then break end
  for i = 1, #ladders, 2 do
    local at = key(g, ladders[i + 1])
    if not cut(at) then return {OK, 1, 0} end
    call('HDEL', l, ladders[i])
  end
end
while n < PIECE do
  local blocks = call('SPOP', key(g, 'x'), 10)
  if #blocks == 0 then break end
  for _, i in ipairs(blocks) do call('UNLINK', key(g, 'x' .. i)) end
  n = n + #blocks
end
while n < PIECE and freed < tonumber(buckets) do
  call('UNLINK', key(g, 'u' .. freed))
  n, freed = n + 1, freed + 1
end
if n >= PIECE then return {OK, 1, freed} end

call('UNLINK', key(g, 'w'), key(g, 'p'))
local rest = string.match(c.queued, '^%S+ %d+ (.+)$')
if rest then
  call('HSET', T, 'dead', rest)
elseif c.queued ~= '' then
  call('HDEL', T, 'dead')
elseif call('HGET', T, 'aside') == g .. ' ' .. buckets .. ' ' then -- it was the generation aside (see base.lua) of an empty shard
  call('HDEL', T, 'aside')
else -- it was the live or next generation of an empty shard
  local live = call('HGET', T, 'live') == g
  call('HDEL', T, live and 'live' or 'next', live and 'kb' or 'nkb', live and 'asof' or 'nasof', live and 'buckets' or 'nbuckets')
end
return {OK, read_control().dead ~= '' and 1 or 0, 0}
