-- The dense rank counts different rank keys. A shard notifies the home of a rank key (see
-- base.lua) when it gets its first standing with the rank key or loses its last one. At the
-- home, the function state then records whether the shard holds the rank key. It returns the change
-- of the home's number of strings, which is 0 if the home knew it. The parameter t is the tree of the
-- ladder's rank keys. Other strings with the same rank key are followers, so the tree counts
-- different rank keys.
local function state(t, sign, k, shard)
  local x = k .. string.char(tonumber(shard))
  if sign == '+' then return put(t, x) == nil and 0 or 1 end
  return take(t, x) == nil and 0 or -1
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
-- number, and returns the ladder's tree of rank keys. The function flush flushes all trees that
-- these two returned.
local function new_trees(g, kb)
  local all = {}
  local function get(name, follow)
    if not all[name] then all[name] = new_tree(key(g, name), kb, follow) end
    return all[name]
  end
  return {
    standings = function(number) return get(tostring(number), S == '1') end,
    keys = function(number) return get(number .. 'k', true) end,
    flush = function()
      for _, t in pairs(all) do flush(t) end
    end,
  }
end
