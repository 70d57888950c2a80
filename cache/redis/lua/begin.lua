-- Begins a generation of S shards in a shard other than 0. The script also runs in shards that only the live
-- generation has: there, the field next makes writers update the new generation too.
-- From ARGV[3] on, the arguments are: generation, fence, length of rank keys, time as of which the
-- caller reads the store, the generation that is live in shard 0 or '', the tag of the board, and
-- pairs of a partition of the log and an offset: see the function begin in write.lua.
-- Returns OK, the generation that is live in this shard or '', and its length of rank keys.

--include base
--include server
--include write

local g, fence, kb, at, live = ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6], ARGV[7]
local c = read_control()
if c.next == g then return {OK, c.live or '', c.kb} end -- a repeated call whose first answer was lost
if c.fence >= fence then return {FENCED, c.fence} end
-- A Rebuild made c.next live in shard 0, which decides for all shards, and then died.
if c.next and c.next == live then flip(c) end
begin(c, g, fence, kb, at, ARGV[8], 9)
return {OK, c.live or '', c.kb}
