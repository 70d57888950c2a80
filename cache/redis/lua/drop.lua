-- Drops data of a shard. ARGV[3] is one of:
--   'lose'  marks the shard as empty. Returns OK and the fields S, nS and leftS, each 0 if absent.
--   'all'   marks the shard as empty, and removes the lease KEYS[2], if it is given. If free.lua has
--           freed all generations, the script also removes the control hash, :at and :sure. Returns
--           the same as 'lose'.
--   'left'  removes the field leftS. Returns OK.
--   'abort' drops the generation ARGV[4] and the generation aside, if ARGV[4] is being built.
--           Returns OK, and 1 if the generation ARGV[4] is live, otherwise 0.

--include base
--include server
--include write

local c, how = read_control(), ARGV[3]
if how == 'left' then
  call('HDEL', T, 'leftS')
  return {OK}
end
if how == 'abort' then
  if c.next == ARGV[4] then
    call('HSET', T, 'dead', c.dead .. c.next .. ' ' .. c.nbuckets .. ' ' .. c.aside)
    forget_next()
  end
  return {OK, c.live == ARGV[4] and 1 or 0}
end
empty_shard()
if how == 'all' then
  if KEYS[2] then call('UNLINK', KEYS[2]) end
  if read_control().dead == '' then call('UNLINK', T, T .. ':at', T .. ':sure') end
end
return {OK, tonumber(c.S or 0), tonumber(c.nS or 0), tonumber(call('HGET', T, 'leftS') or 0)}
