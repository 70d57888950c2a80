package memory

import (
	"unsafe"

	"github.com/open-leaderboard/leaderboard"
)

const (
	cacheLine = 64
	// prefetchLines is enough for a leaf with rank keys of 8 bytes.
	prefetchLines = 21
)

// A look-up waits for main memory three times: for the cell in dict, for the record and the leaf,
// and for the leaf's parent. The functions below prefetch for several users, so the waits overlap
// (docs/benchmarks.md).

// warm prefetches the memory that apply needs for at most updateChunk entries.
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
				leaf, _ := t.forest.descend(overall, bound{t.sortWords(scratch[:0], e), string(e.User)})
				t.forest.leaves.prefetch(leaf)
			}
		}
	}
	t.warmLeaves(hashes[:len(entries)])
}

// warmCells prefetches the cells of users, and returns the hashes of their ids.
func (t *table) warmCells(users []leaderboard.UserID) (hashes [updateChunk]uint32) {
	for i, user := range users {
		hash := t.dict.hash(string(user))
		c := t.dict.part(hash)
		prefetch(unsafe.Pointer(c.get(c.home(hash))), 1)
		hashes[i] = hash
	}
	return hashes
}

// warmLeaves prefetches the users' records and leaves in the overall ladder, and the leaves' parents.
func (t *table) warmLeaves(hashes []uint32) {
	var leaves [updateChunk]uint32
	for user, hash := range hashes {
		c, i := t.dict.firstCell(hash)
		if cell := c.get(i); cell.ref != 0 && cell.hash == hash {
			prefetch(unsafe.Pointer(&t.users.record(cell.ref)[0]), 1)
			if leaves[user] = cell.leaf; cell.leaf != 0 {
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

func (s *slab[T]) prefetch(i uint32) {
	ts := s.element(i)
	bytes := len(ts) * int(unsafe.Sizeof(ts[0]))
	prefetch(unsafe.Pointer(&ts[0]), min(bytes/cacheLine+1, prefetchLines))
}
