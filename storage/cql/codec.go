package cql

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// # Write timestamps
//
// Cassandra keeps, of two writes of one cell, the write with the greater timestamp. The
// store computes the timestamps from the written data, never from a clock. So a repeated
// write has the same timestamp, and a write that follows from newer data has a greater timestamp.
//
// In table match_results, the timestamp of a row or a static cell consists of two
// numbers. The upper bits, from bit [epochShift] on, are the user's epoch: the number of
// the user's erasures. The lower bits are a number that orders the possible contents of
// the cell. For a result, this number is the revision plus one, so the highest revision
// prevails. If two payloads of one revision have the same timestamp, Cassandra keeps the
// payload with the greater bytes, as [leaderboard.Board.Merge] does.
const epochShift = 43

// resultTime returns the timestamp of a result.
func resultTime(epoch, revision int64) int64 { return epoch<<epochShift | (revision + 1) }

// revisionOf is the inverse of resultTime.
func revisionOf(timestamp int64) int64 { return timestamp&(1<<epochShift-1) - 1 }

// The timestamp of an entry or a ladder row is twice the version of the user's entry. An
// insertion adds one. So if a row is both deleted and inserted at one version, the row
// exists.
func insertTime(version uint64) int64 { return int64(2*version + 1) }

func deleteTime(version uint64) int64 { return int64(2 * version) }

// versionCovering returns the least version whose deletions remove a cell that was
// written at the timestamp. Insertions at that version also replace the cell.
func versionCovering(timestamp int64) uint64 { return (uint64(timestamp) + 1) / 2 }

// The cells that open an incarnation of a season have a timestamp of two numbers. The
// upper bits, from bit [madeShift] on, are the incarnation's number plus one. The lower
// bits are the creation time, in milliseconds, of the board for which the incarnation is
// opened. If two writers open the same incarnation for two boards that had the same id,
// all cells of the board that was created later prevail.
const madeShift = 42 // enough for milliseconds until the year 2109

// openTime returns the timestamp for an incarnation with a number, and for a board that was
// created at a time in Unix microseconds.
func openTime(number int, createdMicros int64) int64 {
	return int64(number+1)<<madeShift | min(max(createdMicros/1000, 0), 1<<madeShift-1)
}

const (
	// maxVersion bounds the versions of entries, so that no timestamp of an entry or a ladder row
	// is greater than sweepTime.
	maxVersion = 1 << 61
	// versionRoom is a reserve of versions below maxVersion, so that every user can still
	// be banned and erased. Retractions may use half of this reserve. Results that data
	// centers accept concurrently may use some of the other half. No other result raises
	// a version into the reserve.
	versionRoom = 1 << 58
	// maxResultVersion is the highest version that an entry may reach by a result. One
	// user can have 1.1 million results per season if the revisions are Unix
	// milliseconds, and 450,000 results if all have the greatest revision.
	maxResultVersion = maxVersion - versionRoom
	// sweepTime is the timestamp of deletions in an ended incarnation. These deletions hide all
	// other writes: no other timestamp is greater, and of a write and a deletion at equal
	// timestamps, Cassandra keeps the deletion.
	sweepTime = int64(1)<<62 + 1
	// erasureStep is the difference between the version that an erasure sets and the
	// highest version that it has read. Concurrent writers may raise that version.
	// Even with 4,096 results of the greatest revision, they do not reach the version of
	// the erasure.
	erasureStep = 1 << 54
	// maxEpoch bounds the number of erasures of a user, so that the timestamps of
	// results stay below sweepTime.
	maxEpoch = 1<<(62-epochShift) - 1
	// lastErasureStep replaces erasureStep if the version of the erasure would otherwise
	// be above maxResultVersion. The erasure then sets a version that retractions cannot
	// reach. Above this version, only bans raise the version, each by one.
	lastErasureStep = 1 << 32
)

// codecFormat begins the encodings of accounts, entries, refusals, bans, erasures, summaries,
// directories and states of matches.
const codecFormat = 1

// account contains the state of a user's bans and erasures. The entry depends on this state,
// so each season stores a copy of this state beside the user's results.
type account struct {
	Serial   uint64 // counts the changes of the bans since the last erasure: see account.go
	Hidden   bool   // a ban hides the user
	Epoch    int64  // counts the erasures
	Base     uint64 // the version with which entries started after the last erasure
	ErasedAt time.Time
}

// writeTime returns the write timestamp of a copy of the account.
func (a *account) writeTime() int64 { return a.Epoch<<epochShift | int64(a.Serial+1) }

// version returns the part of each entry's version that comes from the account.
func (a *account) version() uint64 { return a.Base + a.Serial }

const (
	flagHidden = 1 << iota
	flagErased
)

// erasedBase returns the version with which entries start after an erasure. It is higher
// than highest, the highest version that the erasure has read.
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

// standingColumn returns e's sort key without the user, which is a column of its own.
func standingColumn(e *leaderboard.Entry) []byte {
	key := e.SortKey()
	return []byte(key[:len(key)-len(e.User)])
}

// refusalItem returns the clustering key of a refusal within its match. It orders
// refusals by revision.
func refusalItem(f *leaderboard.Refusal) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(f.Revision)), f.Content[:]...)
}

// appendRefusal appends the fields of f that are not in [refusalItem]. If the same result
// was refused twice, the refusal that was received earlier has the greater bytes, so
// Cassandra keeps it.
func appendRefusal(dst []byte, f *leaderboard.Refusal) []byte {
	dst = binary.BigEndian.AppendUint64(append(dst, codecFormat), ^(uint64(f.ReceivedAt.UnixMicro()) ^ 1<<63))
	return append(dst, f.Reason...)
}

// decodeRefusal is the inverse of refusalItem and appendRefusal.
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

// fingerprint returns two cells that show whether several payloads of one revision were
// written. The cell high contains the first 8 bytes of the payload's SHA-256. The cell low
// contains the complement of these bytes. All payloads of a revision have the same
// timestamp, so Cassandra keeps the greatest value of each cell. If only one payload was
// written, the value in low is the complement of the value in high. If several payloads
// were written, the two values come from different payloads, so low is not the complement
// of high.
func fingerprint(payload []byte) (high, low []byte) {
	sum := sha256.Sum256(payload)
	high, low = sum[:8:8], make([]byte, 8)
	for i, c := range high {
		low[i] = ^c
	}
	return high, low
}

// contenderItem returns the clustering key of a contender row. Such a row records that
// two payloads of one revision were written, and that the given payload prevailed.
func contenderItem(revision int64, payload []byte) []byte {
	sum := sha256.Sum256(payload)
	return append(binary.BigEndian.AppendUint64(nil, uint64(revision)), sum[:16]...)
}

// userHash returns the SHA-256 of a user id. It is the column user_hash of several tables.
func userHash(user leaderboard.UserID) []byte {
	sum := sha256.Sum256([]byte(user))
	return sum[:]
}

// bucketOf returns the number of a user's bucket, from 0 to n-1. A ladder has one
// partition per bucket.
func bucketOf(user leaderboard.UserID, n int) int {
	return int(leaderboard.UserHash(user) % uint64(n))
}

// appendString appends the length and the bytes of s.
func appendString[S ~string](dst []byte, s S) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// A decoder reads the fields of a blob. If a read fails, it sets the field bad, and every
// later read returns a zero value.
type decoder struct {
	b   []byte
	bad bool
}

// next returns the next n bytes.
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

// errFormat returns the error for a damaged blob. The argument what names the blob.
func errFormat(what string) error {
	return fmt.Errorf("cql: %s: %w", what, leaderboard.ErrFormat)
}
