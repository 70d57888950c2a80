package memory

import (
	"math/bits"

	"github.com/open-leaderboard/leaderboard"
)

// A ladder is a counted B+tree: its leaves hold the standings in order, and its
// inner nodes know, for each child, how many standings and how many different
// rank keys the child holds. All trees of a scope share the nodes of a forest.
//
// A user's record names the user's leaf, so a rank is found upwards, from the
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
// its entries lie apart, in forest.leafWords.
type leaf struct {
	heads      uint64 // bit i: entry i is a head
	parent     uint32 // 0 in the root
	prev, next uint32 // 0 at the ends
	n          uint32
	refs       [fan]uint32 // users
}

// inner is an inner node. The sort words of each child's first entry lie apart,
// in forest.innerWords.
type inner struct {
	parent uint32
	level  uint32 // 1: children are leaves
	n      uint32
	child  [fan]uint32
	refs   [fan]uint32 // the user of each child's first entry
	sums   [fan]tally  // of each child
}

type forest struct {
	words      int // sort words an entry: those of the rank key, then achieved_at
	users      *users
	leaves     slab[leaf]
	leafWords  slab[uint64] // fan rows of words
	inners     slab[inner]
	innerWords slab[uint64]
}

func newForest(words int, users *users) forest {
	return forest{
		words: words, users: users,
		leaves: newSlab[leaf](1, 24+4*fan), leafWords: newSlab[uint64](words*fan, 8),
		inners: newSlab[inner](1, 16+16*fan), innerWords: newSlab[uint64](words*fan, 8),
	}
}

// tree is one ladder.
type tree struct {
	root     uint32 // 0 if nobody stands in it
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

func (f *forest) row(words []uint64, i int) []uint64 { return words[i*f.words : (i+1)*f.words] }

// lower returns how many of entries lo to hi-1 are less than b, plus lo.
func (f *forest) lower(words []uint64, refs *[fan]uint32, lo, hi int, b bound) int {
	for c, x := range b.words {
		n, end := hi-lo, hi
		for n > 0 {
			half := n >> 1
			if words[(lo+half)*f.words+c] < x {
				lo += half + 1
				n -= half + 1
			} else {
				n = half
			}
		}
		hi = lo
		for hi < end && words[hi*f.words+c] == x {
			hi++
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

// find returns where b is or belongs, and what stands before it in its leaf's
// left. The tree must not be empty.
func (f *forest) find(t *tree, b bound) (place, tally) {
	node, before := t.root, tally(0)
	for level := t.level; level > 0; level-- {
		in := f.inners.get(node)
		k := f.lower(f.innerWords.at(node), &in.refs, 1, int(in.n), b) - 1
		for _, s := range in.sums[:k] {
			before += s
		}
		node = in.child[k]
	}
	lf := f.leaves.get(node)
	return place{node, f.lower(f.leafWords.at(node), &lf.refs, 0, int(lf.n), b)}, before
}

// within is what entries 0 to i-1 of lf add up to.
func (lf *leaf) within(i int) tally {
	return tally(i)<<32 + tally(bits.OnesCount64(lf.heads&(1<<i-1)))
}

// at returns the place of the standing with position standings before it, and
// what stands before its leaf.
func (f *forest) at(t *tree, position int64) (place, tally) {
	node, before := t.root, tally(0)
	for level := t.level; level > 0; level-- {
		in := f.inners.get(node)
		k := 0
		for (before + in.sums[k]).standings() <= position {
			before += in.sums[k]
			k++
		}
		node = in.child[k]
	}
	return place{node, int(position - before.standings())}, before
}

// head returns how many standings are before the nth head, from 1.
func (f *forest) head(t *tree, nth int64) int64 {
	node, before := t.root, tally(0)
	for level := t.level; level > 0; level-- {
		in := f.inners.get(node)
		k := 0
		for (before + in.sums[k]).heads() < nth {
			before += in.sums[k]
			k++
		}
		node = in.child[k]
	}
	heads := f.leaves.get(node).heads
	for n := nth - before.heads(); n > 1; n-- {
		heads &= heads - 1
	}
	return before.standings() + int64(bits.TrailingZeros64(heads))
}

// childAt returns which child of in a node is.
func (in *inner) childAt(node uint32) int {
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
	for node, parent := leaf, f.leaves.get(leaf).parent; parent != 0; {
		in := f.inners.get(parent)
		for k, c := range in.child[:in.n] {
			if c == node {
				break
			}
			before += in.sums[k]
		}
		node, parent = parent, in.parent
	}
	return before
}

// add adds d to the sums above a leaf.
func (f *forest) add(t *tree, leaf uint32, d tally) {
	for node, parent := leaf, f.leaves.get(leaf).parent; parent != 0; {
		in := f.inners.get(parent)
		in.sums[in.childAt(node)] += d
		node, parent = parent, in.parent
	}
	t.sum += d
}

// sameKey says whether two rows have the same rank key.
func sameKey(x, y []uint64) bool {
	for c := range len(x) - 1 {
		if x[c] != y[c] {
			return false
		}
	}
	return true
}

// insert puts a standing into t, where it must not be.
func (f *forest) insert(t *tree, words []uint64, ref uint32, id string) {
	if t.root == 0 {
		t.root, t.level, t.sum = f.newLeaf(), 0, 0
	}
	p, _ := f.find(t, bound{words, id})
	f.insertAt(t, p, words, ref)
}

func (f *forest) insertAt(t *tree, p place, words []uint64, ref uint32) {
	// What the new standing changes about heads: it is one unless the standing
	// before it has its key; if so, and the one behind has its key, that was one.
	isHead := true
	if before, ok := f.prev(p); ok {
		isHead = !sameKey(f.row(f.leafWords.at(before.leaf), before.i), words)
	}
	takesHead := false
	if isHead {
		if behind, ok := f.settle(p); ok {
			takesHead = sameKey(f.row(f.leafWords.at(behind.leaf), behind.i), words)
		}
	}

	lf := f.leaves.get(p.leaf)
	if lf.n == fan {
		p = f.makeRoom(t, p)
		lf = f.leaves.get(p.leaf)
	}
	n := int(lf.n)
	rows := f.leafWords.at(p.leaf)
	copy(rows[(p.i+1)*f.words:(n+1)*f.words], rows[p.i*f.words:n*f.words])
	copy(f.row(rows, p.i), words)
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
	f.users.setField(ref, t.field, p.leaf)
	if takesHead {
		behind, _ := f.settle(place{p.leaf, p.i + 1})
		f.leaves.get(behind.leaf).heads &^= 1 << behind.i
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
	prev := f.leaves.get(p.leaf).prev
	if prev == 0 {
		return place{}, false
	}
	return place{prev, int(f.leaves.get(prev).n) - 1}, true
}

// settle returns the standing at p, which is in the next leaf if p is a leaf's end.
func (f *forest) settle(p place) (place, bool) {
	lf := f.leaves.get(p.leaf)
	if p.i < int(lf.n) {
		return p, true
	}
	return place{lf.next, 0}, lf.next != 0
}

// remove takes a user's standing out of t and returns its leaf to be none.
func (f *forest) remove(t *tree, ref uint32) {
	p := place{leaf: f.users.field(ref, t.field)}
	lf := f.leaves.get(p.leaf)
	p.i = lf.index(ref)
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
			if next := f.leaves.get(behind.leaf); next.heads&1 == 0 {
				next.heads |= 1
				f.add(t, behind.leaf, 1)
			}
		}
	}
	n := int(lf.n)
	rows := f.leafWords.at(p.leaf)
	copy(rows[p.i*f.words:], rows[(p.i+1)*f.words:n*f.words])
	copy(lf.refs[p.i:], lf.refs[p.i+1:n])
	low := lf.heads & (1<<p.i - 1)
	lf.heads = low | lf.heads>>1&^(1<<p.i-1)
	lf.n--
	f.add(t, p.leaf, d)
	f.users.setField(ref, t.field, 0)
	if p.i == 0 && lf.n > 0 {
		f.fixFirst(p.leaf)
	}
	if lf.n < thin {
		f.thinLeaf(t, p.leaf)
	}
}

// fixFirst tells the nodes above a leaf of its new first entry.
func (f *forest) fixFirst(leaf uint32) {
	lf := f.leaves.get(leaf)
	row := f.row(f.leafWords.at(leaf), 0)
	for node, parent := leaf, lf.parent; parent != 0; {
		in := f.inners.get(parent)
		k := in.childAt(node)
		in.refs[k] = lf.refs[0]
		copy(f.row(f.innerWords.at(parent), k), row)
		if k > 0 {
			return
		}
		node, parent = parent, in.parent
	}
}
