-- add_fields adds to a list the fields of a tree's hash s whose sum is the number of strings, or of
-- followers if kind is 'f', in the groups before the group at gi.
local function add_fields(fields, kind, gi)
  while gi > 0 do
    fields[#fields + 1] = kind .. format('%d', gi)
    local b = 1
    while gi % (b + b) == 0 do b = b + b end
    gi = gi - b
  end
end

-- sum_before returns four values:
--   1. the number of strings in the groups before the group at gi
--   2. the number of all strings of the tree
--   3. whether the field ft is not 0: see tree.lua
--   4. if DENSE is true, the number of followers in the groups before the group at gi
-- It remembers its last answer, because close strings are often in one group.
local summed_at, summed_gi, strings_before, all_strings, followed, followers_before
local function sum_before(at, gi)
  if at ~= summed_at or gi ~= summed_gi then
    local fields = {'t', 'ft'}
    add_fields(fields, '', gi)
    local n = #fields
    -- Without followers, their fields are all 0. If S > 1, the trees of sort keys have none.
    if DENSE and (S == '1' or at ~= z) and (at ~= summed_at or followed) then add_fields(fields, 'f', gi) end
    local v = call('HMGET', at .. 's', unpack(fields))
    all_strings, followed, strings_before, followers_before = v[1] + 0, v[2] ~= '0', 0, 0
    for i = 3, n do strings_before = strings_before + (v[i] or 0) end
    for i = n + 1, #fields do followers_before = followers_before + (v[i] or 0) end
    summed_at, summed_gi = at, gi
  end
  return strings_before, all_strings, followed, followers_before
end

-- count_before returns three values: the number of strings before the leaf that seek found, the number of
-- all strings of the tree, or nil if the tree has only one group, and whether strings may have equal rank
-- keys.
local function count_before(at, g, gi, si)
  local n, all, followed = 0, nil, true
  if gi then n, all, followed = sum_before(at, gi) end
  if si and si > 0 then n = n + call('BITCOUNT', at .. 'c' .. g, '0', format('%d', si * BLOCK - 1)) end
  return n, all, S ~= '1' or followed
end

-- size returns the number of strings of a tree, and whether strings may have equal rank
-- keys.
local function size(at)
  local v = call('HMGET', at .. 's', 't', 'ft')
  if v[1] then return v[1] + 0, S ~= '1' or v[2] ~= '0' end
  local n = call('BITCOUNT', at .. 'c')
  if n > 0 then return n, true end
  return call('ZCARD', at .. 'l'), true
end
