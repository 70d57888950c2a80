-- seek returns where the string x is or would be: the group and its position, the
-- leaf and its position in the group. Positions begin at 0. The position of the group is nil if
-- the tree has only one group. The position of the leaf is nil if the tree has only one leaf.
local function seek(at, x)
  local g, gi, s, si
  --include inline/seek
  return g, gi, s, si
end
