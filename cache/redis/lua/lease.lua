-- Extends the lease KEYS[1] to ARGV[4] ms from now, or releases it if ARGV[4] is 0.
-- Returns FENCED if the token ARGV[3] does not hold the lease.
if call('GET', KEYS[1]) ~= ARGV[3] then return {FENCED, 0} end
if ARGV[4] == '0' then call('DEL', KEYS[1]) else call('PEXPIRE', KEYS[1], ARGV[4]) end
return {OK}
