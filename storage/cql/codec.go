package cql

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// Write timestamps. None comes from a clock; each is made of what is written,
// so that the same write made again has the same timestamp, and of two writes
// of one cell the one that knows more has the greater.
//
// Rows of match_results, and what is static there: the user's epoch, which an
// erasure raises, above [epochShift] bits of a number that orders what the cell
// may hold. Of a result that is its revision, and one; so the highest revision
// stands, and of two payloads of one revision Cassandra keeps the greater bytes,
// which is what [leaderboard.Board.Merge] keeps.
const epochShift = 43

func resultTime(epoch, revision int64) int64 { return epoch<<epochShift | (revision + 1) }

// revisionOf is the inverse of resultTime.
func revisionOf(timestamp int64) int64 { return timestamp&(1<<epochShift-1) - 1 }

// Entries, and rows of the leaderboard: twice the version of the user's entry,
// and one for what is written rather than deleted. So a row that is deleted and
// inserted at one version is there.
func insertTime(version uint64) int64 { return int64(2*version + 1) }
func deleteTime(version uint64) int64 { return int64(2 * version) }

// versionCovering returns the least version at which a deletion covers a cell
// that was written at a timestamp, and what is inserted stands over it.
func versionCovering(timestamp int64) uint64 { return (uint64(timestamp) + 1) / 2 }

// Seasons: the number of the edition, above [madeShift] bits of when the board was
// made that opens it. So of two boards that open one edition the later stands,
// with all that it says.
const madeShift = 42 // milliseconds, to the year 2109

func openTime(number int, made int64) int64 {
	return int64(number+1)<<madeShift | min(max(made/1000, 0), 1<<madeShift-1)
}

const (
	// maxVersion bounds versions, so that timestamps stay below sweepTime. It is
	// half a million results of the greatest revision.
	maxVersion = 1 << 61
	// sweepTime is that of deletions of what nobody will write again.
	sweepTime = int64(1)<<62 + 1
	// erasureStep is by how much an erasure raises versions above those seen, so
	// that what was under way stays below: 4,096 results of the greatest revision.
	erasureStep = 1 << 54
)

// codecFormat begins every blob.
const codecFormat = 1

// account is what is kept of a user across scopes: bans and erasures. A copy is
// kept beside the user's results in each scope, as they change what the entry is.
type account struct {
	Serial   uint64 // counts the changes of Hidden
	Hidden   bool   // the user is banned
	Epoch    int64  // counts the erasures
	Base     uint64 // from which versions go on after the last erasure
	ErasedAt time.Time
}

// time is the timestamp of a copy.
func (a *account) time() int64 { return a.Epoch<<epochShift | int64(a.Serial+1) }

// version is what the account adds to the version of each entry.
func (a *account) version() uint64 { return a.Base + a.Serial }

const (
	flagHidden = 1 << iota
	flagErased
)

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

// appendEntry appends e but for its scope and user.
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

func decodeEntry(scope leaderboard.Scope, user leaderboard.UserID, b []byte) (leaderboard.Entry, error) {
	d := decoder{b: b}
	format, flags := d.byte(), d.byte()
	e := leaderboard.Entry{Scope: scope, User: user, Hidden: flags&flagHidden != 0, Version: d.uvarint()}
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

// standingOf returns e's sort key without the user, which is the next column.
func standingOf(e *leaderboard.Entry) []byte {
	key := e.SortKey()
	return []byte(key[:len(key)-len(e.User)])
}

// refusalItem is a refusal's place among those of its match: by revision.
func refusalItem(f *leaderboard.Refusal) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(f.Revision)), f.Content[:]...)
}

// appendRefusal appends what the item does not hold. Of two copies, that of the
// earlier time is the greater.
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

// fingerprint returns the first bytes of a payload's SHA-256, and their
// complement: high and low. Under one timestamp Cassandra keeps the greatest of
// each, so the two belong to one payload unless there were several.
func fingerprint(payload []byte) (high, low []byte) {
	sum := sha256.Sum256(payload)
	high, low = sum[:8:8], make([]byte, 8)
	for i, c := range high {
		low[i] = ^c
	}
	return high, low
}

// contenderItem names a payload that won over another of its revision.
func contenderItem(revision int64, payload []byte) []byte {
	sum := sha256.Sum256(payload)
	return append(binary.BigEndian.AppendUint64(nil, uint64(revision)), sum[:16]...)
}

// claim says which store is trusted to know a user's results by heart: the one
// that began to write them last. The greatest stands.
type claim [16]byte

func (c claim) number() uint64 { return binary.BigEndian.Uint64(c[:8]) }

func userHash(user leaderboard.UserID) []byte {
	sum := sha256.Sum256([]byte(user))
	return sum[:]
}

// bucketOf returns the bucket of a user among n.
func bucketOf(user leaderboard.UserID, n int) int {
	sum := sha256.Sum256([]byte(user))
	return int(binary.BigEndian.Uint64(sum[:8]) % uint64(n))
}

func appendString[S ~string](dst []byte, s S) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// decoder reads the parts of a blob. After a fault every read returns zero and
// bad is set.
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
