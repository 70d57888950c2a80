-- The dense rank counts different rank keys. A shard notifies the home of a rank key (see
-- base.lua) when it gets its first standing with the rank key or loses its last one. At the
-- home, the function hold then adds the shard to the holders of the rank key, and release
-- removes it. Each returns the change of the home's number of rank keys. The parameter t is the
-- tree of the ladder's rank keys, and m is the hash of the rank keys that several shards hold.
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

-- new_trees returns three functions for a generation. The function standings takes the number
-- of a ladder and returns the ladder's tree of sort keys. The function keys takes the same
-- number, and returns the ladder's tree of rank keys and the name of the hash of rank keys
-- that several shards hold. The function flush flushes all trees that these two returned.
local function new_trees(g, kb)
  local all = {}
  local function get(name)
    if not all[name] then all[name] = new_tree(key(g, name), kb, S == '1') end
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
