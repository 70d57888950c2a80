-- Sets all to the size of the ladder, and ties to whether standings may have equal rank keys, unless all is
-- set.
if not all then
  local v = call('HMGET', z .. 's', 't', 'ft')
  if v[1] then
    all, ties = v[1] + 0, S ~= '1' or v[2] ~= '0'
  else
    all, ties = call('BITCOUNT', z .. 'c'), true
    if all == 0 then all = call('ZCARD', z .. 'l') end
  end
end
