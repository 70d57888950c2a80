-- Unless all is set, sets all to the number of strings in the tree z, and ties to whether strings may have equal
-- rank keys.
if not all then
  local v = call('HMGET', z .. 's', 't', 'ft')
  if v[1] then
    all, ties = v[1] + 0, v[2] ~= '0'
  else
    all, ties = call('BITCOUNT', z .. 'c'), true
    if all == 0 then all = call('ZCARD', z .. 'l') end
  end
end
