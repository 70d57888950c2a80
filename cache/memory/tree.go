package memory

import (
	"math/bits"
	"unsafe"

	"github.com/open-leaderboard/leaderboard"
)

// A ladder is a counted B+tree. Its leaves hold the standings in order. Its inner nodes hold
// running totals of standings and of distinct rank keys.
//
// To find a rank, the code sums the counts to the left of the path from the user's leaf to the root.
// The dict (see dict.go) has the user's leaf in the overall ladder, and the user's record has the
// leaves in the divisions. So no search by key is needed.

const (
	fan = 64 // capacity of a leaf in entries, and of an inner node in children

	// A node with fewer than minFill elements is joined with a sibling if both together have at
	// most maxJoined elements. This is less than fan, so the joined node does not split soon.
	minFill   = fan * 3 / 8
	maxJoined = fan * 3 / 4
	// To keep leaves full, a full leaf moves entries to a sibling that has at most maxRoomy entries.
	maxRoomy = fan - 8
	// After a split at an end of the tree, the leaf at that end has only endSplit entries. So
	// entries that arrive in order produce nearly full leaves.
	endSplit = 8
)

// counts holds the number of standings in its upper half, and of heads in its lower half. A head is
// the first standing with its rank key.
type counts uint64

const oneStanding counts = 1 << 32

func (s counts) standings() int64 { return int64(s >> 32) }
func (s counts) heads() int64     { return int64(uint32(s)) }

// leaf is a leaf node. Its rows (sort words: see rows.go) follow in memory.
type leaf struct {
	heads      uint64      // bit i is set if entry i is a head
	parent     uint32      // 0 in the root
	prev, next uint32      // 0 if none
	n          uint32      // number of entries
	refs       [fan]uint32 // records of the entries' users
}

// inner is an inner node. The rows of its children's first entries follow in memory.
type inner struct {
	parent uint32
	level  uint32 // 1 if the children are leaves
	n      uint32 // number of children
	_      uint32
	child  [fan]uint32
	refs   [fan]uint32 // user record of each child's first entry
	sums   [fan]counts // sums[k] is the total of children 0 to k
}

// forest holds the nodes of the trees of all ladders.
type forest struct {
	words  int
	users  *users
	dict   *dict
	leaves slab[uint64]
	inners slab[uint64]
}

const (
	leafHead  = int(unsafe.Sizeof(leaf{}) / 8)
	innerHead = int(unsafe.Sizeof(inner{}) / 8)
)

func newForest(words int, users *users, dict *dict, alloc *allocator) forest {
	return forest{
		words: words, users: users, dict: dict,
		leaves: newSlab[uint64](leafHead+words*fan, 8, alloc), inners: newSlab[uint64](innerHead+words*fan, 8, alloc),
	}
}

// One slab element holds a node and its rows, because most reads need both.

func (f *forest) leaf(i uint32) *leaf     { return (*leaf)(unsafe.Pointer(&f.leaves.element(i)[0])) }
func (f *forest) inner(i uint32) *inner   { return (*inner)(unsafe.Pointer(&f.inners.element(i)[0])) }
func (f *forest) leafRows(i uint32) rows  { return f.leaves.element(i)[leafHead:] }
func (f *forest) innerRows(i uint32) rows { return f.inners.element(i)[innerHead:] }

type tree struct {
	root     uint32 // 0 if the ladder is empty
	last     uint32
	level    uint32 // level of the root; leaves have level 0
	sum      counts
	field    int // offset of the leaf's number in a user's record; 0 for the overall ladder
	division leaderboard.Division
}

// place is the position of entry i in a leaf, or the end of the leaf.
type place struct {
	leaf uint32
	i    int
}

// A bound is a position in standing order: sort words (see rows.go) and a user id.
type bound struct {
	words []uint64
	id    string
}

// lowerBound returns the least i in [lo, hi) such that entry i is not less than b, or hi.
func (f *forest) lowerBound(r rows, refs *[fan]uint32, lo, hi int, b bound) int {
	for c, x := range b.words {
		column := r.column(c)
		end := hi
		lo = lowerBound(column, lo, hi, x)
		for hi = lo; hi < end && column[hi] == x; hi++ {
		}
		if hi == lo {
			return lo
		}
	}
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if string(f.users.id(refs[mid])) < b.id {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// find returns the place where b belongs in t, and the counts of all leaves to the left. The tree
// must not be empty.
func (f *forest) find(t *tree, b bound) (place, counts) {
	leaf, before := f.descend(t, b)
	return f.placeIn(leaf, b), before
}

// descend returns the leaf and the counts that find returns.
func (f *forest) descend(t *tree, b bound) (uint32, counts) {
	node, before := t.root, counts(0)
	for level := t.level; level > 0; level-- {
		in := f.inner(node)
		k := f.lowerBound(f.innerRows(node), &in.refs, 1, int(in.n), b) - 1
		before += in.countsBefore(k)
		node = in.child[k]
	}
	return node, before
}

func (f *forest) placeIn(leaf uint32, b bound) place {
	lf := f.leaf(leaf)
	return place{leaf, f.lowerBound(f.leafRows(leaf), &lf.refs, 0, int(lf.n), b)}
}

// placeAtEnd returns the end of the last leaf, and whether b belongs there.
func (f *forest) placeAtEnd(t *tree, b bound) (place, bool) {
	lf := f.leaf(t.last)
	n := int(lf.n)
	if n == 0 {
		return place{t.last, 0}, true
	}
	return place{t.last, n}, f.lowerBound(f.leafRows(t.last), &lf.refs, n-1, n, b) == n
}

func (lf *leaf) countsBefore(i int) counts {
	return counts(i)<<32 + counts(bits.OnesCount64(lf.heads&(1<<i-1)))
}

// placeAt returns the place of a position from 0, and the counts of all leaves to the left.
func (f *forest) placeAt(t *tree, position int64) (place, counts) {
	node, before := t.root, counts(0)
	for level := t.level; level > 0; level-- {
		in := f.inner(node)
		k, rest := 0, position-before.standings()
		for in.sums[k].standings() <= rest {
			k++
		}
		before += in.countsBefore(k)
		node = in.child[k]
	}
	return place{node, int(position - before.standings())}, before
}

// countBeforeHead counts the standings before the nth head. nth counts from 1.
func (f *forest) countBeforeHead(t *tree, nth int64) int64 {
	node, before := t.root, int64(0)
	for level := t.level; level > 0; level-- {
		in := f.inner(node)
		k := 0
		for in.sums[k].heads() < nth {
			k++
		}
		before += in.countsBefore(k).standings()
		nth -= in.countsBefore(k).heads()
		node = in.child[k]
	}
	heads := f.leaf(node).heads
	for ; nth > 1; nth-- {
		heads &= heads - 1
	}
	return before + int64(bits.TrailingZeros64(heads))
}

func (in *inner) countsBefore(k int) counts {
	if k == 0 {
		return 0
	}
	return in.sums[k-1]
}

func (in *inner) childAt(node uint32) int {
	if in.child[in.n-1] == node {
		return int(in.n) - 1
	}
	for k, c := range in.child[:in.n] {
		if c == node {
			return k
		}
	}
	panic("memory: node is not a child of its parent")
}

func (lf *leaf) indexOf(ref uint32) int {
	for i, r := range lf.refs[:lf.n] {
		if r == ref {
			return i
		}
	}
	panic("memory: user is not in the leaf")
}

// countsBefore returns the counts of all leaves to the left of a leaf.
func (f *forest) countsBefore(leaf uint32) counts {
	var before counts
	for node, parent := leaf, f.leaf(leaf).parent; parent != 0; {
		in := f.inner(parent)
		before += in.countsBefore(in.childAt(node))
		node, parent = parent, in.parent
	}
	return before
}

func (f *forest) add(t *tree, leaf uint32, d counts) {
	for node, parent := leaf, f.leaf(leaf).parent; parent != 0; {
		in := f.inner(parent)
		sums := in.sums[in.childAt(node):in.n]
		for k := range sums {
			sums[k] += d
		}
		node, parent = parent, in.parent
	}
	t.sum += d
}

// setLeaf records a user's leaf: in dict if t is the overall ladder, otherwise in the user's record.
func (f *forest) setLeaf(t *tree, ref, leaf uint32) {
	if t.field == 0 {
		f.dict.setLeaf(f.dict.hash(string(f.users.id(ref))), ref, leaf)
	} else {
		f.users.setField(ref, t.field, leaf)
	}
}

// insert inserts a standing into t. The user must not be in t.
func (f *forest) insert(t *tree, words []uint64, ref uint32, id string) {
	if t.root == 0 {
		t.root = f.newLeaf()
		t.last = t.root
	}
	b := bound{words, id}
	p, atEnd := f.placeAtEnd(t, b)
	if !atEnd {
		p, _ = f.find(t, b)
	}
	// The new standing is a head unless its predecessor has the same rank key. If it is a head, a
	// successor with the same rank key stops being a head.
	isHead := true
	if previous, ok := f.standingBefore(p); ok {
		isHead = !f.leafRows(previous.leaf).hasKey(previous.i, words)
	}
	replacesHead := false
	if isHead {
		if successor, ok := f.standingAt(p); ok {
			replacesHead = f.leafRows(successor.leaf).hasKey(successor.i, words)
		}
	}

	lf := f.leaf(p.leaf)
	if lf.n == fan {
		p = f.makeRoom(t, p)
		lf = f.leaf(p.leaf)
	}
	n := int(lf.n)
	rows := f.leafRows(p.leaf)
	rows.copy(p.i+1, rows, p.i, n-p.i)
	rows.set(p.i, words)
	copy(lf.refs[p.i+1:n+1], lf.refs[p.i:n])
	lf.refs[p.i] = ref
	low := lf.heads & (1<<p.i - 1)
	lf.heads = low | (lf.heads&^low)<<1
	lf.n++
	d := oneStanding
	if isHead {
		lf.heads |= 1 << p.i
		d++
	}
	f.add(t, p.leaf, d)
	f.setLeaf(t, ref, p.leaf)
	if replacesHead {
		successor, _ := f.standingAt(place{p.leaf, p.i + 1})
		f.leaf(successor.leaf).heads &^= 1 << successor.i
		f.add(t, successor.leaf, ^counts(0)) // one head less
	}
	if p.i == 0 {
		f.fixFirst(p.leaf)
	}
}

func (f *forest) standingBefore(p place) (place, bool) {
	if p.i > 0 {
		return place{p.leaf, p.i - 1}, true
	}
	prev := f.leaf(p.leaf).prev
	if prev == 0 {
		return place{}, false
	}
	return place{prev, int(f.leaf(prev).n) - 1}, true
}

// standingAt returns the place of the standing at p, or false at the end of the tree. The end of a
// leaf is the start of the next leaf.
func (f *forest) standingAt(p place) (place, bool) {
	lf := f.leaf(p.leaf)
	if p.i < int(lf.n) {
		return p, true
	}
	return place{lf.next, 0}, lf.next != 0
}

// remove removes a user from leaf. It does not change dict and the user's record.
func (f *forest) remove(t *tree, leaf, ref uint32) {
	lf := f.leaf(leaf)
	p := place{leaf, lf.indexOf(ref)}
	var d counts
	d -= oneStanding
	if lf.heads>>p.i&1 != 0 {
		// The next standing becomes a head, unless it already is a head.
		successor, ok := f.standingAt(place{p.leaf, p.i + 1})
		switch {
		case !ok:
			d--
		case successor.leaf == p.leaf:
			if lf.heads>>successor.i&1 != 0 {
				d--
			}
			lf.heads |= 1 << successor.i
		default:
			d--
			if next := f.leaf(successor.leaf); next.heads&1 == 0 {
				next.heads |= 1
				f.add(t, successor.leaf, 1)
			}
		}
	}
	n := int(lf.n)
	rows := f.leafRows(p.leaf)
	rows.copy(p.i, rows, p.i+1, n-p.i-1)
	copy(lf.refs[p.i:], lf.refs[p.i+1:n])
	low := lf.heads & (1<<p.i - 1)
	lf.heads = low | lf.heads>>1&^(1<<p.i-1)
	lf.n--
	f.add(t, p.leaf, d)
	if p.i == 0 && lf.n > 0 {
		f.fixFirst(p.leaf)
	}
	if lf.n < minFill {
		f.joinOrFreeLeaf(t, p.leaf)
	}
}

func (f *forest) fixFirst(leaf uint32) {
	lf := f.leaf(leaf)
	rows := f.leafRows(leaf)
	for node, parent := leaf, lf.parent; parent != 0; {
		in := f.inner(parent)
		k := in.childAt(node)
		in.refs[k] = lf.refs[0]
		f.innerRows(parent).copy(k, rows, 0, 1)
		if k > 0 {
			return
		}
		node, parent = parent, in.parent
	}
}
