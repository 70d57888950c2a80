-- Makes a shard forget data. ARGV[3] states which:
--   'lose'  everything except the number of shards and the fence. Returns OK and the
--           number of shards, or 0 if that number is unknown;
--   'all'   the same. If free.lua has freed everything, the shard also forgets the
--           number of shards and the fence. If KEYS[2] is given, it is the lease, which
--           the script removes. Returns the same as 'lose';
--   'abort' the generation ARGV[4], if it is being built, and the generation aside. Returns
--           OK, and 1 if the generation ARGV[4] is live, otherwise 0.
local c, how = read_control(), ARGV[3]
if how == 'abort' then
  if c.next == ARGV[4] then
    call('HSET', T, 'dead', c.dead .. c.next .. ' ' .. c.nbuckets .. ' ' .. c.aside)
    call('HDEL', T, 'next', 'nkb', 'nasof', 'nbuckets', 'aside')
  end
  return {OK, c.live == ARGV[4] and 1 or 0}
end
empty_shard()
if how == 'all' then
  if KEYS[2] then call('UNLINK', KEYS[2]) end
  if read_control().dead == '' then call('UNLINK', T, T .. ':at', T .. ':sure') end
end
return {OK, tonumber(c.S or 0)}
