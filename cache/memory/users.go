package memory

import (
	"encoding/binary"
	"errors"
)

// users holds a record for each known user. A record is named by its place, a
// ref, from 1. Records are of any length, so they lie end to end in chunks, and
// the places of dropped records are used again for others of equal length.
//
//	8  version
//	.. for each of the board's attributes: 4 ladder, 0 if none; 4 leaf
//	1  length of the id
//	.. id
//
// The leaf of the overall ladder is what the dictionary leads to.
type users struct {
	chunks [][]byte
	next   int // where the next record is made, from the start of the first chunk
	header int // bytes before the id's length
	free   [(maxRecord + refUnit - 1) / refUnit]uint32
	count  int
	alloc  *allocator
}

const (
	refUnit     = 4 // records begin at multiples of it
	maxRef      = 1 << 32
	recordShift = 18
	recordChunk = 1 << recordShift
	fixedHeader = 8
	maxRecord   = fixedHeader + 8*maxAttributes + 1 + maxID + refUnit
)

var errFull = errors.New("scope is full: 16 GiB of user records")

func newUsers(attributes int, alloc *allocator) users {
	return users{next: refUnit, header: fixedHeader + 8*attributes, alloc: alloc}
}

// ladderField is where a record says in which ladder of attribute a (from 0)
// the user stands; the leaf is at 4 more.
func ladderField(a int) int { return fixedHeader + 8*a }

// record returns the bytes from a record's start to its chunk's end.
func (u *users) record(ref uint32) []byte {
	at := int(ref) * refUnit
	return u.chunks[at>>recordShift][at&(recordChunk-1):]
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

// size is how many bytes the record of an id takes.
func (u *users) size(idBytes int) int { return (u.header + 1 + idBytes + refUnit - 1) &^ (refUnit - 1) }

// add makes a record for id, which has 1 to maxID bytes, that stands nowhere.
func (u *users) add(id string) (uint32, error) {
	size := u.size(len(id))
	ref := u.free[size/refUnit]
	if ref != 0 {
		u.free[size/refUnit] = u.field(ref, 0)
	} else {
		if u.next&(recordChunk-1)+size > recordChunk { // records do not span chunks
			u.next = (u.next | (recordChunk - 1)) + 1
		}
		if u.next+size > maxRef*refUnit {
			return 0, errFull
		}
		u.grow(u.next>>recordShift, u.next&(recordChunk-1)+size)
		ref = uint32(u.next / refUnit)
		u.next += size
	}
	r := u.record(ref)[:size]
	clear(r[:u.header])
	r[u.header] = byte(len(id))
	copy(r[u.header+1:], id)
	u.count++
	return ref, nil
}

// grow makes chunk so long that need bytes are in it. Only the first chunk is
// ever shorter than the others.
func (u *users) grow(chunk, need int) {
	if chunk == len(u.chunks) {
		u.chunks = append(u.chunks, nil)
	}
	if len(u.chunks[chunk]) < need {
		u.chunks[chunk] = grown(u.alloc, u.chunks[chunk], chunk == 0, need, recordChunk)
	}
}

// drop gives the place of a record back. The id is overwritten: it may belong
// to an erased user.
func (u *users) drop(ref uint32) {
	size := u.size(len(u.id(ref)))
	clear(u.record(ref)[:size])
	u.setField(ref, 0, u.free[size/refUnit])
	u.free[size/refUnit] = ref
	u.count--
}
