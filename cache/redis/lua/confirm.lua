-- Confirms that a shard in doubt lacks no update of messages before the given offsets: see doubt.go.
--
-- After the loss of a server, each member of the consumer group repeats the updates at and after the
-- recorded positions of its partitions, and then confirms the partitions. After all partitions are
-- confirmed, the shard is no longer in doubt.
--
-- A session is a generation of the consumer group in Kafka. Only confirmations of one session count
-- together, because a member may not know yet that a newer session has taken its partitions away.
--
-- From ARGV[3] on, the arguments are:
--   the server that the caller has found the shard on
--   the number of the session
--   the number of partitions of the log
--   the tag of the board: see tagOf in doubt.go
--   the newest live generation of all shards, or '' for a season with one shard
--   pairs of a partition and an offset
-- Returns one of:
--   OK and the server: the shard is not in doubt any more
--   DOUBT and 1: other partitions must still be confirmed
--   DOUBT and 0: the confirmation does not count
--   LOST: the script has emptied the shard, because its live generation has another tag or is not the
--   newest

--include base
--include server
--include write

local c, refusal = enter(true)
if refusal then return refusal end
local server, session, partitions = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
if server ~= c.server then return {DOUBT, 0} end
local sure = T .. ':sure'
if c.doubt then
  if not c.live or c.tag ~= ARGV[6] or ARGV[7] ~= '' and c.live ~= ARGV[7] then
    empty_shard()
    return {LOST}
  end
  local v = call('HMGET', sure, 'server', 'session')
  if v[1] ~= server or tonumber(v[2]) < session then
    call('UNLINK', sure)
    call('HSET', sure, 'server', server, 'session', session)
  elseif tonumber(v[2]) > session then
    return {DOUBT, 0}
  end
end
for i = 8, #ARGV, 2 do
  if c.doubt then call('HSET', sure, '/' .. ARGV[i], 1) end
end
record(8)
if c.doubt then
  if call('HLEN', sure) - 2 < partitions then return {DOUBT, 1} end
  -- A generation that is being built may lack writes of its Rebuild, so the Rebuild must restart.
  local next = c.next or c.other_next
  if next then c.dead = c.dead .. next .. ' ' .. c.nbuckets .. ' ' end
  call('HSET', T, 'id', LAYOUT .. server, 'seen', 0, 'dead', c.dead .. c.aside)
  forget_next()
  call('UNLINK', sure)
end
return {OK, server}
