-- Says whether the lease KEYS[2] is held, and which generation is live in shard 0.
return {OK, call('EXISTS', KEYS[2]), control().live or ''}
