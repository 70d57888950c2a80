-- low_bit returns the greatest power of two that divides i.
local function low_bit(i)
  local b = 1
  while i % (b + b) == 0 do b = b + b end
  return b
end

-- max_strings returns the number of strings at which a leaf that contains x is split.
local function max_strings(x) return math.max(math.min(BITS, floor(LEAF_BYTES / (#x + 4))), 8) end
