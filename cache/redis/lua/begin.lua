-- Begins a generation in a shard other than 0. ARGV: generation, fence, length
-- of rank keys, time, the generation that is live in shard 0 or ''.
local g, fence, kb, at, live = ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6], ARGV[7]
local c = control()
if c.next == g then return {OK} end -- done already, and the answer was lost
if c.fence >= fence then return {FENCED, c.fence} end
-- Who built it got as far as shard 0, which decides, and no further.
if c.next and c.next == live then flip(c) end
begin(c, g, fence, kb, at)
return {OK}
