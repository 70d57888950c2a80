package memory

// rows holds the sort words of a node's entries: the rank key, then achieved_at. Column c has word c
// of each entry, because most searches read only the first word.
type rows []uint64

func (r rows) column(c int) *[fan]uint64 { return (*[fan]uint64)(r[c*fan:]) }

func (r rows) columns() int { return len(r) / fan }

func (r rows) set(i int, words []uint64) {
	for c, w := range words {
		r[c*fan+i] = w
	}
}

func (r rows) achieved(i int) uint64 { return r[len(r)-fan+i] }

func (r rows) hasKey(i int, words []uint64) bool {
	for c, w := range words[:len(words)-1] {
		if r[c*fan+i] != w {
			return false
		}
	}
	return true
}

// copy copies n rows from row si of src to row di of r. src may be r.
func (r rows) copy(di int, src rows, si, n int) {
	for c := range r.columns() {
		copy(r.column(c)[di:di+n], src.column(c)[si:si+n])
	}
}

// lowerBound returns the least i in [lo, hi] such that column[i] >= x or i == hi. The column must
// be sorted. lowerBound first reads one word of each cache line, so the processor fetches the lines
// concurrently.
func lowerBound(column *[fan]uint64, lo, hi int, x uint64) int {
	const line = 8 // words of a cache line
	first := lo
	for i := lo + line; i <= hi; i += line {
		if column[i-1] < x {
			first = i
		}
	}
	end := min(first+line, hi)
	for i := first; i < end; i++ {
		if column[i] < x {
			first = i + 1
		}
	}
	return first
}
