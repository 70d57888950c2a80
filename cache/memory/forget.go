package memory

// keptRemovals is how many removals are remembered at least.
const keptRemovals = 1 << 16

// queue holds removals, the oldest first, in a ring that is as long as a power of two.
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

// forget notes that a user has come to stand nowhere, and forgets users of whom
// that was noted long ago. A user who stands nowhere is kept, with the version,
// so that a late update of before is known as such: at least through as many
// further removals as users stand, and through keptRemovals. So the record of
// an erased user is not kept for good, and the records of users who stand
// nowhere never outnumber those who stand by more than keptRemovals.
func (t *table) forget(ref uint32, version uint64) {
	limit := max(keptRemovals, t.standing)
	for t.users.count-t.standing > limit || t.removed.len >= 2*limit {
		r := t.removed.pop()
		// Else the user has come back, or was removed again.
		hash := t.dict.hash(string(t.users.id(r.ref)))
		if c, i := t.dict.seek(hash, r.ref); c.get(i).leaf == 0 && t.users.version(r.ref) == r.version {
			t.dict.remove(hash, r.ref)
			t.users.drop(r.ref)
		}
	}
	t.removed.push(removal{ref, version})
}
