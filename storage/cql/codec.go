package cql

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// Write timestamps are computed from the written data, never from a clock. So a
// repeated write has the same timestamp. Of two writes of one cell, the write that
// follows from newer data has the greater timestamp, and Cassandra keeps it.
//
// The timestamp of a row or a static cell of match_results is the user's epoch,
// shifted left by [epochShift] bits, plus a number that orders the possible
// contents of the cell. The epoch counts the erasures of the user. For a result, the
// number is the revision plus one, so the highest revision prevails. Of two payloads
// of one revision, Cassandra keeps the one with the greater bytes, as
// [leaderboard.Board.Merge] does.
const epochShift = 43

func resultTime(epoch, revision int64) int64 { return epoch<<epochShift | (revision + 1) }

// revisionOf is the inverse of resultTime.
func revisionOf(timestamp int64) int64 { return timestamp&(1<<epochShift-1) - 1 }

// The timestamp of an entry or a ladder row is twice the version of the user's
// entry, plus one for an insertion. So if a row is both deleted and inserted at one
// version, the row exists.
func insertTime(version uint64) int64 { return int64(2*version + 1) }

func deleteTime(version uint64) int64 { return int64(2 * version) }

// versionCovering returns the least version at which a deletion removes a cell that
// was written at the timestamp. An insertion at that version also replaces the cell.
func versionCovering(timestamp int64) uint64 { return (uint64(timestamp) + 1) / 2 }

// The timestamp of the cells that open an incarnation of a season is the number of
// the incarnation plus one, shifted left by [madeShift] bits, plus the creation time
// of the board for which it is opened. If writers open one incarnation for two
// boards, all cells for the board that was created later prevail.
const madeShift = 42 // milliseconds, to the year 2109

func openTime(number int, made int64) int64 {
	return int64(number+1)<<madeShift | min(max(made/1000, 0), 1<<madeShift-1)
}

const (
	// maxVersion bounds the versions of entries, so that timestamps stay below
	// sweepTime.
	maxVersion = 1 << 61
	// versionRoom is the room that results leave below maxVersion, so that every user
	// can be banned and erased. Retractions may use half of it. Data centers that
	// accept results concurrently may use some of the rest.
	versionRoom = 1 << 58
	// maxResultVersion bounds the version that a result may lead to. It allows one
	// user 1.1 million results per season if their revisions are Unix milliseconds,
	// and 450,000 results of the greatest revision.
	maxResultVersion = maxVersion - versionRoom
	// sweepTime is the timestamp of deletions in an ended incarnation. It is greater
	// than every timestamp that a late writer can use.
	sweepTime = int64(1)<<62 + 1
	// erasureStep is how far an erasure raises the version above all versions that it
	// reads. Concurrent writes of up to 4,096 results of the greatest revision keep
	// their versions below the raised version.
	erasureStep = 1 << 54
	// maxEpoch bounds the number of erasures of a user, so that the timestamps of
	// results stay below sweepTime.
	maxEpoch = 1<<(62-epochShift) - 1
	// lastErasureStep replaces erasureStep if erasureStep would lead above
	// maxResultVersion. The erasure then starts above the versions that retractions
	// may reach, where only bans raise the version, by one each.
	lastErasureStep = 1 << 32
)

// codecFormat is the first byte of every blob.
const codecFormat = 1

// account holds a user's ban and erasures, which apply to all seasons. A copy is
// stored beside the user's results in each season, because the entry depends on the
// account.
type account struct {
	Serial   uint64 // counts the changes of Hidden since the last erasure
	Hidden   bool   // the user is banned
	Epoch    int64  // counts the erasures
	Base     uint64 // the version at which the last erasure started the entries
	ErasedAt time.Time
}

// time returns the write timestamp of a copy of the account.
func (a *account) time() int64 { return a.Epoch<<epochShift | int64(a.Serial+1) }

// version returns what the account adds to the version of each entry of the user.
func (a *account) version() uint64 { return a.Base + a.Serial }

const (
	flagHidden = 1 << iota
	flagErased
)

// erasedBase returns the version at which an erasure starts the entries. It is greater
// than highest, the greatest version that the erasure has read.
func erasedBase(highest uint64) uint64 {
	if base := highest + erasureStep; base <= maxResultVersion {
		return base
	}
	return max(highest, maxResultVersion+versionRoom/2) + lastErasureStep
}

func (a *account) append(dst []byte) []byte {
	var flags byte
	if a.Hidden {
		flags |= flagHidden
	}
	if !a.ErasedAt.IsZero() {
		flags |= flagErased
	}
	dst = append(dst, codecFormat, flags)
	dst = binary.AppendUvarint(dst, a.Serial)
	dst = binary.AppendUvarint(dst, uint64(a.Epoch))
	dst = binary.AppendUvarint(dst, a.Base)
	if flags&flagErased != 0 {
		dst = binary.AppendVarint(dst, a.ErasedAt.UnixMicro())
	}
	return dst
}

func decodeAccount(b []byte) (account, error) {
	d := decoder{b: b}
	format, flags := d.byte(), d.byte()
	a := account{Serial: d.uvarint(), Hidden: flags&flagHidden != 0, Epoch: int64(d.uvarint()), Base: d.uvarint()}
	if flags&flagErased != 0 {
		a.ErasedAt = d.time()
	}
	if d.bad || len(d.b) > 0 || format != codecFormat || !bytes.Equal(a.append(nil), b) {
		return account{}, errFormat("account")
	}
	return a, nil
}

// appendEntry appends the encoding of e without its season and user.
func appendEntry(dst []byte, e *leaderboard.Entry) []byte {
	var flags byte
	if e.Hidden {
		flags |= flagHidden
	}
	dst = append(dst, codecFormat, flags)
	dst = binary.AppendUvarint(dst, e.Version)
	dst = appendString(dst, e.Key)
	if e.Key == "" {
		return dst
	}
	dst = binary.AppendVarint(dst, e.AchievedAt.UnixMicro())
	dst = appendString(dst, e.Match)
	dst = appendString(dst, e.Metadata)
	dst = binary.AppendUvarint(dst, uint64(e.Results))
	dst = binary.AppendUvarint(dst, uint64(len(e.Divisions)))
	for _, div := range e.Divisions {
		dst = appendString(appendString(dst, div.Attribute), div.Value)
	}
	return dst
}

func decodeEntry(seasonKey leaderboard.SeasonKey, user leaderboard.UserID, b []byte) (leaderboard.Entry, error) {
	d := decoder{b: b}
	format, flags := d.byte(), d.byte()
	e := leaderboard.Entry{SeasonKey: seasonKey, User: user, Hidden: flags&flagHidden != 0, Version: d.uvarint()}
	if e.Key = leaderboard.RankKey(d.string()); e.Key != "" {
		e.AchievedAt = d.time()
		e.Match = leaderboard.MatchID(d.string())
		e.Metadata = d.string()
		e.Results = int64(d.uvarint())
		for n := d.uvarint(); n > 0 && !d.bad; n-- {
			e.Divisions = append(e.Divisions, leaderboard.Division{Attribute: d.string(), Value: d.string()})
		}
	}
	if d.bad || len(d.b) > 0 || format != codecFormat || !bytes.Equal(appendEntry(nil, &e), b) {
		return leaderboard.Entry{}, errFormat("entry")
	}
	return e, nil
}

// standingOf returns e's sort key without the user, which is a column of its own.
func standingOf(e *leaderboard.Entry) []byte {
	key := e.SortKey()
	return []byte(key[:len(key)-len(e.User)])
}

// refusalItem returns the clustering key of a refusal within its match. It orders
// refusals by revision.
func refusalItem(f *leaderboard.Refusal) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(f.Revision)), f.Content[:]...)
}

// appendRefusal appends the fields of f that [refusalItem] does not hold. Of two
// copies of a refusal, the one received earlier has the greater bytes, so Cassandra
// keeps that one.
func appendRefusal(dst []byte, f *leaderboard.Refusal) []byte {
	dst = binary.BigEndian.AppendUint64(append(dst, codecFormat), ^(uint64(f.ReceivedAt.UnixMicro()) ^ 1<<63))
	return append(dst, f.Reason...)
}

func decodeRefusal(item, b []byte) (leaderboard.Refusal, error) {
	var f leaderboard.Refusal
	if len(item) != 8+len(f.Content) || len(b) < 9 || b[0] != codecFormat {
		return f, errFormat("refusal")
	}
	f.Revision = int64(binary.BigEndian.Uint64(item))
	copy(f.Content[:], item[8:])
	f.ReceivedAt = time.UnixMicro(int64(^binary.BigEndian.Uint64(b[1:]) ^ 1<<63)).UTC()
	f.Reason = leaderboard.Reason(b[9:])
	return f, nil
}

// fingerprint returns the first 8 bytes of a payload's SHA-256 as high, and their
// complement as low. At one timestamp Cassandra keeps the greatest high and the
// greatest low. If several payloads were written, the greatest low comes from another
// payload than the greatest high. So a matching pair shows that only one payload was
// written.
func fingerprint(payload []byte) (high, low []byte) {
	sum := sha256.Sum256(payload)
	high, low = sum[:8:8], make([]byte, 8)
	for i, c := range high {
		low[i] = ^c
	}
	return high, low
}

// contenderItem returns the clustering key of a contender row. The row records that
// the payload prevailed over another payload of the same revision.
func contenderItem(revision int64, payload []byte) []byte {
	sum := sha256.Sum256(payload)
	return append(binary.BigEndian.AppendUint64(nil, uint64(revision)), sum[:16]...)
}

func userHash(user leaderboard.UserID) []byte {
	sum := sha256.Sum256([]byte(user))
	return sum[:]
}

// bucketOf returns the number of a user's bucket, from 0 to n-1. A ladder has one
// partition per bucket.
func bucketOf(user leaderboard.UserID, n int) int {
	sum := sha256.Sum256([]byte(user))
	return int(binary.BigEndian.Uint64(sum[:8]) % uint64(n))
}

func appendString[S ~string](dst []byte, s S) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// decoder reads the parts of a blob. After an error, bad is set and every read
// returns zero.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) next(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.b, d.bad = nil, true
		return nil
	}
	out := d.b[:n]
	d.b = d.b[n:]
	return out
}

func (d *decoder) byte() byte {
	if b := d.next(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.b, d.bad = nil, true
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) time() time.Time {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.b, d.bad = nil, true
		return time.Time{}
	}
	d.b = d.b[n:]
	return time.UnixMicro(v).UTC()
}

func (d *decoder) string() string { return string(d.next(d.uvarint())) }

func errFormat(what string) error {
	return fmt.Errorf("cql: %s: %w", what, leaderboard.ErrFormat)
}
