-- seek_at returns the same as seek, for the string at a position, from 0. It also returns
-- the string's position in its leaf. The tree must have a string at that position.
local function seek_at(at, position)
  local g, gi, s, si = '', nil, '', nil
  local groups = call('ZCARD', at .. 'r')
  if groups > 0 then
    local step = 1
    while 2 * step <= groups do step = 2 * step end
    gi = 0
    while step >= 1 do -- three levels of the Fenwick tree at a time
      local least = math.max(step / 4, 1)
      local fields, from = {}, gi
      for i = 1, 2 * step / least - 1 do fields[i] = format('%d', from + i * least) end
      local v = call('HMGET', at .. 's', unpack(fields))
      while step >= least do
        local n = v[(gi + step - from) / least]
        if n and tonumber(n) <= position then
          position, gi = position - n, gi + step
        end
        step = step / 2
      end
    end
    local i = format('%d', gi)
    g = call('ZRANGE', at .. 'r', i, i)[1]
  end
  local leaves = call('ZCARD', at .. 'd' .. g)
  if leaves > 0 then
    si = 0
    -- The search estimates the position of the leaf from the average size of the leaves
    -- that it has counted. After six guesses, the search bisects.
    local bits, guesses, usual = at .. 'c' .. g, 6, 66
    while leaves - si > 1 do
      local middle = floor((si + leaves) / 2)
      if guesses > 0 then
        guesses, middle = guesses - 1, math.max(math.min(si + floor(position / usual + 0.5), leaves - 1), si + 1)
      end
      local n = call('BITCOUNT', bits, format('%d', si * BLOCK), format('%d', middle * BLOCK - 1))
      if middle - si > 4 then usual = n / (middle - si) end
      if n <= position then
        position, si = position - n, middle
      else
        leaves = middle
      end
    end
    local i = format('%d', si)
    s = call('ZRANGE', at .. 'd' .. g, i, i)[1]
  end
  return g, gi, s, si, position
end

-- next_leaf returns what seek returns for the next leaf, or nil.
local function next_leaf(at, g, gi, s, si)
  if not si then return nil end
  local i = format('%d', si + 1)
  local next = call('ZRANGE', at .. 'd' .. g, i, i)[1]
  if next then return g, gi, next, si + 1 end
  if not gi then return nil end
  next = call('ZRANGE', at .. 'r', gi + 1, gi + 1)[1]
  if next then return next, gi + 1, next, 0 end
end
