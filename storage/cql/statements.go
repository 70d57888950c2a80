package cql

// Each statement that writes has either USING TIMESTAMP or a condition. No table is written
// by both kinds.
// The column `realm` is always 0, so that a table is a single partition.
const (
	selectBoards = `SELECT board, body, buckets FROM boards WHERE realm = 0`
	selectBoard  = `SELECT body, buckets FROM boards WHERE realm = 0 AND board = ?`
	createBoard  = `INSERT INTO boards (realm, board, body, buckets) VALUES (0, ?, ?, ?) IF NOT EXISTS`
	reviveBoard  = `UPDATE boards SET body = ?, buckets = ? WHERE realm = 0 AND board = ? IF body = null AND buckets = ?`
	amendBoard   = `UPDATE boards SET body = ? WHERE realm = 0 AND board = ? IF body = ?`
	closeBoard   = `UPDATE boards SET body = null WHERE realm = 0 AND board = ? IF body = ?`
	removeBoard  = `DELETE FROM boards WHERE realm = 0 AND board = ? IF body = null`

	selectSeasons  = `SELECT season, incarnation, opened, board_made, buckets, swept, rules FROM seasons WHERE board = ?`
	selectSeason   = `SELECT incarnation, opened, board_made, buckets, swept, rules FROM seasons WHERE board = ? AND season = ?`
	selectDeleted  = `SELECT board_made FROM seasons WHERE board = ? AND season IN ?`
	setDeleted     = `UPDATE seasons USING TIMESTAMP ? SET board_made = ? WHERE board = ? AND season = ?`
	openSeason     = `UPDATE seasons USING TIMESTAMP ? SET opened = ?, board_made = ?, buckets = ? WHERE board = ? AND season = ?`
	setBuckets     = `UPDATE seasons USING TIMESTAMP ? SET buckets = ? WHERE board = ? AND season = ?`
	selectBuckets  = `SELECT buckets FROM seasons WHERE board = ? AND season = ?`
	endIncarnation = `UPDATE seasons USING TIMESTAMP ? SET incarnation = ? WHERE board = ? AND season = ?`
	setRules       = `UPDATE seasons USING TIMESTAMP ? SET rules = ? WHERE board = ? AND season = ?`
	selectChange   = `SELECT incarnation, changed FROM seasons WHERE board = ? AND season = ?`
	noteChange     = `UPDATE seasons USING TIMESTAMP ? SET changed = ? WHERE board = ? AND season = ?`
	sweptSeason    = `UPDATE seasons USING TIMESTAMP ? SET swept = ? WHERE board = ? AND season = ?`

	selectUser      = `SELECT match_id, kind, item, payload, high, low, WRITETIME(payload) FROM match_results WHERE board = ? AND season = ? AND incarnation = ? AND user_id = ?`
	selectUserAfter = `SELECT match_id, kind, item, payload, high, low, WRITETIME(payload) FROM match_results WHERE board = ? AND season = ? AND incarnation = ? AND user_id = ? AND match_id > ?`
	selectUserHead  = `SELECT account, owners, divisions, summaries, match_id, kind, item, payload, high, low, WRITETIME(payload) FROM match_results WHERE board = ? AND season = ? AND incarnation = ? AND user_id = ? LIMIT ?`
	selectStatics   = `SELECT account, owners, divisions FROM match_results WHERE board = ? AND season = ? AND incarnation = ? AND user_id = ? LIMIT 1`
	selectSummary   = `SELECT account, owners, divisions, summaries FROM match_results WHERE board = ? AND season = ? AND incarnation = ? AND user_id = ? LIMIT 1`
	selectEveryUser = `SELECT DISTINCT board, season, incarnation, user_id, account FROM match_results`
	selectMatches   = `SELECT match_id, kind, item, payload, high, low, WRITETIME(payload) FROM match_results WHERE board = ? AND season = ? AND incarnation = ? AND user_id = ? AND match_id IN ?`
	insertResult    = `INSERT INTO match_results (board, season, incarnation, user_id, match_id, kind, item, payload, high, low) VALUES (?, ?, ?, ?, ?, 0, 0x, ?, ?, ?) USING TIMESTAMP ?`
	insertItem      = `INSERT INTO match_results (board, season, incarnation, user_id, match_id, kind, item, payload) VALUES (?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?`
	setAccount      = `UPDATE match_results USING TIMESTAMP ? SET account = ? WHERE board = ? AND season = ? AND incarnation = ? AND user_id = ?`
	setOwner        = `UPDATE match_results USING TIMESTAMP ? SET owners[?] = ? WHERE board = ? AND season = ? AND incarnation = ? AND user_id = ?`
	setSummary      = `UPDATE match_results USING TIMESTAMP ? SET summaries[?] = ? WHERE board = ? AND season = ? AND incarnation = ? AND user_id = ?`
	addDivisions    = `UPDATE match_results USING TIMESTAMP ? SET divisions = divisions + ? WHERE board = ? AND season = ? AND incarnation = ? AND user_id = ?`
	deleteUser      = `DELETE FROM match_results USING TIMESTAMP ? WHERE board = ? AND season = ? AND incarnation = ? AND user_id = ?`

	selectEntry   = `SELECT entry, WRITETIME(entry) FROM user_entries WHERE board = ? AND season = ? AND incarnation = ? AND division = '' AND bucket = ? AND user_id = ?`
	selectEntries = `SELECT user_id, entry FROM user_entries WHERE board = ? AND season = ? AND incarnation = ? AND division = '' AND bucket = ? AND user_id IN ?`
	selectBucket  = `SELECT user_id, entry FROM user_entries WHERE board = ? AND season = ? AND incarnation = ? AND division = '' AND bucket = ?`
	selectAnyUser = `SELECT user_id FROM user_entries WHERE board = ? AND season = ? AND incarnation = ? AND division = '' AND bucket IN ? LIMIT 1`
	selectUsers   = `SELECT user_id FROM user_entries WHERE board = ? AND season = ? AND incarnation = ? AND division = '' AND bucket = ?`
	registerUser  = `INSERT INTO user_entries (board, season, incarnation, division, bucket, user_id) VALUES (?, ?, ?, '', ?, ?) USING TIMESTAMP ?`
	insertEntry   = `INSERT INTO user_entries (board, season, incarnation, division, bucket, user_id, entry) VALUES (?, ?, ?, '', ?, ?, ?) USING TIMESTAMP ?`
	deleteEntry   = `DELETE FROM user_entries USING TIMESTAMP ? WHERE board = ? AND season = ? AND incarnation = ? AND division = '' AND bucket = ? AND user_id = ?`
	deleteEntries = `DELETE FROM user_entries USING TIMESTAMP ? WHERE board = ? AND season = ? AND incarnation = ? AND division = '' AND bucket = ?`

	selectTop      = `SELECT standing, user_id FROM leaderboard WHERE board = ? AND season = ? AND incarnation = ? AND division = ? AND bucket = ? LIMIT ?`
	selectAfter    = `SELECT standing, user_id FROM leaderboard WHERE board = ? AND season = ? AND incarnation = ? AND division = ? AND bucket = ? AND (standing, user_id) > (?, ?) LIMIT ?`
	selectUserRows = `SELECT standing, WRITETIME(version) FROM leaderboard WHERE board = ? AND season = ? AND incarnation = ? AND division = ? AND bucket = ? AND user_id = ?`
	insertRow      = `INSERT INTO leaderboard (board, season, incarnation, division, bucket, standing, user_id, version) VALUES (?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?`
	selectRow      = `SELECT WRITETIME(version) FROM leaderboard WHERE board = ? AND season = ? AND incarnation = ? AND division = ? AND bucket = ? AND standing = ? AND user_id = ?`
	deleteRow      = `DELETE FROM leaderboard USING TIMESTAMP ? WHERE board = ? AND season = ? AND incarnation = ? AND division = ? AND bucket = ? AND standing = ? AND user_id = ?`
	deleteRows     = `DELETE FROM leaderboard USING TIMESTAMP ? WHERE board = ? AND season = ? AND incarnation = ? AND division = ? AND bucket = ?`

	// All buckets of all ladders, in the order of Cassandra's tokens.
	selectLadders      = `SELECT DISTINCT board, season, incarnation, division, bucket FROM leaderboard`
	selectLaddersAfter = `SELECT DISTINCT board, season, incarnation, division, bucket FROM leaderboard WHERE token(board, season, incarnation, division, bucket) > token(?, ?, ?, ?, ?)`

	selectListRows  = `SELECT key, value FROM rows WHERE list = ? AND key > ?`
	selectListKeys  = `SELECT key, value FROM rows WHERE list = ? AND key IN ?`
	selectListRange = `SELECT key, value FROM rows WHERE list = ? AND key >= ? AND key < ? LIMIT ?`
	selectAllRows   = `SELECT list, key, value FROM rows WHERE list IN ?`
	selectRowsFrom  = `SELECT list, key, value FROM rows WHERE list IN ? AND key >= ? AND key < ?`
	insertListRow   = `INSERT INTO rows (list, key, value) VALUES (?, ?, ?) USING TIMESTAMP ?`
	deleteListRow   = `DELETE FROM rows USING TIMESTAMP ? WHERE list = ? AND key = ?`
	deleteListRows  = `DELETE FROM rows USING TIMESTAMP ? WHERE list = ?`

	// The same for lists whose name begins with storage.Transient.
	selectTransientRows     = `SELECT key, value FROM transient_rows WHERE list = ? AND key > ?`
	selectAllTransientRows  = `SELECT list, key, value FROM transient_rows WHERE list IN ?`
	selectTransientRowsFrom = `SELECT list, key, value FROM transient_rows WHERE list IN ? AND key >= ? AND key < ?`
	insertTransientRow      = `INSERT INTO transient_rows (list, key, value) VALUES (?, ?, ?) USING TIMESTAMP ?`
	deleteTransientRow      = `DELETE FROM transient_rows USING TIMESTAMP ? WHERE list = ? AND key = ?`
	deleteTransientRows     = `DELETE FROM transient_rows USING TIMESTAMP ? WHERE list = ?`

	selectRefusals      = `SELECT match_id, season, item, refusal FROM refusals WHERE user_hash = ? AND board = ? AND board_made = ? AND match_id IN ? AND season = ?`
	selectMatchRefusals = `SELECT match_id, season, item, refusal FROM refusals WHERE user_hash = ? AND board = ? AND board_made = ? AND match_id = ?`
	insertRefusal       = `INSERT INTO refusals (user_hash, board, board_made, match_id, season, item, refusal) VALUES (?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?`
	deleteRefusals      = `DELETE FROM refusals USING TIMESTAMP ? WHERE user_hash = ?`

	selectUserSeasons = `SELECT board, season, incarnation FROM user_seasons WHERE user_hash = ?`
	insertUserSeason  = `INSERT INTO user_seasons (user_hash, board, season, incarnation) VALUES (?, ?, ?, ?) USING TIMESTAMP ?`
	deleteUserSeason  = `DELETE FROM user_seasons USING TIMESTAMP ? WHERE user_hash = ? AND board = ? AND season = ? AND incarnation = ?`

	selectRegister  = `SELECT value FROM registers WHERE list = ? AND key = ?`
	selectRegisters = `SELECT key, value FROM registers WHERE list = ?`
	selectTagged    = `SELECT key, value FROM registers WHERE list = ? AND tag = ?`
	changeRegister  = `UPDATE registers USING TTL ? SET tag = ?, value = ? WHERE list = ? AND key = ? IF value = ?`
	removeRegister  = `DELETE FROM registers WHERE list = ? AND key = ? IF value = ?`
)
