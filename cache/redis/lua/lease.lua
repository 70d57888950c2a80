-- Prolongs the lease KEYS[1] that a token, ARGV[3], holds by so many
-- milliseconds, ARGV[4], or gives it back if that is 0.
if call('GET', KEYS[1]) ~= ARGV[3] then return {FENCED, 0} end
if ARGV[4] == '0' then call('DEL', KEYS[1]) else call('PEXPIRE', KEYS[1], ARGV[4]) end
return {OK}
