-- A Rebuild adds most strings to a tree (see tree.lua) in order, so many of them go to one leaf. This
-- file adds such strings together.
local RUN = 4 -- fewest strings that are added together

local function is_less(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = byte(a, i), byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

-- count_twins returns how many of the strings have the same rank key as the string
-- before them.
local function count_twins(strings, kb)
  local n, last = 0, false
  for _, x in ipairs(strings) do
    local k = sub(x, 1, kb)
    if k == last then n = n + 1 end
    last = k
  end
  return n
end

-- put_run adds the strings all[i], all[i+1], … to one leaf: as many as belong to this leaf and fit
-- into it. It returns their number. put_run adds none if they are fewer than RUN, or if numbers of
-- followers also depend on other leaves. The list must be sorted, and the tree must contain none
-- of its strings.
local function put_run(t, all, i)
  local p, kb = find_place(t, all[i]), t.kb
  local next, n = next_name(t, p), call('ZCARD', p.leaf)
  local last = i - 1
  while last < #all and last - i + 2 < max_strings(all[i]) - n and (not next or is_less(all[last + 1], next)) do last = last + 1 end
  local m = last - i + 1
  if m < RUN then return 0 end
  local before = call('ZRANGE', p.leaf, 0, -1)
  local k = sub(all[i], 1, kb)
  if #p.s > kb and sub(p.s, 1, kb) == k and is_less(all[i], before[1]) then return 0 end
  if next and #next > kb and sub(next, 1, kb) == sub(all[last], 1, kb) then return 0 end
  insert(p.leaf, all, i, last)
  if p.si then
    call('SETRANGE', t.at .. 'c' .. p.g, p.si * BLOCK, ones(n + m))
    local f = count_twins(call('ZRANGE', p.leaf, 0, -1), kb) - count_twins(before, kb)
    if f > 0 then call('SETRANGE', t.at .. 'f' .. p.g, p.si * BLOCK, ones(followers_of(t, p.g, p.si) + f)) end
    if p.gi then
      add_due(t, tostring(p.gi + 1), m)
      add_due(t, 't', m)
      add_due(t, 'f' .. p.gi + 1, f)
      add_due(t, 'ft', f)
    end
  end
  return m
end

local function put_all(t, all)
  local i = 1
  while i <= #all do
    local n = put_run(t, all, i)
    if n == 0 then
      put(t, all[i])
      n = 1
    end
    i = i + n
  end
end
