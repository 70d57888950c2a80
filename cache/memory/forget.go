package memory

const keptRemovals = 1 << 16

// queue is a FIFO queue in a ring whose length is a power of two.
type queue struct {
	ring []removal
	head int
	len  int
}

// removal is an Update after which a user was in no ladder.
type removal struct {
	ref     uint32
	version uint64
}

func (q *queue) push(r removal) {
	if q.len == len(q.ring) {
		larger := make([]removal, max(2*q.len, 16))
		n := copy(larger, q.ring[q.head:])
		copy(larger[n:], q.ring[:q.head])
		q.ring, q.head = larger, 0
	}
	q.ring[(q.head+q.len)&(len(q.ring)-1)] = r
	q.len++
}

func (q *queue) pop() removal {
	r := q.ring[q.head]
	q.head = (q.head + 1) & (len(q.ring) - 1)
	q.len--
	return r
}

// forget queues the removal of a user from all ladders, and drops the records of users who were
// removed long ago.
//
// The version in a removed user's record shows whether a late Update is stale. Let n be the greater
// of keptRemovals and the number of ranked users. The table keeps the records of the last n
// removals, and at most n records of removed users.
func (t *table) forget(ref uint32, version uint64) {
	limit := max(keptRemovals, t.rankedUsers)
	for t.users.count-t.rankedUsers > limit || t.removals.len >= 2*limit {
		r := t.removals.pop()
		// Keep the record if the user is in a ladder again (leaf is not 0) or was removed again
		// (version differs).
		hash := t.dict.hash(string(t.users.id(r.ref)))
		if c, i := t.dict.seek(hash, r.ref); c.get(i).leaf == 0 && t.users.version(r.ref) == r.version {
			t.dict.remove(hash, r.ref)
			t.users.drop(r.ref)
		}
	}
	t.removals.push(removal{ref, version})
}
