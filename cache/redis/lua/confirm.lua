-- Confirms that a shard in doubt lacks no update of messages before the given offsets.
--
-- Each member of the consumer group owns some partitions of the log. After the loss of a server,
-- each owner repeats the updates of its partitions from the recorded positions on. Then it
-- confirms its partitions. After all partitions are confirmed, the shard is no longer in doubt.
--
-- Only the confirmations of one session of the group count together: a member that has lost its
-- partitions without knowing it is in an older session.
--
-- From ARGV[3] on, the arguments are: the server that the caller has found the shard on; the
-- number of the group's session; the number of partitions of the log; the tag of the board; and
-- pairs of a partition and an offset. Returns OK and the server if the shard is not in doubt
-- any more. If other partitions must still be confirmed, returns DOUBT and 1. If the confirmation
-- does not count, returns DOUBT and 0. If the shard was written by other rules of the board, or on
-- an earlier board of the same name, the script empties the shard and returns LOST.
local c, refusal = enter(true)
if refusal then return refusal end
local server, session, partitions = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
if server ~= c.server then return {DOUBT, 0} end
local at, sure = T .. ':at', T .. ':sure'
if c.doubt then
  if not c.live or c.tag ~= ARGV[6] then
    empty_shard()
    return {LOST}
  end
  if c.other_next then return {DOUBT, 0} end -- the Rebuild that changes the number of shards stops first
  local v = call('HMGET', sure, 'server', 'session')
  if v[1] ~= server or tonumber(v[2]) < session then
    call('UNLINK', sure)
    call('HSET', sure, 'server', server, 'session', session)
  elseif tonumber(v[2]) > session then
    return {DOUBT, 0}
  end
end
for i = 7, #ARGV, 2 do
  if tonumber(ARGV[i + 1]) > tonumber(call('HGET', at, ARGV[i]) or -1) then call('HSET', at, ARGV[i], ARGV[i + 1]) end
  if c.doubt then call('HSET', sure, '/' .. ARGV[i], 1) end
end
if c.doubt then
  if call('HLEN', sure) - 2 < partitions then return {DOUBT, 1} end
  -- A generation that was being built may lack pieces, so its Rebuild must begin again.
  if c.next then c.dead = c.dead .. c.next .. ' ' .. c.nbuckets .. ' ' end
  c.id = layout(c.S) .. server
  call('HSET', T, 'id', c.id, 'seen', 0, 'dead', c.dead .. c.aside)
  forget_next(c)
  call('UNLINK', sure)
end
return {OK, server}
