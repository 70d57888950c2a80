package memory

// rows holds the sort words of a node's entries: the words of the rank key,
// then achieved_at. It is stored by columns of fan words, so that a search by
// the first word, which mostly decides, finds those words side by side.
type rows []uint64

func (r rows) column(c int) *[fan]uint64 { return (*[fan]uint64)(r[c*fan:]) }

func (r rows) columns() int { return len(r) / fan }

// set makes words row i.
func (r rows) set(i int, words []uint64) {
	for c, w := range words {
		r[c*fan+i] = w
	}
}

// achieved is the last word of row i.
func (r rows) achieved(i int) uint64 { return r[len(r)-fan+i] }

// hasKey says whether the rank key of row i is that of words.
func (r rows) hasKey(i int, words []uint64) bool {
	for c, w := range words[:len(words)-1] {
		if r[c*fan+i] != w {
			return false
		}
	}
	return true
}

// copy copies n rows of src, from si on, to rows di and on. r may be src.
func (r rows) copy(di int, src rows, si, n int) {
	for c := range r.columns() {
		copy(r.column(c)[di:di+n], src.column(c)[si:si+n])
	}
}

// lower returns how many words of an ordered column, from lo to hi-1, are less
// than x, plus lo.
//
// A node that was not used lately has to come from far memory, line by line. A
// binary search would wait for each line in turn. This asks for a word of each
// line at once; the line that then matters is there already.
func lower(column *[fan]uint64, lo, hi int, x uint64) int {
	const line = 8
	at := lo
	for i := lo + line; i <= hi; i += line {
		if column[i-1] < x {
			at = i
		}
	}
	to := min(at+line, hi)
	for i := at; i < to; i++ {
		if column[i] < x {
			at = i + 1
		}
	}
	return at
}
