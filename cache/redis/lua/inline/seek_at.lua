-- Sets g, gi, s and si to the results of seek (see find.lua) for the string at a position of the ladder, and
-- i to the string's position in its leaf. position must be less than all, the size of the ladder.
do
  local groups, limit = call('ZCARD', z .. 'r'), all -- limit: strings in the groups or leaves still to search
  g, gi, s, si, i = '', nil, '', nil, position
  if groups > 0 then
    local step, sums = 1, z .. 's'
    while 2 * step <= groups do step = 2 * step end
    gi = 0
    while step >= 1 do
      local n = call('HGET', sums, format('%d', gi + step))
      if n then
        n = n + 0
        if n <= i then
          i, limit, gi = i - n, limit - n, gi + step
        else
          limit = n
        end
      end
      step = step / 2
    end
    local j = format('%d', gi)
    g = call('ZRANGE', z .. 'r', j, j)[1]
  end
  local leaves = call('ZCARD', z .. 'd' .. g)
  if leaves > 0 then
    si = 0
    -- The first six steps guess the leaf as if all leaves had equal sizes. Later steps bisect.
    local bits, guesses = z .. 'c' .. g, 6
    while leaves - si > 1 do
      local middle = floor((si + leaves) / 2)
      if guesses > 0 then
        guesses, middle = guesses - 1, si + floor((leaves - si) * i / limit + 0.5)
        if middle <= si then middle = si + 1 elseif middle >= leaves then middle = leaves - 1 end
      end
      local n = call('BITCOUNT', bits, format('%d', si * BLOCK), format('%d', middle * BLOCK - 1))
      if n <= i then
        i, limit, si = i - n, limit - n, middle
      else
        limit, leaves = n, middle
      end
    end
    local j = format('%d', si)
    s = call('ZRANGE', z .. 'd' .. g, j, j)[1]
  end
end
