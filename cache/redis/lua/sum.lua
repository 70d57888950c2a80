-- sum_before returns four values:
--   1. the number of strings in the groups before the group at gi, or of followers if kind is 'f'
--   2. the number of all strings of the tree
--   3. whether strings may have equal rank keys
--   4. whether the field ft is not 0: see tree.lua
local function sum_before(at, kind, gi)
  local fields, i = {'t', 'ft'}, gi
  while i > 0 do
    fields[#fields + 1] = kind .. format('%d', i)
    local b = 1
    while i % (b + b) == 0 do b = b + b end
    i = i - b
  end
  local v, n = call('HMGET', at .. 's', unpack(fields)), 0
  for i = 3, #fields do n = n + (v[i] or 0) end
  return n, v[1] + 0, S ~= '1' or v[2] ~= '0', v[2] ~= '0'
end

-- count_before returns four values: the number of strings before the leaf that seek found, and
-- the last three values of sum_before. If the tree has only one group, these values are nil,
-- true and true.
local function count_before(at, g, gi, si)
  local n, all, ties, followed = 0, nil, true, true
  if gi then n, all, ties, followed = sum_before(at, '', gi) end
  if si and si > 0 then n = n + call('BITCOUNT', at .. 'c' .. g, '0', format('%d', si * BLOCK - 1)) end
  return n, all, ties, followed
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
