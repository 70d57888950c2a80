package memory

import (
	"math/bits"
	"unsafe"

	"github.com/open-leaderboard/leaderboard"
)

// A ladder is a counted B+tree. Its leaves hold the standings in order. Its inner
// nodes hold running totals over their children, of standings and of distinct rank
// keys. All trees of a season take their nodes from one forest.
//
// A rank is the sum of the counts to the left of the path from the user's leaf up to the
// root. The user's leaf is in dict or in the user's record, so the sum needs no
// comparison of keys. Only a search from the root down compares keys.

const (
	fan = 64 // the capacity of a leaf in entries and of an inner node in children

	// A node with fewer than minFill elements is joined with a sibling if both
	// together have at most maxJoined elements. The number maxJoined is far below fan, so
	// that the joined node does not split soon.
	minFill   = fan * 3 / 8
	maxJoined = fan * 3 / 4
	// A full leaf moves entries to a sibling that has at most maxRoomy entries. The leaf splits if it
	// has no such sibling, or if the new entry is at an end of the ladder. So fewer leaves split, and
	// leaves stay fuller.
	maxRoomy = fan - 8
	// A standing may arrive at an end of a ladder where the leaf is full. The split then leaves
	// endSplit entries in the leaf at the end, and the other entries in its neighbor. So standings
	// that arrive in order leave nearly full leaves behind them.
	endSplit = 8
)

// counts holds two numbers: the number of standings in its upper half, and the number of
// heads among these standings in its lower half. A head is a standing whose rank key
// differs from the rank key of the standing before it. So the number of heads is the
// number of distinct rank keys.
type counts uint64

const oneStanding counts = 1 << 32

func (s counts) standings() int64 { return int64(s >> 32) }
func (s counts) heads() int64     { return int64(uint32(s)) }

// leaf is the first part of a leaf node. The second part follows it in memory: the rows,
// which are the sort words of the entries.
type leaf struct {
	heads      uint64      // bit i is set if entry i is a head: see counts
	parent     uint32      // 0 in the root
	prev, next uint32      // the neighboring leaves; 0 if the leaf has no such neighbor
	n          uint32      // the number of entries
	refs       [fan]uint32 // the users of the entries: the locations of their records
}

// inner is the first part of an inner node. The second part follows it in memory: the
// rows, which are the sort words of each child's first entry.
type inner struct {
	parent uint32
	level  uint32 // 1 if the children are leaves
	n      uint32 // the number of children
	_      uint32
	child  [fan]uint32
	refs   [fan]uint32 // the user of each child's first entry
	sums   [fan]counts // sums[k] is the total of children 0 to k
}

// forest holds the nodes of all trees of a season. A node is a leaf or an inner, followed
// by its rows. A node's number in its slab identifies it.
type forest struct {
	words  int // the number of sort words of an entry
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

// The first part of a node is a struct of whole words without pointers. Both parts are
// in one element of a slab, because a rank needs both.

func (f *forest) leaf(i uint32) *leaf     { return (*leaf)(unsafe.Pointer(&f.leaves.element(i)[0])) }
func (f *forest) inner(i uint32) *inner   { return (*inner)(unsafe.Pointer(&f.inners.element(i)[0])) }
func (f *forest) leafRows(i uint32) rows  { return f.leaves.element(i)[leafHead:] }
func (f *forest) innerRows(i uint32) rows { return f.inners.element(i)[innerHead:] }

// tree is one ladder.
type tree struct {
	root     uint32 // 0 if the ladder is empty
	last     uint32 // the last leaf
	level    uint32 // the level of the root; the level of leaves is 0
	sum      counts // the counts of the whole ladder
	field    int    // offset, in a user's record, of the user's leaf in this ladder; 0 for the overall ladder
	division leaderboard.Division
}

// place is a position in a leaf: the position of entry i, or the end of the leaf if i is
// the number of entries.
type place struct {
	leaf uint32
	i    int
}

// bound is a sort key to search for: sort words and a user id.
type bound struct {
	words []uint64
	id    string
}

// lowerBound returns the least i in [lo, hi) such that entry i of a node is not less than b.
// If all these entries are less, it returns hi.
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
	for lo < hi { // the words of these entries equal the words of b
		mid := int(uint(lo+hi) >> 1)
		if string(f.users.id(refs[mid])) < b.id {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// find returns the place of b in t, or the place at which b would be inserted. It also
// returns the counts of all leaves to the left of the place's leaf. The tree must not be
// empty.
func (f *forest) find(t *tree, b bound) (place, counts) {
	leaf, before := f.descend(t, b)
	return f.placeIn(leaf, b), before
}

// descend returns the leaf of the place that find returns, and the counts of all leaves
// to the left of that leaf.
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

// placeIn returns the place of b in a leaf, or the place at which b would be inserted.
func (f *forest) placeIn(leaf uint32, b bound) place {
	lf := f.leaf(leaf)
	return place{leaf, f.lowerBound(f.leafRows(leaf), &lf.refs, 0, int(lf.n), b)}
}

// placeAtEnd returns the place after the last standing of t. It also reports whether b belongs at
// this place. insert tries this place first, so that standings that arrive in order need no search.
func (f *forest) placeAtEnd(t *tree, b bound) (place, bool) {
	lf := f.leaf(t.last)
	n := int(lf.n)
	if n == 0 {
		return place{t.last, 0}, true
	}
	return place{t.last, n}, f.lowerBound(f.leafRows(t.last), &lf.refs, n-1, n, b) == n
}

// countsBefore returns the counts of entries 0 to i-1.
func (lf *leaf) countsBefore(i int) counts {
	return counts(i)<<32 + counts(bits.OnesCount64(lf.heads&(1<<i-1)))
}

// placeAt returns the place of the standing at a position. Positions begin at 0. It also
// returns the counts of all leaves to the left of the place's leaf.
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

// countBeforeHead returns the number of standings before the nth head. The first head is number 1.
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

// countsBefore returns the counts of children 0 to k-1.
func (in *inner) countsBefore(k int) counts {
	if k == 0 {
		return 0
	}
	return in.sums[k-1]
}

// childAt returns the index of the given node among the children.
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

// indexOf returns the index of a user's entry in lf.
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

// add adds d to the sum of t and to the sums in all nodes above a leaf.
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

// setLeaf records which leaf of t holds a user's standing: in dict if t is the overall ladder,
// otherwise in the user's record.
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
	// The new standing is a head unless the standing before it has the same rank key. If
	// it is a head, and the standing after it has the same rank key, the new standing
	// replaces that standing as head.
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
		f.add(t, successor.leaf, ^counts(0)) // -1: one head less
	}
	if p.i == 0 {
		f.fixFirst(p.leaf)
	}
}

// standingBefore returns the place of the standing before p, or false if p is the start of
// the tree.
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

// standingAt returns the place of the standing at p, or false if p is the end of
// the tree. If p is the end of a leaf, the standing is the first of the next leaf.
func (f *forest) standingAt(p place) (place, bool) {
	lf := f.leaf(p.leaf)
	if p.i < int(lf.n) {
		return p, true
	}
	return place{lf.next, 0}, lf.next != 0
}

// remove removes the standing of a user from t. The caller passes the leaf that holds the
// standing. remove changes neither dict nor the user's record, which still name this leaf.
func (f *forest) remove(t *tree, leaf, ref uint32) {
	lf := f.leaf(leaf)
	p := place{leaf, lf.indexOf(ref)}
	var d counts
	d -= oneStanding
	if lf.heads>>p.i&1 != 0 {
		// The standing after the removed standing becomes a head, unless it is a head already.
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

// fixFirst updates the nodes above a leaf after the first entry of the leaf changed.
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
