-- Raises an error while Redis moves the shard's slot to another server, key by key. During such a move,
-- Redis rejects each use of a missing key, and the key :none never exists. Scripts include this file before
-- their first change. So a move makes no script fail half-way.
call('EXISTS', T .. ':none')
