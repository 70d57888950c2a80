package pebble

import (
	"encoding/binary"

	leaderboard "github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/codec"
	"github.com/open-leaderboard/leaderboard/storage"
)

// The layout of keys and values, version [formatVersion]. Each line shows a key and its value. The
// parts of a key follow each other without separators.
//
// A string "with length" is its length as a uvarint, then its bytes. A "raw" string is only its
// bytes, and is always the last part of a key. Every earlier string has its length. Therefore no
// key of one user, season or ladder begins with the prefix of another. Keys that end with a raw id
// sort by this id.
//
//	mformat                                    format version, uvarint
//	mboards                                    number of the newest board, uvarint
//	b  board id, raw                           number of the board, 4 bytes, and the board as JSON
//	k  list with length; key, raw              tag with length, and the value of the storage.Register
//	h  list with length; tag with length; key, raw    nothing; the register has the tag
//	a  list with length; key, raw              version of the storage.Row, uvarint, and its value; a row that was removed without Forget has no value
//	a  list with length                         the version of RemoveRows, uvarint, unless it was storage.Last
//	i  season                                   the incarnationRow: two uvarints, and 1 byte
//	x  board id with length; season id, raw     time of the deletion of the season, or of the board if the season id is empty, in Unix microseconds, 8 bytes
//	c  season                                  time of the last change of the season's entries, in Unix microseconds, 8 bytes
//	r  period, 4 bytes; user id with length; number of the board, 4 bytes; match id with length; season id, raw   the user's recent refusals, as a leaderboard.Record without a result: see refusals.go
//	u  user id with length; season              nothing; a season note: the user may have a user row in this season
//	d  season; u; user id, raw                  the user row: version, hidden, time of the erasure, rules, matches, tally
//	d  season; r; user id with length; match id, raw   the leaderboard.Record
//	d  season; l; slot; sort key                the fields of the entry that its sort key does not hold
//
// A "season" is the board's number, 4 bytes, and the season id with length. Numbers of boards are
// never reused, so a new board with the id of a deleted board starts empty. A "slot" names a ladder of a season, or the
// season's hidden entries:
//
//	0  the entries of users whom a ban hides
//	1  the overall ladder
//	2  a division: the index of its attribute in Board.EveryDivision, 1 byte; the value with length
//
// Integers of fixed width are big-endian.
//
// The data of a board or of a season is one range of keys, and so are a user's
// records in a season. One DeleteRange removes a range. The rows of a ladder are one range, in
// standing order. Slots 0 and 1 together have each entry once, and are one range for Scan.
const (
	kindBoard       = 'b'
	kindRegister    = 'k'
	kindTag         = 'h'
	kindRow         = 'a'
	kindIncarnation = 'i'
	kindDeleted     = 'x'
	kindChange      = 'c'
	kindRefusals    = 'r'
	kindSeasons     = 'u'
	kindData        = 'd'
	dataUser        = 'u'
	dataRecord      = 'r'
	dataLadder      = 'l'

	slotHidden   = 0
	slotOverall  = 1
	slotDivision = 2
)

var (
	keyFormat = []byte("mformat")
	keyBoards = []byte("mboards")
)

func boardKey(id leaderboard.BoardID) []byte { return append([]byte{kindBoard}, id...) }

func registerKey(list, key string) []byte {
	return append(codec.AppendText([]byte{kindRegister}, list), key...)
}

func tagKey(list string, r *storage.Register) []byte {
	return append(codec.AppendText(codec.AppendText([]byte{kindTag}, list), r.Tag), r.Key...)
}

func rowKey(list string, key []byte) []byte {
	return append(codec.AppendText([]byte{kindRow}, list), key...)
}

func deletedKey(s leaderboard.SeasonKey) []byte {
	return append(codec.AppendText([]byte{kindDeleted}, s.Board), s.Season...)
}

func seasonsPrefix(user leaderboard.UserID) []byte {
	return codec.AppendText([]byte{kindSeasons}, user)
}

func appendSeasonKey(dst []byte, board uint32, season leaderboard.SeasonID) []byte {
	return codec.AppendText(binary.BigEndian.AppendUint32(dst, board), season)
}

func seasonsKey(user leaderboard.UserID, board uint32, season leaderboard.SeasonID) []byte {
	return appendSeasonKey(seasonsPrefix(user), board, season)
}

func parseSeasonKey(b []byte) (board uint32, season leaderboard.SeasonID, rest []byte, ok bool) {
	d := codec.Decoder{Rest: b}
	board = d.Uint32()
	season = leaderboard.SeasonID(d.Text())
	return board, season, d.Rest, !d.Bad
}

func boardPrefix(board uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{kindData}, board)
}

// A seasonRowKey has no spare capacity, so append copies it.
type seasonRowKey []byte

func makeSeasonRowKey(board uint32, season leaderboard.SeasonID) seasonRowKey {
	k := appendSeasonKey([]byte{kindData}, board, season)
	return seasonRowKey(k[:len(k):len(k)])
}

// kind returns a copy of k with the kind, and with room for most ids.
func (k seasonRowKey) kind(kind byte) []byte {
	return append(append(make([]byte, 0, len(k)+64), k...), kind)
}

func (k seasonRowKey) user(user leaderboard.UserID) []byte { return append(k.kind(dataUser), user...) }

func (k seasonRowKey) records(user leaderboard.UserID) []byte {
	return codec.AppendText(k.kind(dataRecord), user)
}

func (k seasonRowKey) record(user leaderboard.UserID, match leaderboard.MatchID) []byte {
	return append(k.records(user), match...)
}

func (k seasonRowKey) ladder(slot []byte) []byte { return append(k.kind(dataLadder), slot...) }

func divisionSlot(attribute int, value string) []byte {
	return codec.AppendText([]byte{slotDivision, byte(attribute)}, value)
}

func cutSlot(b []byte) (slot, rest []byte, ok bool) {
	d := codec.Decoder{Rest: b}
	if d.Byte() == slotDivision {
		d.Byte()
		d.Text()
	}
	return b[:len(b)-len(d.Rest)], d.Rest, !d.Bad
}

// keyAfter returns the least key that is greater than every key with the prefix.
func keyAfter(prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i]++; end[i] != 0 {
			return end[:i+1]
		}
	}
	panic("pebble: a prefix of 0xff bytes only") // cannot happen: a key begins with its kind, which is never 0xff
}
