package memory

// keptRemovals is how many removals are remembered at least.
const keptRemovals = 1 << 16

// queue is a first-in first-out queue.
type queue struct {
	items []removal
	head  int
}

type removal struct {
	ref     uint32
	version uint64
}

func (q *queue) len() int { return len(q.items) - q.head }

func (q *queue) push(r removal) { q.items = append(q.items, r) }

func (q *queue) pop() removal {
	r := q.items[q.head]
	q.head++
	if q.head > len(q.items)/2 {
		q.items = q.items[:copy(q.items, q.items[q.head:])]
		q.head = 0
	}
	return r
}

// forget notes that a user has come to stand nowhere, and forgets users of whom
// that was noted long ago. A user who stands nowhere is kept, with the version,
// so that a late update of before is known as such: at least through as many
// further removals as users stand, and through keptRemovals. So the record of
// an erased user is not kept for good, and the records of users who stand
// nowhere never outnumber those who stand by more than keptRemovals.
func (t *table) forget(ref uint32, version uint64) {
	t.removed.push(removal{ref, version})
	limit := max(keptRemovals, t.standing)
	for t.users.count-t.standing > limit || t.removed.len() > 2*limit {
		r := t.removed.pop()
		// Else the user has come back, or was removed again.
		hash := t.dict.hash(string(t.users.id(r.ref)))
		if t.users.version(r.ref) == r.version && t.dict.has(hash, r.ref|notStanding) {
			t.dict.remove(hash, r.ref|notStanding)
			t.users.drop(r.ref)
		}
	}
}
