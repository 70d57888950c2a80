-- Returns OK; 1 if a process holds the lease KEYS[2], otherwise 0; and the shard's live generation, or ''.
-- If KEYS[2] is absent, the script returns 0 for the lease.

--include base
--include server
--include write

return {OK, KEYS[2] and call('EXISTS', KEYS[2]) or 0, read_control().live or ''}
