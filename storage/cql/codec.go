package cql

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/codec"
	"github.com/open-leaderboard/leaderboard/storage"
)

// # Write timestamps
//
// Write timestamps are computed from the written data, never from a clock, except in table
// refusals (see refusals.go). So a repeated write has the same timestamp. A write that follows
// from newer data has a greater timestamp.
//
// In table match_results, the bits at and above epochShift are the user's epoch: the number
// of erasures. The lower bits order the contents of the cell. For a result, they are the
// revision plus one. If two payloads (encoded results) have the same revision, Cassandra
// keeps the greater bytes, as [leaderboard.Board.Merge] does.
const epochShift = 43

func resultTime(epoch, revision int64) int64 { return epoch<<epochShift | (revision + 1) }

func revisionOf(timestamp int64) int64 { return timestamp&(1<<epochShift-1) - 1 }

// An insertion prevails over a deletion at the same version.
func insertTime(version uint64) int64 { return int64(2*version + 1) }

func deleteTime(version uint64) int64 { return int64(2 * version) }

// versionCovering returns the least version whose deletions remove a cell with the
// timestamp.
func versionCovering(timestamp int64) uint64 { return (uint64(timestamp) + 1) / 2 }

// The timestamp of the cells that open an incarnation has two parts. The bits at and above
// madeShift are the incarnation's number plus one. The lower bits are the board's creation
// time in milliseconds. So if two boards with the same id open the same number, all cells
// of the later board prevail.
const madeShift = 42 // 42 bits of milliseconds last until the year 2109

func openTime(number int, createdMicros int64) int64 {
	return int64(number+1)<<madeShift | min(max(createdMicros/1000, 0), 1<<madeShift-1)
}

const (
	// maxVersion keeps the timestamps of entries and ladder rows at or below sweepTime. At
	// equal timestamps, a deletion prevails.
	maxVersion = storage.MaxVersion
	// maxResultVersion is the highest version that results of one data center may reach:
	// see README.md. Results that data centers accept concurrently may use a part of the room above.
	maxResultVersion = storage.MaxResultVersion
	// sweepTime is the timestamp of deletions in an ended incarnation. No timestamp is
	// greater.
	sweepTime = int64(1)<<62 + 1
	// [storage.MaxEpoch] keeps the timestamps of results below sweepTime: otherwise, this line does not compile.
	_ = uint64(sweepTime - (storage.MaxEpoch+1)<<epochShift)
)

const codecFormat = 1

// account is the state of a user's bans and erasures. Each season has a copy.
type account storage.Account

func (a *account) writeTime() int64 { return a.Epoch<<epochShift | int64(a.Serial+1) }

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
	d := codec.Decoder{Rest: b}
	format, flags := d.Byte(), d.Byte()
	a := account{Serial: d.Uvarint(), Hidden: flags&flagHidden != 0, Epoch: int64(d.Uvarint()), Base: d.Uvarint()}
	if flags&flagErased != 0 {
		a.ErasedAt = d.Time()
	}
	if d.Bad || len(d.Rest) > 0 || format != codecFormat || !bytes.Equal(a.append(nil), b) {
		return account{}, errFormat("account")
	}
	return a, nil
}

func appendEntry(dst []byte, e *leaderboard.Entry) []byte {
	var flags byte
	if e.Hidden {
		flags |= flagHidden
	}
	dst = append(dst, codecFormat, flags)
	dst = binary.AppendUvarint(dst, e.Version)
	dst = codec.AppendText(dst, e.Key)
	if e.Key == "" {
		return dst
	}
	dst = binary.AppendVarint(dst, e.AchievedAt.UnixMicro())
	dst = codec.AppendText(dst, e.Match)
	dst = codec.AppendText(dst, e.Metadata)
	dst = binary.AppendUvarint(dst, uint64(e.Results))
	dst = binary.AppendUvarint(dst, uint64(len(e.Divisions)))
	for _, div := range e.Divisions {
		dst = codec.AppendText(codec.AppendText(dst, div.Attribute), div.Value)
	}
	return dst
}

func decodeEntry(seasonKey leaderboard.SeasonKey, user leaderboard.UserID, b []byte) (leaderboard.Entry, error) {
	d := codec.Decoder{Rest: b}
	format, flags := d.Byte(), d.Byte()
	e := leaderboard.Entry{SeasonKey: seasonKey, User: user, Hidden: flags&flagHidden != 0, Version: d.Uvarint()}
	if e.Key = leaderboard.RankKey(d.Text()); e.Key != "" {
		e.AchievedAt = d.Time()
		e.Match = leaderboard.MatchID(d.Text())
		e.Metadata = d.Text()
		e.Results = int64(d.Uvarint())
		for n := d.Uvarint(); n > 0 && !d.Bad; n-- {
			e.Divisions = append(e.Divisions, leaderboard.Division{Attribute: d.Text(), Value: d.Text()})
		}
	}
	if d.Bad || len(d.Rest) > 0 || format != codecFormat || !bytes.Equal(appendEntry(nil, &e), b) {
		return leaderboard.Entry{}, errFormat("entry")
	}
	return e, nil
}

func standingColumn(e *leaderboard.Entry) []byte {
	key := e.SortKey()
	return []byte(key[:len(key)-len(e.User)])
}

// refusalItem returns the clustering key of a refusal (a rejected result) in its match.
func refusalItem(f *leaderboard.Refusal) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(f.Revision)), f.Content[:]...)
}

// appendRefusal appends the fields that are not in refusalItem. Of two refusals of a
// result, Cassandra keeps the greater bytes: the earlier refusal, because the time is
// complemented.
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

// fingerprint returns 8 bytes of the payload's SHA-256, and their complement, for the cells
// high and low. If different payloads of one revision are written, Cassandra keeps the
// greatest value of each cell. These come from different payloads, so low is not the
// complement of high.
func fingerprint(payload []byte) (high, low []byte) {
	sum := sha256.Sum256(payload)
	high, low = sum[:8:8], make([]byte, 8)
	for i, c := range high {
		low[i] = ^c
	}
	return high, low
}

// contenderItem returns the clustering key of a contender row (see match.go).
func contenderItem(revision int64, payload []byte) []byte {
	sum := sha256.Sum256(payload)
	return append(binary.BigEndian.AppendUint64(nil, uint64(revision)), sum[:16]...)
}

func userHash(user leaderboard.UserID) []byte {
	sum := sha256.Sum256([]byte(user))
	return sum[:]
}

func bucketOf(user leaderboard.UserID, n int) int {
	return int(leaderboard.UserHash(user) % uint64(n))
}

func errFormat(what string) error {
	return fmt.Errorf("cql: %s: %w", what, leaderboard.ErrFormat)
}
