-- A tree keeps the sort keys of a ladder in order and counts them. A string is a sort key.
-- A follower is a string with the rank key of the string before it. So among the strings before
-- a position, the number of different rank keys is the number of strings minus the number of
-- followers.
--
-- Strings are in leaves, and leaves are in groups. The names of a tree's keys begin with the same
-- text, which the scripts call at. Then follows:
--   l LEAF    sorted set, all scores 0: the strings of a leaf, few enough for Redis to pack
--             them (encoding listpack)
--   d GROUP   sorted set, all scores 0: the leaves of a group
--   c GROUP   bits: BITS bits for each leaf of the group, in order. If the leaf has n strings,
--             the first n bits are ones
--   f GROUP   bits: the same for the followers of each leaf; may lack zeros at its end
--   r         sorted set, all scores 0: the groups
--   s         hash. t and ft: the numbers of all strings and followers. 1, 2…: a Fenwick tree
--             of the groups' numbers of strings. f1, f2…: the same for followers. The hash is
--             not packed, so that the server finds a field in constant time
-- A leaf is named by its lower bound: its strings are not less than the name and less
-- than the next leaf's name. The first leaf's name is ''. A group has the name of its
-- first leaf. A tree of one group has no r and s. A tree of one leaf has only the key l.
local BITS = 96
local BLOCK = BITS / 8
local LEAF_BYTES = 6144 -- approximate limit of a leaf's bytes
