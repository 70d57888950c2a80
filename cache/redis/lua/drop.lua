-- Frees what a shard holds, by ARGV[3]:
--   'all'   everything; returns OK and the number of shards, 0 if unknown;
--   'lose'  the same, but keeps the number of shards and the fence;
--   'abort' the generation ARGV[4] if it is being built; returns OK and 1 if it
--           is live, else 0.
local c, how = control(), ARGV[3]
if how == 'abort' then
  if c.next == ARGV[4] then
    unlink(c.next, c.S)
    call('HDEL', T, 'next', 'nkb', 'nasof')
  end
  return {OK, c.live == ARGV[4] and 1 or 0}
end
empty_shard()
if how == 'all' then call('UNLINK', unpack(KEYS)) end
return {OK, tonumber(c.S or 0)}
