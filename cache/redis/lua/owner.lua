-- Returns three values: OK; 1 if the lease KEYS[2] is held, otherwise 0; and the
-- generation (one fill of the season by a rebuild, see base.lua) that readers use in
-- shard 0.
return {OK, call('EXISTS', KEYS[2]), read_control().live or ''}
