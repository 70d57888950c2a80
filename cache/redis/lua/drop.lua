-- Makes a shard forget data. ARGV[3] states which:
--   'lose'  everything except the numbers of shards and the fence. Returns OK and the
--           numbers of shards of live, of next and of leftS, or 0 if they are unknown;
--   'all'   the same, and the lease KEYS[2], if it is given. If free.lua has freed everything,
--           also the number of shards and the fence. Returns the same as 'lose';
--   'left'  the field leftS. Returns OK;
--   'abort' the generation ARGV[4], if it is being built, and the generation aside. Returns
--           OK, and 1 if the generation ARGV[4] is live, otherwise 0.
local c, how = read_control(), ARGV[3]
if how == 'left' then
  call('HDEL', T, 'leftS')
  return {OK}
end
if how == 'abort' then
  if c.next == ARGV[4] then
    call('HSET', T, 'dead', c.dead .. c.next .. ' ' .. c.nbuckets .. ' ' .. c.aside)
    forget_next(c)
  end
  return {OK, c.live == ARGV[4] and 1 or 0}
end
empty_shard()
if how == 'all' then
  if KEYS[2] then call('UNLINK', KEYS[2]) end
  if read_control().dead == '' then call('UNLINK', T, T .. ':at', T .. ':sure') end
end
return {OK, tonumber(c.S or 0), tonumber(c.nS or 0), tonumber(call('HGET', T, 'leftS') or 0)}
