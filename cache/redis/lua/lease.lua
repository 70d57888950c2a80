-- Extends the lease KEYS[1] to ARGV[4] ms from now, or releases the lease if ARGV[4] is 0.
-- Returns FENCED if the token of the lease's holder is not ARGV[3].

--include base
--include server
--include write

if call('GET', KEYS[1]) ~= ARGV[3] then return {FENCED, 0} end
if ARGV[4] == '0' then call('DEL', KEYS[1]) else call('PEXPIRE', KEYS[1], ARGV[4]) end
return {OK}
