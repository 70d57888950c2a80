-- Makes the generation ARGV[3], which is being built, the live one: see base.lua.

--include base
--include server
--include write

local c, refusal = enter()
if refusal then return refusal end
if c.live == ARGV[3] then return {OK} end
if c.next ~= ARGV[3] then return {FENCED, c.fence} end
flip(c)
return {OK}
