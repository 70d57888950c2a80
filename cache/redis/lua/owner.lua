-- Returns OK, 1 if the lease KEYS[2] is held or else 0, and the generation that is
-- live in shard 0.
return {OK, call('EXISTS', KEYS[2]), control().live or ''}
