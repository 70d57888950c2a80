-- Every script except probe.lua includes this file first. A line "--include FILE" stands for the text of FILE.
-- Each run takes time to define a function, and more time if the function uses many variables from outside. So
-- frequent scripts include files with functions only where they need them. The files in inline have statements
-- instead, which read and set variables of the file that includes them, and may end the script.
--
-- KEYS[1] is the control hash of one shard of a season. The shard's other keys
-- begin with this key, so they share its hash tag and slot. ARGV[1] is the number
-- of shards that the caller expects, ARGV[2] the number of this shard.
--
-- A Rebuild can change the number of shards. Shard i of the old generation and shard i of the new
-- generation may then have the same control hash. A script sees only the generations with the
-- number of shards that its caller expects: see enter in write.lua.
--
-- A generation is one fill of the season by a Rebuild, in keys of its own. Its name
-- begins with its fence, a number that grows with each new generation. The name ends with c if the
-- Rebuild copied records of the previous generation: see users.lua.
--
-- Fields of the control hash:
--   live      the generation that readers use
--   next      the generation that is being built
--   S, nS     number of shards of live and of next
--   leftS     in shard 0: the old number of shards, if a Rebuild changes it, until the old shards
--             are freed
--   fence     fence of the newest generation
--   id        the layout, and the server that the shard was written on: see server.lua. If the
--             shard is on another server now, it is in doubt
--   seen      when a script last found the shard on that server
--   tag, ntag identify the board's rules at the Rebuild of live and of next: see tagOf in doubt.go
--   busy      1 while a script changes the shard, otherwise 0. If a script finds 1, an
--             earlier script failed half-way, and the shard is lost. Without this
--             field, the shard counts as empty, and free.lua frees live and next
--   aside     a generation that only its Rebuild uses, in the form of dead: see bulk.lua
--   dead      generations that free.lua must free: for each, the name and the number of buckets,
--             both followed by a space
--   kb, asof, buckets     of live: length of rank keys, time of the last change,
--             number of buckets
--   nkb, nasof, nbuckets  the same of next
--
-- The shard has two more hashes. Their names are the control key and:
--   :at       partition of the log -> the offset before which the shard lacks no update
--   :sure     partitions whose owners have confirmed a shard in doubt: see confirm.lua
-- A generation's keys are the control key, a colon, the generation and:
--   :u0, :u1… buckets of users: hash, user -> record
--   :l        hash, ladder -> its number. The overall ladder is '', with the number 0
--   :0… :1…   the tree of a ladder's sort keys: see tree.lua
--   :b :p     exist during a bulk load: see bulk.lua
--   :x        set, numbers of the blocks of sorted entries that a bulk load keeps
--   :x0 :x1…  these blocks
--   :w        hash:
--     users      number of records
--     standings  number of standings in all ladders
--     batch      the last batch of a Rebuild
-- A record is a byte with the length of the version, and the version without leading zero
-- bytes. If the user is ranked, a prefix and the numbers of the ladders of the user's
-- divisions follow, LADDER bytes for each number. A prefix is a rank key and achieved_at: a
-- sort key without its user.
--
-- Scripts never compare strings with <, which depends on the server's locale.
-- Redis formats the numbers in commands slowly, so frequent scripts format them with %d.

local T, S, ME = KEYS[1], ARGV[1], ARGV[2]
local OK, NONE, SHARDS, LOST, FENCED, FORMAT, GAP, DOUBT = 0, 1, 2, 3, 4, 5, 6, 7
local TIME = 8 -- bytes of an instant
local FRESH = 100000 -- microseconds for which a check of the server is valid: see server.lua
local LADDER = 3 -- bytes of a ladder's number in a record
local call, sub, byte, floor, format = redis.call, string.sub, string.byte, math.floor, string.format
