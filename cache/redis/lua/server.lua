-- empty_shard marks the shard as empty. free.lua frees the memory later, in pieces.
local function empty_shard() call('HDEL', T, 'busy') end

-- identity returns a name of the layout, the server process and its term as master.
-- It changes with a restart or a failover, after which the data may be old.
local function identity()
  local info = redis.pcall('INFO', 'server', 'replication')
  if type(info) ~= 'string' then return LAYOUT end
  return LAYOUT .. (string.match(info, 'run_id:(%w+)') or '') .. '/' .. (string.match(info, 'master_replid2:(%w+)') or '')
end

-- check_server returns the time. If this is not the server that the shard was
-- written on, or if a script failed half-way, check_server empties the shard and returns
-- nil. A check of the server is valid for 100 ms, because a restart or an election takes
-- longer.
local function check_server(seen, busy)
  local t = call('TIME')
  local now = t[1] * 1000000 + t[2]
  if busy == '0' then
    if math.abs(now - seen) < 100000 then return now end
    if identity() == call('HGET', T, 'id') then
      redis.pcall('HSET', T, 'seen', now) -- pcall, so that a server without memory still answers questions
      return now
    end
  end
  empty_shard()
end
