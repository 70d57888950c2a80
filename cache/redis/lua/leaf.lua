-- low returns the greatest power of two that divides i.
local function low(i)
  local b = 1
  while i % (b + b) == 0 do b = b + b end
  return b
end

-- most returns how many strings a leaf may hold, given one of them.
local function most(x) return math.max(math.min(BITS, floor(LEAF_BYTES / (#x + 4))), 8) end
