package pebble

import (
	"encoding/binary"

	leaderboard "github.com/open-leaderboard/leaderboard"
)

// The key layout, version [formatVersion]. A string with its length is a uvarint
// and the bytes; a raw string is the bytes alone and ends its key. So keys of one
// prefix are exactly those of one thing, whatever bytes ids are made of, and
// where an id is raw and last, keys sort by it.
//
//	mformat                                    format version, uvarint
//	mboards                                    number of the last board made, uvarint
//	b  board id, raw                           number of the board, 4 bytes, and the board as JSON
//	k  API key id, raw                         the key as JSON
//	h  hash, 32 bytes; API key id, raw         nothing
//	n  user id, raw                            the ban as JSON, while there is one
//	e  SHA-256 of a user id                    when the user was erased, and from which version entries go on
//	u  user id with length; scope              nothing: the user may have a row in the scope
//	d  scope; s                                the seal as JSON
//	d  scope; u; user id, raw                  user row: version, hidden, erased at, tally
//	d  scope; r; user id with length; match id, raw   the record: the result that stands, refusals
//	d  scope; l; slot; sort key                the rest of an entry that stands there
//	d  scope; f; generation, 4; n; slot        number of final standings of a ladder, uvarint
//	d  scope; f; generation, 4; p; slot; position, 8   final standing
//	d  scope; f; generation, 4; u; user id with length; slot   position, uvarint
//
// A scope is the board's number, 4 bytes, and the season id with its length. The
// number of a board is never used again, so a board made later under the id of a
// deleted one starts empty. A slot is one ladder of a scope: 0 for the entries
// that are hidden, 1 for overall, 2 for a division, followed by the place of the
// attribute in the board's list, 1 byte, and the value with its length. Integers
// of fixed width are big-endian.
const (
	kindBoard    = 'b'
	kindAPIKey   = 'k'
	kindHash     = 'h'
	kindBan      = 'n'
	kindErased   = 'e'
	kindScopes   = 'u'
	kindData     = 'd'
	dataSeal     = 's'
	dataUser     = 'u'
	dataRecord   = 'r'
	dataLadder   = 'l'
	dataFinal    = 'f'
	finalCount   = 'n'
	finalByPlace = 'p'
	finalByUser  = 'u'

	slotHidden   = 0
	slotOverall  = 1
	slotDivision = 2
)

var (
	keyFormat = []byte("mformat")
	keyBoards = []byte("mboards")
)

func appendString[S ~string](dst []byte, s S) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

func boardKey(id leaderboard.BoardID) []byte { return append([]byte{kindBoard}, id...) }

func apiKeyKey(id string) []byte { return append([]byte{kindAPIKey}, id...) }

func hashKey(hash [32]byte, id string) []byte {
	return append(append([]byte{kindHash}, hash[:]...), id...)
}

func banKey(user leaderboard.UserID) []byte { return append([]byte{kindBan}, user...) }

func erasedKey(hash [32]byte) []byte { return append([]byte{kindErased}, hash[:]...) }

// scopesPrefix is the prefix of the scopes of a user.
func scopesPrefix(user leaderboard.UserID) []byte { return appendString([]byte{kindScopes}, user) }

func appendScope(dst []byte, board uint32, season leaderboard.SeasonID) []byte {
	return appendString(binary.BigEndian.AppendUint32(dst, board), season)
}

func scopesKey(user leaderboard.UserID, board uint32, season leaderboard.SeasonID) []byte {
	return appendScope(scopesPrefix(user), board, season)
}

// parseScope reads what appendScope wrote and returns what follows it.
func parseScope(b []byte) (board uint32, season leaderboard.SeasonID, rest []byte, ok bool) {
	d := decoder{b: b}
	board = d.uint32()
	season = leaderboard.SeasonID(d.string())
	return board, season, d.b, !d.bad
}

// boardPrefix is the prefix of all that is kept under a board.
func boardPrefix(board uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{kindData}, board)
}

// A scopeKey is the prefix of all that is kept of a scope. It has no spare
// capacity, so that appending to it makes a copy.
type scopeKey []byte

func makeScopeKey(board uint32, season leaderboard.SeasonID) scopeKey {
	k := appendScope([]byte{kindData}, board, season)
	return scopeKey(k[:len(k):len(k)])
}

func (k scopeKey) kind(kind byte) []byte { return append(k, kind) }

func (k scopeKey) user(user leaderboard.UserID) []byte { return append(k.kind(dataUser), user...) }

// records is the prefix of a user's records.
func (k scopeKey) records(user leaderboard.UserID) []byte {
	return appendString(k.kind(dataRecord), user)
}

func (k scopeKey) record(user leaderboard.UserID, match leaderboard.MatchID) []byte {
	return append(k.records(user), match...)
}

// ladder is the prefix of the entries in a slot.
func (k scopeKey) ladder(slot []byte) []byte { return append(k.kind(dataLadder), slot...) }

// final is the prefix of a generation of final standings.
func (k scopeKey) final(generation uint32) []byte {
	return binary.BigEndian.AppendUint32(k.kind(dataFinal), generation)
}

func (k scopeKey) finalCount(generation uint32, slot []byte) []byte {
	return append(append(k.final(generation), finalCount), slot...)
}

// finalPlaces is the prefix of a ladder's final standings by position.
func (k scopeKey) finalPlaces(generation uint32, slot []byte) []byte {
	return append(append(k.final(generation), finalByPlace), slot...)
}

func (k scopeKey) finalPlace(generation uint32, slot []byte, position int64) []byte {
	return binary.BigEndian.AppendUint64(k.finalPlaces(generation, slot), uint64(position))
}

// finalUser is the prefix of a user's final standings by slot.
func (k scopeKey) finalUser(generation uint32, user leaderboard.UserID) []byte {
	return appendString(append(k.final(generation), finalByUser), user)
}

func divisionSlot(attribute int, value string) []byte {
	return appendString([]byte{slotDivision, byte(attribute)}, value)
}

// cutSlot splits a slot from what follows it.
func cutSlot(b []byte) (slot, rest []byte, ok bool) {
	d := decoder{b: b}
	if d.byte() == slotDivision {
		d.byte()
		d.string()
	}
	return b[:len(b)-len(d.b)], d.b, !d.bad
}

// after returns the first key that is greater than all keys of a prefix.
func after(prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i]++; end[i] != 0 {
			return end[:i+1]
		}
	}
	panic("pebble: a prefix of 0xff bytes only") // no kind begins so
}
