-- The function state runs at the home of the rank key k (see base.lua). With the sign '+', it records
-- that a shard holds k, with '-' that the shard does not. It changes t, the tree of a ladder's rank
-- keys, and returns the change of t's number of strings. If several shards hold k, the strings of k
-- after the first are followers (see tree.lua). So dense ranks count k once.
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

-- new_trees returns three functions for a generation. The function standings takes a ladder's number
-- and returns the ladder's tree of sort keys. The function keys returns the tree of rank keys. The
-- function flush writes the sums of all trees that these functions returned (see flush in edit.lua).
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
