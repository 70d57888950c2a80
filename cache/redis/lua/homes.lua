-- The dense rank counts different rank keys. At the home of a rank key (see base.lua), the function
-- state records whether a shard holds the rank key. It returns the change of the number of strings in
-- t, the tree of the ladder's rank keys. If several shards hold a rank key, its strings after the
-- first one are followers (see tree.lua), so the tree counts different rank keys.
local function state(t, sign, k, shard)
  local x = k .. string.char(tonumber(shard))
  if sign == '+' then return put(t, x) == nil and 0 or 1 end
  return take(t, x) == nil and 0 or -1
end

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
