package memory

import (
	"encoding/binary"
	"fmt"

	"github.com/open-leaderboard/leaderboard"
)

// users holds a record for each user. A ref is the offset of a record in units of refUnit bytes; 0
// means no record. A new record reuses the location of a dropped record of equal length. The fields
// of a record, with their lengths in bytes:
//
//	8  version
//	.. for each of the board's attributes:
//	   4  index of the user's ladder in table.ladders, 0 if none
//	   4  the user's leaf in this ladder
//	1  length of the id
//	.. id
type users struct {
	chunks [][]byte
	end    int                                         // offset of the next new record
	header int                                         // number of bytes before the id's length
	free   [(maxRecord + refUnit - 1) / refUnit]uint32 // free[n] is the ref of a free location of n units, whose first bytes have the ref of the next
	count  int
	alloc  *allocator
	max    int // the largest value of end
}

const (
	refUnit     = 4 // the alignment of records in bytes
	maxRef      = 1 << 32
	recordShift = 18
	recordChunk = 1 << recordShift
	fixedHeader = 8
	maxRecord   = fixedHeader + 8*maxAttributes + 1 + maxID + refUnit
)

var errFull = fmt.Errorf("the season has 16 GiB of user records, the most that the in-process index can hold: %w", leaderboard.ErrRankUnavailable)

func newUsers(attributes int, alloc *allocator) users {
	return users{end: refUnit, header: fixedHeader + 8*attributes, alloc: alloc, max: maxRef * refUnit}
}

// ladderField returns the offset of the ladder's index for attribute a, which counts from 0. The
// leaf's number is 4 bytes later.
func ladderField(a int) int { return fixedHeader + 8*a }

func (u *users) record(ref uint32) []byte {
	offset := int(ref) * refUnit
	return u.chunks[offset>>recordShift][offset&(recordChunk-1):]
}

func (u *users) id(ref uint32) []byte {
	r := u.record(ref)[u.header:]
	return r[1 : 1+int(r[0])]
}

func (u *users) idBytes(ref uint32) int { return int(u.record(ref)[u.header]) }

func (u *users) version(ref uint32) uint64 { return binary.LittleEndian.Uint64(u.record(ref)) }

func (u *users) setVersion(ref uint32, v uint64) { binary.LittleEndian.PutUint64(u.record(ref), v) }

func (u *users) field(ref uint32, field int) uint32 {
	return binary.LittleEndian.Uint32(u.record(ref)[field:])
}

func (u *users) setField(ref uint32, field int, v uint32) {
	binary.LittleEndian.PutUint32(u.record(ref)[field:], v)
}

func (u *users) size(idBytes int) int { return (u.header + 1 + idBytes + refUnit - 1) &^ (refUnit - 1) }

// add creates the record of a user who is in no ladder. id has 1 to maxID bytes.
func (u *users) add(id string) (uint32, error) {
	size := u.size(len(id))
	ref := u.free[size/refUnit]
	if ref != 0 {
		u.free[size/refUnit] = u.field(ref, 0)
	} else {
		if u.end&(recordChunk-1)+size > recordChunk { // records do not span chunks
			u.end = (u.end | (recordChunk - 1)) + 1
		}
		if u.end+size > u.max {
			return 0, errFull
		}
		u.grow(u.end>>recordShift, u.end&(recordChunk-1)+size)
		ref = uint32(u.end / refUnit)
		u.end += size
	}
	r := u.record(ref)[:size]
	clear(r[:u.header])
	r[u.header] = byte(len(id))
	copy(r[u.header+1:], id)
	u.count++
	return ref, nil
}

func (u *users) grow(chunk, n int) {
	if chunk == len(u.chunks) {
		u.chunks = append(u.chunks, nil)
	}
	if len(u.chunks[chunk]) < n {
		u.chunks[chunk] = grown(u.alloc, u.chunks[chunk], chunk == 0, n, recordChunk)
	}
}

// drop overwrites the id, because the user may have been erased.
func (u *users) drop(ref uint32) {
	size := u.size(len(u.id(ref)))
	clear(u.record(ref)[:size])
	u.setField(ref, 0, u.free[size/refUnit])
	u.free[size/refUnit] = ref
	u.count--
}
