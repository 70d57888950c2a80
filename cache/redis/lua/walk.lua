-- seek_at returns the results of seek (see tree.lua) for the string at a position, and the string's
-- position in its leaf. The parameter all is the tree's number of strings. It must exceed position.
local function seek_at(at, position, all)
  local g, gi, s, si = '', nil, '', nil
  local groups, limit = call('ZCARD', at .. 'r'), all -- limit: strings in the groups or leaves still to search
  if groups > 0 then
    local step, sums = 1, at .. 's'
    while 2 * step <= groups do step = 2 * step end
    gi = 0
    while step >= 1 do
      local n = call('HGET', sums, format('%d', gi + step))
      if n then
        n = n + 0
        if n <= position then
          position, limit, gi = position - n, limit - n, gi + step
        else
          limit = n
        end
      end
      step = step / 2
    end
    local i = format('%d', gi)
    g = call('ZRANGE', at .. 'r', i, i)[1]
  end
  local leaves = call('ZCARD', at .. 'd' .. g)
  if leaves > 0 then
    si = 0
    -- The first six steps guess the leaf as if all leaves had equal sizes. Later steps bisect.
    local bits, guesses = at .. 'c' .. g, 6
    while leaves - si > 1 do
      local middle = floor((si + leaves) / 2)
      if guesses > 0 then
        guesses, middle = guesses - 1, si + floor((leaves - si) * position / limit + 0.5)
        if middle <= si then middle = si + 1 elseif middle >= leaves then middle = leaves - 1 end
      end
      local n = call('BITCOUNT', bits, format('%d', si * BLOCK), format('%d', middle * BLOCK - 1))
      if n <= position then
        position, limit, si = position - n, limit - n, middle
      else
        limit, leaves = n, middle
      end
    end
    local i = format('%d', si)
    s = call('ZRANGE', at .. 'd' .. g, i, i)[1]
  end
  return g, gi, s, si, position
end

-- next_leaf returns the results of seek for the next leaf, or nil.
local function next_leaf(at, g, gi, s, si)
  if not si then return nil end
  local i = format('%d', si + 1)
  local next = call('ZRANGE', at .. 'd' .. g, i, i)[1]
  if next then return g, gi, next, si + 1 end
  if not gi then return nil end
  i = format('%d', gi + 1)
  next = call('ZRANGE', at .. 'r', i, i)[1]
  if next then return next, gi + 1, next, 0 end
end
