package memory

import (
	"unsafe"

	"github.com/open-leaderboard/leaderboard"
)

const (
	cacheLine = 64
	// prefetchLines bounds what is asked for of one node: all of it, unless the
	// board has tie-breakers.
	prefetchLines = 21
)

// In a large table the cell, the record and the leaf of a user are each in far
// memory, and so are the leaf's parent and, for an update, the leaf to go to.
// To look one user up is to wait for one after the other, since each says where
// the next is. What is asked for by stages is on its way for several users at once.

// warm asks for the memory that apply will need for some entries, at most
// updateChunk of them. It changes nothing.
func (t *table) warm(entries []leaderboard.Entry) {
	var users [updateChunk]leaderboard.UserID
	for i := range entries {
		users[i] = entries[i].User
	}
	hashes := t.warmCells(users[:len(entries)])
	if overall := &t.ladders[0]; overall.root != 0 {
		for i := range entries {
			if e := &entries[i]; e.Ranked() && len(e.Key) == t.keyBytes {
				var scratch [maxWords]uint64
				to, _ := t.forest.descend(overall, bound{t.sortWords(scratch[:0], e), string(e.User)})
				t.forest.leaves.prefetch(to)
			}
		}
	}
	t.warmLeaves(hashes[:len(entries)])
}

// warmCells asks for the cells of some users, at most updateChunk, and returns
// their hashes.
func (t *table) warmCells(users []leaderboard.UserID) (hashes [updateChunk]uint32) {
	for i, user := range users {
		hash := t.dict.hash(string(user))
		c := t.dict.part(hash)
		prefetch(unsafe.Pointer(c.get(c.home(hash))), 1)
		hashes[i] = hash
	}
	return hashes
}

// warmLeaves asks for the records and the overall leaves of some users, whose
// cells should be on their way, and then for the parents of those leaves.
func (t *table) warmLeaves(hashes []uint32) {
	var leaves [updateChunk]uint32
	for i, hash := range hashes {
		c, at := t.dict.first(hash)
		if cell := c.get(at); cell.ref != 0 && cell.hash == hash {
			prefetch(unsafe.Pointer(&t.users.record(cell.ref)[0]), 1)
			if leaves[i] = cell.leaf; cell.leaf != 0 {
				t.forest.leaves.prefetch(cell.leaf)
			}
		}
	}
	for _, leaf := range leaves {
		if leaf != 0 {
			if parent := t.forest.leaf(leaf).parent; parent != 0 {
				t.forest.inners.prefetch(parent)
			}
		}
	}
}

// prefetch asks for the beginning of number i.
func (s *slab[T]) prefetch(i uint32) {
	ts := s.at(i)
	bytes := len(ts) * int(unsafe.Sizeof(ts[0]))
	prefetch(unsafe.Pointer(&ts[0]), min(bytes/cacheLine+1, prefetchLines))
}
