-- The field id begins with the number of the layout of keys, and a space. If it begins otherwise, the shard counts
-- as lost, so no script reads keys of another layout.
local LAYOUT = '2 '

-- empty_shard marks the shard as empty. free.lua frees the memory later.
local function empty_shard() call('HDEL', T, 'busy') end

-- identity returns the server's name. The name changes when the server restarts or becomes a master. After
-- such a change, the server's data may be old.
local function identity()
  local info = redis.pcall('INFO', 'server', 'replication')
  if type(info) ~= 'string' then return '' end
  return (string.match(info, 'run_id:(%w+)') or '') .. '/' .. (string.match(info, 'master_replid2:(%w+)') or '')
end

-- check_server returns the time, the state of the shard, and the server's name. The state is one of:
--   OK     the shard is on the server that the field id names.
--   DOUBT  the shard is on another server, so it may lack the last updates. Its data is a consistent
--          older state, because Redis replicates and stores the writes of a script together and
--          in order.
--   LOST   a script failed half-way, or the keys have another layout. check_server empties the shard.
-- A check of the server is valid for 100 ms, because a restart or an election takes longer. The field
-- seen has the time of the last check. Replicas do not get this time, so a promoted replica checks.
-- The parameters are fields of the control hash.
local function check_server(id, seen, busy)
  local t = call('TIME')
  local now = t[1] * 1000000 + t[2]
  if busy == '0' then
    if math.abs(now - seen) < FRESH then return now, OK, sub(id, 3) end
    local known, server = sub(id, 1, 2) == LAYOUT, identity()
    if known and server == sub(id, 3) then
      redis.set_repl(redis.REPL_NONE)
      redis.pcall('HSET', T, 'seen', now) -- pcall, so that a server without memory still answers questions
      redis.set_repl(redis.REPL_ALL)
      return now, OK, server
    end
    if known then return now, DOUBT, server end
  end
  empty_shard()
  return now, LOST
end
