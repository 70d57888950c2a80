-- Returns OK; 1 if a process holds the lease KEYS[2], otherwise 0; and the live generation of
-- shard 0, or ''.

--include base
--include server
--include write

return {OK, call('EXISTS', KEYS[2]), read_control().live or ''}
