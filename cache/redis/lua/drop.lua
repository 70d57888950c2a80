-- Makes a shard forget what it holds, by ARGV[3]:
--   'lose'  everything, but not the number of shards and the fence. Returns OK and
--           the number of shards, 0 if unknown;
--   'all'   the same, the number of shards and the fence too, if free.lua has freed
--           everything. KEYS may go on with the lease, which ends;
--   'abort' the generation ARGV[4] if it is being built; returns OK and 1 if it
--           is live, else 0.
local c, how = control(), ARGV[3]
if how == 'abort' then
  if c.next == ARGV[4] then
    call('HSET', T, 'dead', c.dead .. c.next .. ' ' .. c.nbuckets .. ' ')
    call('HDEL', T, 'next', 'nkb', 'nasof', 'nbuckets')
  end
  return {OK, c.live == ARGV[4] and 1 or 0}
end
empty_shard()
if how == 'all' then
  if KEYS[2] then call('UNLINK', KEYS[2]) end
  if control().dead == '' then call('UNLINK', T) end
end
return {OK, tonumber(c.S or 0)}
