-- empty_shard marks the shard as empty. free.lua frees the memory later, in pieces.
local function empty_shard() call('HDEL', T, 'busy') end

-- identity returns a name of the layout, the server process and its term as master.
-- It changes with a restart or a failover, after which the data may be old.
local function identity()
  local info = redis.pcall('INFO', 'server', 'replication')
  if type(info) ~= 'string' then return layout() end
  return layout() .. (string.match(info, 'run_id:(%w+)') or '') .. '/' .. (string.match(info, 'master_replid2:(%w+)') or '')
end

-- check_server returns the time, the state of the shard, and the server. The state is one of:
--   OK     the shard is on the server that it was written on.
--   DOUBT  the shard is on another server, so it may lack the last updates. It is a consistent
--          older state, because Redis replicates and stores the writes of a script together and
--          in order.
--   LOST   a script failed half-way, or the layout is another one. check_server empties the shard.
--          The same applies to a changed server if the season has several shards, because the
--          outboxes would no longer match.
-- A check of the server is valid for 100 ms, because a restart or an election takes longer. The
-- time of the check is not replicated, so a promoted replica does not rely on it.
local function check_server(seen, busy)
  local t = call('TIME')
  local now = t[1] * 1000000 + t[2]
  if busy == '0' then
    if math.abs(now - seen) < 100000 then return now, OK, call('HGET', T, 'id') end
    local id, server = call('HGET', T, 'id'), identity()
    if server == id then
      redis.set_repl(redis.REPL_NONE)
      redis.pcall('HSET', T, 'seen', now) -- pcall, so that a server without memory still answers questions
      redis.set_repl(redis.REPL_ALL)
      return now, OK, server
    end
    if S == '1' and sub(id, 1, 2) == layout() then return now, DOUBT, server end
  end
  empty_shard()
  return now, LOST
end
