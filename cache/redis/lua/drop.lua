-- Frees what a shard holds. ARGV[3]: 'all' to leave nothing, which answers with
-- the number of shards, 0 if unknown; 'lose' to keep that number and the fence;
-- 'abort' to free the generation ARGV[4] if it is being built, which
-- answers with whether it is live.
local c, how = control(), ARGV[3]
if how == 'abort' then
  if c.next == ARGV[4] then
    unlink(c.next, c.S)
    call('HDEL', T, 'next', 'nkb', 'nasof')
  end
  return {OK, c.live == ARGV[4] and 1 or 0}
end
forget()
if how == 'all' then call('UNLINK', unpack(KEYS)) end
return {OK, tonumber(c.S or 0)}
