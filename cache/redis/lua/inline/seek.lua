-- Sets g, gi, s and si to the results of seek for at and x: see find.lua.
do
  local max = '[' .. x
  g, gi = call('ZREVRANGEBYLEX', at .. 'r', max, '-', 'LIMIT', '0', '1')[1], nil
  if g then gi = call('ZRANK', at .. 'r', g) else g = '' end
  local dir = at .. 'd' .. g
  s, si = call('ZREVRANGEBYLEX', dir, max, '-', 'LIMIT', '0', '1')[1], nil
  if s then si = call('ZRANK', dir, s) else s = '' end
end
