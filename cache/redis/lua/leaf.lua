-- low returns the greatest power of two that divides i.
local function low(i)
  local b = 1
  while i % (b + b) == 0 do b = b + b end
  return b
end

-- The function most returns the maximum number of strings in a leaf that contains x.
local function most(x) return math.max(math.min(BITS, floor(LEAF_BYTES / (#x + 4))), 8) end
