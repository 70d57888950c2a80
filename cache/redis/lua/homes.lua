-- The dense rank counts different rank keys. Each rank key has a home among the
-- shards. The home is notified when a shard gets its first standing with the rank
-- key or loses its last. The functions hold and release run at the home. Each
-- returns the change of the home's number of rank keys. Their parameter t is the tree of
-- the ladder's rank keys, and m is the hash of the rank keys that several shards hold.
local function hold(t, m, k)
  if put(t, k) == nil then
    call('HINCRBY', m, k, 1)
    return 0
  end
  return 1
end

local function release(t, m, k)
  if call('HEXISTS', m, k) == 1 then
    if call('HINCRBY', m, k, -1) == 0 then call('HDEL', m, k) end
    return 0
  end
  return take(t, k) == nil and 0 or -1
end

-- ladder_number returns the number of a ladder in a generation.
local function ladder_number(g, name)
  if name == '' then return 0 end
  local l = key(g, 'l')
  local number = call('HGET', l, name)
  if not number then
    number = call('HLEN', l)
    call('HSET', l, name, number)
    if S ~= '1' then call('HSET', key(g, 'n'), number, name) end
  end
  return tonumber(number)
end

-- The function trees returns three functions for a generation. The function standings
-- returns the tree of sort keys of the ladder with a number. The function keys returns the
-- ladder's tree of rank keys, and the hash of rank keys that several shards hold. The
-- function flush flushes all these trees.
local function trees(g, kb)
  local all = {}
  local function get(name)
    if not all[name] then all[name] = tree(key(g, name), kb, S == '1') end
    return all[name]
  end
  return {
    standings = function(number) return get(tostring(number)) end,
    keys = function(number) return get(number .. 'k'), key(g, number .. 'm') end,
    flush = function()
      for _, t in pairs(all) do flush(t) end
    end,
  }
end
