-- Confirms that a shard in doubt lacks no update of messages before the given offsets: see doubt.go.
--
-- Each member of the consumer group owns some partitions of the log. After the loss of a server, each
-- member repeats the updates at and after the recorded positions of its partitions, and then confirms
-- the partitions. After all partitions are confirmed, the shard is no longer in doubt.
--
-- Only the confirmations of one session of the group count together: a member that has lost its
-- partitions without knowing it is in an older session.
--
-- From ARGV[3] on, the arguments are:
--   the server that the caller has found the shard on
--   the number of the group's session
--   the number of partitions of the log
--   the tag of the board
--   1 if the channels of the shard are complete, otherwise 0
--   the newest live generation of all shards, or ''
--   pairs of a partition and an offset
-- Returns one of:
--   OK and the server: the shard is not in doubt any more
--   DOUBT and 1: other partitions must still be confirmed, or channels are not complete
--   DOUBT and 0: the confirmation does not count
--   LOST: the shard was written by other rules of the board, or on an earlier board of the same name,
--   or does not have the newest live generation, so the script has emptied the shard
local c, refusal = enter(true)
if refusal then return refusal end
local server, session, partitions = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
if server ~= c.server then return {DOUBT, 0} end
local sure = T .. ':sure'
if c.doubt then
  if not c.live or c.tag ~= ARGV[6] or ARGV[8] ~= '' and c.live ~= ARGV[8] then
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
for i = 9, #ARGV, 2 do
  if c.doubt then call('HSET', sure, '/' .. ARGV[i], 1) end
end
record(9)
if c.doubt then
  if call('HLEN', sure) - 2 < partitions or ARGV[7] ~= '1' then return {DOUBT, 1} end
  -- A generation that was being built may lack pieces, so its Rebuild must begin again.
  local next = c.next or c.other_next
  if next then c.dead = c.dead .. next .. ' ' .. c.nbuckets .. ' ' end
  c.id = layout(c.S) .. server
  call('HSET', T, 'id', c.id, 'seen', 0, 'dead', c.dead .. c.aside)
  forget_next(c)
  call('UNLINK', sure)
  -- Updates do not deliver items while the shard is in doubt, so the next reader does.
  local w = key(c.live, 'w')
  if S ~= '1' and tonumber(call('HGET', w, 'untold') or 0) > 0 then call('HSET', w, 'oldest', 0) end
end
return {OK, server}
