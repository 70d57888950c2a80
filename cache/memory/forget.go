package memory

// keptRemovals is the least number of removals whose records [table.forget] keeps.
const keptRemovals = 1 << 16

// queue is a FIFO queue of removals in a ring whose length is a power of two.
type queue struct {
	ring []removal
	head int
	len  int
}

type removal struct {
	ref     uint32
	version uint64
}

func (q *queue) push(r removal) {
	if q.len == len(q.ring) {
		grown := make([]removal, max(2*q.len, 16))
		n := copy(grown, q.ring[q.head:])
		copy(grown[n:], q.ring[:q.head])
		q.ring, q.head = grown, 0
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

// forget queues a user who was removed from all ladders, and drops the records of
// users who were removed long ago.
//
// The record of a removed user is kept for a while, because its version shows whether a
// late update is stale. Let n be the number of users in the overall ladder, or
// keptRemovals if that is greater. The table keeps the records of the users in the last n
// removals, and at most n records of removed users in total. So the record of an erased
// user is dropped after enough further removals.
func (t *table) forget(ref uint32, version uint64) {
	limit := max(keptRemovals, t.standing)
	for t.users.count-t.standing > limit || t.removed.len >= 2*limit {
		r := t.removed.pop()
		// If the leaf or the version differs, the user has come back since this removal. If
		// the user was then removed again, the queue holds that later removal too.
		hash := t.dict.hash(string(t.users.id(r.ref)))
		if c, i := t.dict.seek(hash, r.ref); c.get(i).leaf == 0 && t.users.version(r.ref) == r.version {
			t.dict.remove(hash, r.ref)
			t.users.drop(r.ref)
		}
	}
	t.removed.push(removal{ref, version})
}
