-- Sets the following for the tree z and its group at gi. Keeps the values if they are already of this group, because
-- close strings are often in one group.
--   strings_before    the number of strings in the groups before the group
--   all_strings       the number of all strings of the tree
--   followed          whether the field ft is not 0: see tree.lua
--   followers_before  if DENSE is true, the number of followers in the groups before the group
if gi ~= summed_gi then
  local fields, n, i = {'t', 'ft'}, 2, gi
  while i > 0 do -- these fields of the Fenwick tree add up to strings_before
    n = n + 1
    fields[n] = format('%d', i)
    local b = 1
    while i % (b + b) == 0 do b = b + b end
    i = i - b
  end
  -- Without followers, their fields are all 0.
  if DENSE and (not summed_gi or followed) then
    for i = 3, n do fields[#fields + 1] = 'f' .. fields[i] end
  end
  local v = call('HMGET', z .. 's', unpack(fields))
  all_strings, followed, strings_before, followers_before = v[1] + 0, v[2] ~= '0', 0, 0
  for i = 3, n do strings_before = strings_before + (v[i] or 0) end
  for i = n + 1, #fields do followers_before = followers_before + (v[i] or 0) end
  summed_gi = gi
end
