package memory

// This file splits, joins and frees the nodes of trees.

func (f *forest) newLeaf() uint32 {
	leaf := f.leaves.take()
	if words := f.leafWords.take(); words != leaf {
		panic("memory: leaves and their words are out of step")
	}
	return leaf
}

func (f *forest) newInner(level uint32) uint32 {
	node := f.inners.take()
	if words := f.innerWords.take(); words != node {
		panic("memory: inner nodes and their words are out of step")
	}
	f.inners.get(node).level = level
	return node
}

// freeLeaf frees a leaf and takes it out of the chain of leaves.
func (f *forest) freeLeaf(leaf uint32) {
	lf := f.leaves.get(leaf)
	if lf.prev != 0 {
		f.leaves.get(lf.prev).next = lf.next
	}
	if lf.next != 0 {
		f.leaves.get(lf.next).prev = lf.prev
	}
	f.leaves.release(leaf)
	f.leafWords.release(leaf)
}

func (f *forest) freeInner(node uint32) {
	f.inners.release(node)
	f.innerWords.release(node)
}

// makeRoom makes room in the full leaf of p and returns where p is then.
func (f *forest) makeRoom(t *tree, p place) place {
	lf := f.leaves.get(p.leaf)
	switch {
	case lf.next == 0 && p.i == fan:
		return f.splitLeaf(t, p, fan-endSplit)
	case lf.prev == 0 && p.i == 0:
		return f.splitLeaf(t, p, endSplit)
	case lf.parent == 0:
		return f.splitLeaf(t, p, fan/2)
	}
	in := f.inners.get(lf.parent)
	k := in.childAt(p.leaf)
	if k+1 < int(in.n) {
		right := in.child[k+1]
		if n := int(f.leaves.get(right).n); n <= roomy {
			keep := fan - (fan-n+1)/2
			f.passRight(t, p.leaf, right, keep)
			in.move(k, k+1, f.leaves.get(right).within(fan-keep))
			f.fixFirst(right)
			if p.i > keep {
				return place{right, p.i - keep}
			}
			return p
		}
	}
	if k > 0 {
		left := in.child[k-1]
		if n := int(f.leaves.get(left).n); n <= roomy {
			pass := (fan - n + 1) / 2
			sum := lf.within(pass)
			f.passLeft(t, p.leaf, left, pass)
			in.move(k, k-1, sum)
			f.fixFirst(p.leaf)
			if p.i <= pass {
				return place{left, n + p.i}
			}
			return place{p.leaf, p.i - pass}
		}
	}
	return f.splitLeaf(t, p, fan/2)
}

// move notes that entries of a sum went from one child to another.
func (in *inner) move(from, to int, sum tally) {
	in.sums[from] -= sum
	in.sums[to] += sum
}

// passRight moves the entries of a leaf from keep on to the front of the next.
func (f *forest) passRight(t *tree, from, to uint32, keep int) {
	src, dst := f.leaves.get(from), f.leaves.get(to)
	pass, n := int(src.n)-keep, int(dst.n)
	srcRows, dstRows := f.leafWords.at(from), f.leafWords.at(to)
	copy(dstRows[pass*f.words:], dstRows[:n*f.words])
	copy(dstRows, srcRows[keep*f.words:int(src.n)*f.words])
	copy(dst.refs[pass:], dst.refs[:n])
	copy(dst.refs[:], src.refs[keep:src.n])
	dst.heads = dst.heads<<pass | src.heads>>keep
	src.heads &= 1<<keep - 1
	src.n, dst.n = uint32(keep), uint32(n+pass)
	for _, ref := range dst.refs[:pass] {
		f.users.setField(ref, t.field, to)
	}
}

// passLeft moves the first entries of a leaf to the end of the one before.
func (f *forest) passLeft(t *tree, from, to uint32, pass int) {
	src, dst := f.leaves.get(from), f.leaves.get(to)
	n, have := int(dst.n), int(src.n)
	srcRows, dstRows := f.leafWords.at(from), f.leafWords.at(to)
	copy(dstRows[n*f.words:], srcRows[:pass*f.words])
	copy(srcRows, srcRows[pass*f.words:have*f.words])
	copy(dst.refs[n:], src.refs[:pass])
	copy(src.refs[:], src.refs[pass:have])
	dst.heads |= src.heads & (1<<pass - 1) << n
	src.heads >>= pass
	src.n, dst.n = uint32(have-pass), uint32(n+pass)
	for _, ref := range dst.refs[n : n+pass] {
		f.users.setField(ref, t.field, to)
	}
}

// splitLeaf splits the full leaf of p, which keeps its first keep entries.
func (f *forest) splitLeaf(t *tree, p place, keep int) place {
	right := f.newLeaf()
	lf, r := f.leaves.get(p.leaf), f.leaves.get(right)
	r.prev, r.next = p.leaf, lf.next
	if lf.next != 0 {
		f.leaves.get(lf.next).prev = right
	}
	lf.next = right
	f.passRight(t, p.leaf, right, keep)
	f.addSibling(t, 0, p.leaf, right, r.within(int(r.n)))
	if p.i > keep {
		return place{right, p.i - keep}
	}
	return p
}

func (f *forest) parent(level, node uint32) *uint32 {
	if level == 0 {
		return &f.leaves.get(node).parent
	}
	return &f.inners.get(node).parent
}

// first returns the row and user of a node's first entry.
func (f *forest) first(level, node uint32) ([]uint64, uint32) {
	if level == 0 {
		return f.row(f.leafWords.at(node), 0), f.leaves.get(node).refs[0]
	}
	return f.row(f.innerWords.at(node), 0), f.inners.get(node).refs[0]
}

// setChild makes node, with a sum, child k of a parent.
func (f *forest) setChild(parent uint32, k int, level, node uint32, sum tally) {
	in := f.inners.get(parent)
	row, ref := f.first(level, node)
	in.child[k], in.refs[k], in.sums[k] = node, ref, sum
	copy(f.row(f.innerWords.at(parent), k), row)
	*f.parent(level, node) = parent
}

// addSibling puts a new node, which took a sum from left, behind left in left's parent.
func (f *forest) addSibling(t *tree, level, left, node uint32, sum tally) {
	parent := *f.parent(level, left)
	if parent == 0 {
		parent = f.newInner(level + 1)
		f.inners.get(parent).n = 1
		f.setChild(parent, 0, level, left, t.sum)
		t.root, t.level = parent, level+1
	}
	in := f.inners.get(parent)
	if in.n == fan {
		f.splitInner(t, parent, in.childAt(left))
		parent = *f.parent(level, left)
		in = f.inners.get(parent)
	}
	k := in.childAt(left)
	in.sums[k] -= sum
	f.shift(parent, k+1, 1)
	f.setChild(parent, k+1, level, node, sum)
}

// shift moves the children of a node from k on by 1 or -1.
func (f *forest) shift(node uint32, k, by int) {
	in, rows := f.inners.get(node), f.innerWords.at(node)
	n := int(in.n)
	copy(in.child[k+by:], in.child[k:n])
	copy(in.refs[k+by:], in.refs[k:n])
	copy(in.sums[k+by:], in.sums[k:n])
	copy(rows[(k+by)*f.words:], rows[k*f.words:n*f.words])
	in.n = uint32(n + by)
}

// splitInner splits a full inner node; k is the child that will get a sibling.
func (f *forest) splitInner(t *tree, node uint32, k int) {
	in := f.inners.get(node)
	keep := fan / 2
	switch k {
	case fan - 1:
		keep = fan - endSplit
	case 0:
		keep = endSplit
	}
	right := f.newInner(in.level)
	in = f.inners.get(node) // newInner may have moved it
	f.passChildren(node, right, keep)
	var sum tally
	r := f.inners.get(right)
	for _, s := range r.sums[:r.n] {
		sum += s
	}
	f.addSibling(t, in.level, node, right, sum)
}

// passChildren moves the children of a node from keep on to the end of another.
func (f *forest) passChildren(from, to uint32, keep int) {
	src, dst := f.inners.get(from), f.inners.get(to)
	n, have := int(dst.n), int(src.n)
	copy(dst.child[n:], src.child[keep:have])
	copy(dst.refs[n:], src.refs[keep:have])
	copy(dst.sums[n:], src.sums[keep:have])
	copy(f.innerWords.at(to)[n*f.words:], f.innerWords.at(from)[keep*f.words:have*f.words])
	src.n, dst.n = uint32(keep), uint32(n+have-keep)
	for _, c := range dst.child[n:dst.n] {
		*f.parent(src.level-1, c) = to
	}
}

// thinLeaf joins a leaf that has become thin with a neighbor, or frees it if it is empty.
func (f *forest) thinLeaf(t *tree, leaf uint32) {
	lf := f.leaves.get(leaf)
	if lf.parent == 0 {
		if lf.n == 0 {
			f.freeLeaf(leaf)
			t.root = 0
		}
		return
	}
	parent := lf.parent
	in := f.inners.get(parent)
	k := in.childAt(leaf)
	if lf.n == 0 {
		f.freeLeaf(leaf)
		f.removeChild(t, parent, k)
		return
	}
	if k+1 < int(in.n) && lf.n+f.leaves.get(in.child[k+1]).n <= joined {
		f.joinLeaves(t, parent, k)
	} else if k > 0 && lf.n+f.leaves.get(in.child[k-1]).n <= joined {
		f.joinLeaves(t, parent, k-1)
	}
}

// joinLeaves joins children k and k+1 of a node.
func (f *forest) joinLeaves(t *tree, parent uint32, k int) {
	in := f.inners.get(parent)
	left, right := in.child[k], in.child[k+1]
	f.passLeft(t, right, left, int(f.leaves.get(right).n))
	in.sums[k] += in.sums[k+1]
	f.freeLeaf(right)
	f.removeChild(t, parent, k+1)
}

// removeChild takes a freed child out of an inner node, and joins the node with
// a neighbor if it has become thin.
func (f *forest) removeChild(t *tree, node uint32, k int) {
	f.shift(node, k+1, -1)
	in := f.inners.get(node)
	parent := in.parent
	if parent == 0 {
		f.lowerRoot(t)
		return
	}
	up := f.inners.get(parent)
	at := up.childAt(node)
	if in.n == 0 {
		f.freeInner(node)
		f.removeChild(t, parent, at)
		return
	}
	if k == 0 {
		f.fixChildFirst(node)
	}
	if in.n >= thin {
		return
	}
	if at+1 < int(up.n) && in.n+f.inners.get(up.child[at+1]).n <= joined {
		f.joinInners(t, parent, at)
	} else if at > 0 && in.n+f.inners.get(up.child[at-1]).n <= joined {
		f.joinInners(t, parent, at-1)
	}
}

// lowerRoot drops the root while it has one child or none.
func (f *forest) lowerRoot(t *tree) {
	for t.level > 0 && f.inners.get(t.root).n <= 1 {
		node := t.root
		t.root, t.level = f.inners.get(node).child[0], t.level-1
		if f.inners.get(node).n == 0 {
			t.root, t.level = 0, 0
		} else {
			*f.parent(t.level, t.root) = 0
		}
		f.freeInner(node)
	}
}

// fixChildFirst tells the nodes above an inner node of its new first entry.
func (f *forest) fixChildFirst(node uint32) {
	row, ref := f.first(1, node)
	for parent := f.inners.get(node).parent; parent != 0; {
		in := f.inners.get(parent)
		k := in.childAt(node)
		in.refs[k] = ref
		copy(f.row(f.innerWords.at(parent), k), row)
		if k > 0 {
			return
		}
		node, parent = parent, in.parent
	}
}

// joinInners joins children k and k+1, inner nodes, of a node.
func (f *forest) joinInners(t *tree, parent uint32, k int) {
	in := f.inners.get(parent)
	left, right := in.child[k], in.child[k+1]
	f.passChildren(right, left, 0)
	in.sums[k] += in.sums[k+1]
	f.freeInner(right)
	f.removeChild(t, parent, k+1)
}
