-- A tree keeps different strings in order and counts them. The names of its keys begin
-- with the same text, which the scripts call at. After this text, they have:
--   l LEAF    sorted set, all scores 0: the strings of a leaf, few enough for the
--             packed encoding (listpack)
--   d GROUP   sorted set, all scores 0: the leaves of a group
--   c GROUP   bits: BITS for each of these leaves, in their order. A leaf has as many
--             strings as its bits have ones. The ones come first
--   f GROUP   bits: the same for the followers of each leaf; may lack zeros at its end
--   r         sorted set, all scores 0: the groups
--   s         hash: t and ft, the numbers of all strings and followers; and two Fenwick
--             trees over the groups, from 1: 1, 2… of their strings, f1, f2… of their followers.
--             The hash is not packed, so that the server finds a field at once
-- A leaf is named by its lower bound: its strings are not less than the name and less
-- than the next leaf's name. The first leaf's name is ''. A group has the name of its
-- first leaf. A tree of one group has no r and s; a tree of one leaf has only that leaf.
--
-- In a tree of sort keys, a follower is a sort key that follows one with the same rank
-- key. The number of strings before a position, minus the number of followers among
-- them, is the number of different rank keys before it. Trees of sort keys count followers
-- only in seasons with one shard (S = 1). Trees of rank keys always count them.
local BITS = 96
local BLOCK = BITS / 8
local LEAF_BYTES = 6144 -- about the most bytes of a leaf

-- seek returns where the string x is or would be: the group and its position, the
-- leaf and its position in the group. The position of the group is nil if the tree has only
-- one group. The position of the leaf is nil if the tree has only one leaf.
local function seek(at, x)
  local max = '[' .. x
  local g, gi = call('ZREVRANGEBYLEX', at .. 'r', max, '-', 'LIMIT', '0', '1')[1], nil
  if g then gi = call('ZRANK', at .. 'r', g) else g = '' end
  local dir = at .. 'd' .. g
  local s, si = call('ZREVRANGEBYLEX', dir, max, '-', 'LIMIT', '0', '1')[1], nil
  if s then si = call('ZRANK', dir, s) else s = '' end
  return g, gi, s, si
end
