-- Begins or ends the bulk load of a Rebuild in a shard.
--
-- During a bulk load, updates go to the live generation and to a generation A, which begins
-- empty and is the one being built. Meanwhile the Rebuild writes the keys of a generation B by
-- plain commands. No script reads or changes these keys. The end of the bulk load makes
-- B the generation being built. The Rebuild then applies the records of A to B, by the update
-- script. Versions make the order of these records and of later updates irrelevant.
--
-- The key :b of B exists while the bulk load may write. The Rebuild writes in pieces. Each
-- piece is one transaction, which the server executes only if :b still exists. free.lua removes
-- :b before any other key, so a late piece of an overtaken Rebuild changes nothing. The key d of
-- a tree's group (see tree.lua) names a leaf before a piece writes the leaf, so free.lua finds all
-- leaves. In the same way, the set :x names a block before a piece writes the block. Each piece
-- sets a bit of :p, so the script can find missing pieces.
--
-- ARGV[3] is A, ARGV[4] is B, and ARGV[5] the number of B's buckets. If ARGV[6] is '', the script
-- begins the bulk load. The Rebuild repeats this call with the number of buckets before it writes
-- the first bucket. Otherwise ARGV[6] is the number of pieces, and the script ends the bulk
-- load. It returns OK, the number of A's buckets, and the number of users in A. If pieces are
-- missing, the script changes nothing and returns GAP. After the end, A is in the field aside.

--include base
--include server
--include write

local c, refusal = enter()
if refusal then return refusal end
local a, b, pieces = ARGV[3], ARGV[4], ARGV[6]
local name = b .. ' ' .. ARGV[5] .. ' '
if pieces == '' then
  if c.next ~= a then return {FENCED, c.fence} end
  call('HSET', T, 'aside', name)
  call('HSET', key(b, 'l'), '', 0)
  call('SET', key(b, 'b'), 1)
  return {OK}
end
if c.next == a and c.aside == name then
  if call('EXISTS', key(b, 'b')) == 0 or call('BITCOUNT', key(b, 'p')) ~= tonumber(pieces) then return {GAP} end
  call('HSET', T, 'next', b, 'nbuckets', ARGV[5], 'aside', a .. ' ' .. c.nbuckets .. ' ')
  call('UNLINK', key(b, 'b'), key(b, 'p'))
  c.aside = a .. ' ' .. c.nbuckets .. ' '
elseif c.next ~= b then
  return {FENCED, c.fence}
end
local buckets = string.match(c.aside, ' (%d+) $')
return {OK, tonumber(buckets or 0), tonumber(call('HGET', key(a, 'w'), 'users') or 0)}
