package memory

import (
	"math/bits"
	"unsafe"

	"github.com/open-leaderboard/leaderboard"
)

// A ladder is a counted B+tree: its leaves hold the standings in order, and its
// inner nodes know, for each child, how many standings and how many different
// rank keys the child holds. All trees of a scope share the nodes of a forest.
//
// The dictionary leads to a user's leaf, so a rank is found upwards, from the
// leaf to the root, adding up what stands to the left. No key is compared on
// that way. Keys are compared downwards, to find where a standing belongs.

const (
	fan = 64 // entries of a leaf, children of an inner node

	// A node with fewer than thin is joined with a neighbor if both together
	// have at most joined: far enough from fan that the node does not split again at once.
	thin   = fan * 3 / 8
	joined = fan * 3 / 4
	// A full leaf passes entries on to a neighbor that has at most roomy, rather
	// than split. That keeps leaves fuller than splitting alone.
	roomy = fan - 8
	// At either end of a ladder a full leaf splits off this little, so that
	// standings that come in order leave full leaves behind.
	endSplit = 8
)

// tally counts standings, in its upper half, and the heads among them, in its
// lower. A head is a standing with another rank key than the one before it.
type tally uint64

const one tally = 1 << 32

func (s tally) standings() int64 { return int64(s >> 32) }
func (s tally) heads() int64     { return int64(uint32(s)) }

// leaf is the part of a leaf that ranks are counted from. The sort words of
// its entries are the rows behind it.
type leaf struct {
	heads      uint64 // bit i: entry i is a head
	parent     uint32 // 0 in the root
	prev, next uint32 // 0 at the ends
	n          uint32
	refs       [fan]uint32 // users
}

// inner is an inner node. The sort words of each child's first entry are the
// rows behind it.
type inner struct {
	parent uint32
	level  uint32 // 1: children are leaves
	n      uint32
	_      uint32
	child  [fan]uint32
	refs   [fan]uint32 // the user of each child's first entry
	sums   [fan]tally  // of each child and those before it
}

// forest holds the nodes of all trees of a scope. A node is a leaf or an inner,
// with the rows of its entries behind it.
type forest struct {
	words  int // columns of rows
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

// A node's head lies in its slab as a struct without pointers, of whole words.
// Head and rows are in one block because a rank needs both.

func (f *forest) leaf(i uint32) *leaf     { return (*leaf)(unsafe.Pointer(&f.leaves.at(i)[0])) }
func (f *forest) inner(i uint32) *inner   { return (*inner)(unsafe.Pointer(&f.inners.at(i)[0])) }
func (f *forest) leafRows(i uint32) rows  { return f.leaves.at(i)[leafHead:] }
func (f *forest) innerRows(i uint32) rows { return f.inners.at(i)[innerHead:] }

// tree is one ladder.
type tree struct {
	root     uint32 // 0 if nobody stands in it
	last     uint32 // its last leaf
	level    uint32 // of the root; 0 is a leaf
	sum      tally
	field    int // where a user's record holds the user's leaf in this ladder
	division leaderboard.Division
}

// place is where a standing is or would be: before entry i of a leaf, where i
// may be the leaf's end.
type place struct {
	leaf uint32
	i    int
}

// bound is a sort key to look for.
type bound struct {
	words []uint64
	id    string
}

// lower returns how many of a node's entries lo to hi-1 are less than b, plus lo.
func (f *forest) lower(r rows, refs *[fan]uint32, lo, hi int, b bound) int {
	for c, x := range b.words {
		column := r.column(c)
		end := hi
		lo = lower(column, lo, hi, x)
		for hi = lo; hi < end && column[hi] == x; hi++ {
		}
		if hi == lo {
			return lo
		}
	}
	for lo < hi { // all words are equal
		mid := int(uint(lo+hi) >> 1)
		if string(f.users.id(refs[mid])) < b.id {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// find returns where b is or belongs, and what stands before it in its leaf's
// left. The tree must not be empty.
func (f *forest) find(t *tree, b bound) (place, tally) {
	leaf, before := f.descend(t, b)
	return f.within(leaf, b), before
}

// descend returns the leaf where b is or belongs, and what stands before it.
func (f *forest) descend(t *tree, b bound) (uint32, tally) {
	node, before := t.root, tally(0)
	for level := t.level; level > 0; level-- {
		in := f.inner(node)
		k := f.lower(f.innerRows(node), &in.refs, 1, int(in.n), b) - 1
		before += in.before(k)
		node = in.child[k]
	}
	return node, before
}

// within returns where b is or belongs in a leaf.
func (f *forest) within(leaf uint32, b bound) place {
	lf := f.leaf(leaf)
	return place{leaf, f.lower(f.leafRows(leaf), &lf.refs, 0, int(lf.n), b)}
}

// end returns the end of t, if that is where b belongs: standings that come in
// order need no search.
func (f *forest) end(t *tree, b bound) (place, bool) {
	lf := f.leaf(t.last)
	n := int(lf.n)
	if n == 0 {
		return place{t.last, 0}, true
	}
	return place{t.last, n}, f.lower(f.leafRows(t.last), &lf.refs, n-1, n, b) == n
}

// within is what entries 0 to i-1 of lf add up to.
func (lf *leaf) within(i int) tally {
	return tally(i)<<32 + tally(bits.OnesCount64(lf.heads&(1<<i-1)))
}

// at returns the place of the standing with position standings before it.
func (f *forest) at(t *tree, position int64) place {
	node := t.root
	for level := t.level; level > 0; level-- {
		in := f.inner(node)
		k := 0
		for in.sums[k].standings() <= position {
			k++
		}
		position -= in.before(k).standings()
		node = in.child[k]
	}
	return place{node, int(position)}
}

// head returns how many standings are before the nth head, from 1.
func (f *forest) head(t *tree, nth int64) int64 {
	node, before := t.root, int64(0)
	for level := t.level; level > 0; level-- {
		in := f.inner(node)
		k := 0
		for in.sums[k].heads() < nth {
			k++
		}
		before += in.before(k).standings()
		nth -= in.before(k).heads()
		node = in.child[k]
	}
	heads := f.leaf(node).heads
	for ; nth > 1; nth-- {
		heads &= heads - 1
	}
	return before + int64(bits.TrailingZeros64(heads))
}

// before is what children 0 to k-1 of in add up to.
func (in *inner) before(k int) tally {
	if k == 0 {
		return 0
	}
	return in.sums[k-1]
}

// childAt returns which child of in a node is.
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

// index returns which entry of lf a user is.
func (lf *leaf) index(ref uint32) int {
	for i, r := range lf.refs[:lf.n] {
		if r == ref {
			return i
		}
	}
	panic("memory: user is not in the leaf")
}

// before is what stands before a leaf.
func (f *forest) before(leaf uint32) tally {
	var before tally
	for node, parent := leaf, f.leaf(leaf).parent; parent != 0; {
		in := f.inner(parent)
		before += in.before(in.childAt(node))
		node, parent = parent, in.parent
	}
	return before
}

// add adds d to the sums above a leaf.
func (f *forest) add(t *tree, leaf uint32, d tally) {
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

// lead notes the leaf in which a user stands in t.
func (f *forest) lead(t *tree, ref, leaf uint32) {
	if t.field == 0 {
		f.dict.lead(f.dict.hash(string(f.users.id(ref))), ref, leaf)
	} else {
		f.users.setField(ref, t.field, leaf)
	}
}

// insert puts a standing into t, where it must not be.
func (f *forest) insert(t *tree, words []uint64, ref uint32, id string) {
	if t.root == 0 {
		t.root = f.newLeaf()
		t.last = t.root
	}
	b := bound{words, id}
	p, atEnd := f.end(t, b)
	if !atEnd {
		p, _ = f.find(t, b)
	}
	// What the new standing changes about heads: it is one unless the standing
	// before it has its key; if so, and the one behind has its key, that was one.
	isHead := true
	if before, ok := f.prev(p); ok {
		isHead = !f.leafRows(before.leaf).hasKey(before.i, words)
	}
	takesHead := false
	if isHead {
		if behind, ok := f.settle(p); ok {
			takesHead = f.leafRows(behind.leaf).hasKey(behind.i, words)
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
	d := one
	if isHead {
		lf.heads |= 1 << p.i
		d++
	}
	f.add(t, p.leaf, d)
	f.lead(t, ref, p.leaf)
	if takesHead {
		behind, _ := f.settle(place{p.leaf, p.i + 1})
		f.leaf(behind.leaf).heads &^= 1 << behind.i
		f.add(t, behind.leaf, ^tally(0)) // one head less
	}
	if p.i == 0 {
		f.fixFirst(p.leaf)
	}
}

// prev returns the standing before p.
func (f *forest) prev(p place) (place, bool) {
	if p.i > 0 {
		return place{p.leaf, p.i - 1}, true
	}
	prev := f.leaf(p.leaf).prev
	if prev == 0 {
		return place{}, false
	}
	return place{prev, int(f.leaf(prev).n) - 1}, true
}

// settle returns the standing at p, which is in the next leaf if p is a leaf's end.
func (f *forest) settle(p place) (place, bool) {
	lf := f.leaf(p.leaf)
	if p.i < int(lf.n) {
		return p, true
	}
	return place{lf.next, 0}, lf.next != 0
}

// remove takes a user's standing, which is in the given leaf, out of t. What
// leads to that leaf is left as it is.
func (f *forest) remove(t *tree, leaf, ref uint32) {
	lf := f.leaf(leaf)
	p := place{leaf, lf.index(ref)}
	var d tally
	d -= one
	if lf.heads>>p.i&1 != 0 {
		// The standing behind becomes the head, unless it was one already.
		behind, ok := f.settle(place{p.leaf, p.i + 1})
		switch {
		case !ok:
			d--
		case behind.leaf == p.leaf:
			if lf.heads>>behind.i&1 != 0 {
				d--
			}
			lf.heads |= 1 << behind.i
		default:
			d--
			if next := f.leaf(behind.leaf); next.heads&1 == 0 {
				next.heads |= 1
				f.add(t, behind.leaf, 1)
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
	if lf.n < thin {
		f.thinLeaf(t, p.leaf)
	}
}

// fixFirst tells the nodes above a leaf of its new first entry.
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
