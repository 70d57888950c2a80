-- Sets g, gi, s and si, the results of seek (see find.lua), to the results for the next leaf of the ladder. If
-- there is none, sets all of them to nil.
do
  local j = si and format('%d', si + 1)
  local next = j and call('ZRANGE', z .. 'd' .. g, j, j)[1]
  if next then
    s, si = next, si + 1
  else
    j = si and gi and format('%d', gi + 1)
    next = j and call('ZRANGE', z .. 'r', j, j)[1]
    if next then g, gi, s, si = next, gi + 1, next, 0 else g, gi, s, si = nil, nil, nil, nil end
  end
end
