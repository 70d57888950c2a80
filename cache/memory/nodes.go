package memory

func (f *forest) newLeaf() uint32 { return f.leaves.take() }

func (f *forest) newInner(level uint32) uint32 {
	node := f.inners.take()
	f.inner(node).level = level
	return node
}

func (f *forest) freeLeaf(t *tree, leaf uint32) {
	lf := f.leaf(leaf)
	if t.last == leaf {
		t.last = lf.prev
	}
	if lf.prev != 0 {
		f.leaf(lf.prev).next = lf.next
	}
	if lf.next != 0 {
		f.leaf(lf.next).prev = lf.prev
	}
	f.leaves.release(leaf)
}

func (f *forest) freeInner(node uint32) { f.inners.release(node) }

// makeRoom makes room in the full leaf of p, and returns p's new place. At an end of the tree, it
// splits the leaf. Elsewhere, it splits the leaf only if no sibling has room.
func (f *forest) makeRoom(t *tree, p place) place {
	lf := f.leaf(p.leaf)
	switch {
	case lf.next == 0 && p.i == fan:
		return f.splitLeaf(t, p, fan-endSplit)
	case lf.prev == 0 && p.i == 0:
		return f.splitLeaf(t, p, endSplit)
	case lf.parent == 0:
		return f.splitLeaf(t, p, fan/2)
	}
	in := f.inner(lf.parent)
	k := in.childAt(p.leaf)
	if k+1 < int(in.n) {
		right := in.child[k+1]
		if n := int(f.leaf(right).n); n <= maxRoomy {
			keep := fan - (fan-n+1)/2
			f.passRight(t, p.leaf, right, keep)
			in.sums[k] -= f.leaf(right).countsBefore(fan - keep)
			f.fixFirst(right)
			if p.i > keep {
				return place{right, p.i - keep}
			}
			return p
		}
	}
	if k > 0 {
		left := in.child[k-1]
		if n := int(f.leaf(left).n); n <= maxRoomy {
			count := (fan - n + 1) / 2
			in.sums[k-1] += lf.countsBefore(count)
			f.passLeft(t, p.leaf, left, count)
			f.fixFirst(p.leaf)
			if p.i <= count {
				return place{left, n + p.i}
			}
			return place{p.leaf, p.i - count}
		}
	}
	return f.splitLeaf(t, p, fan/2)
}

// passRight moves entries[keep:] to the next leaf.
func (f *forest) passRight(t *tree, from, to uint32, keep int) {
	src, dst := f.leaf(from), f.leaf(to)
	count, n := int(src.n)-keep, int(dst.n)
	srcRows, dstRows := f.leafRows(from), f.leafRows(to)
	dstRows.copy(count, dstRows, 0, n)
	dstRows.copy(0, srcRows, keep, count)
	copy(dst.refs[count:], dst.refs[:n])
	copy(dst.refs[:], src.refs[keep:src.n])
	dst.heads = dst.heads<<count | src.heads>>keep
	src.heads &= 1<<keep - 1
	src.n, dst.n = uint32(keep), uint32(n+count)
	for _, ref := range dst.refs[:count] {
		f.setLeaf(t, ref, to)
	}
}

// passLeft moves entries[:count] to the previous leaf.
func (f *forest) passLeft(t *tree, from, to uint32, count int) {
	src, dst := f.leaf(from), f.leaf(to)
	n, srcN := int(dst.n), int(src.n)
	srcRows, dstRows := f.leafRows(from), f.leafRows(to)
	dstRows.copy(n, srcRows, 0, count)
	srcRows.copy(0, srcRows, count, srcN-count)
	copy(dst.refs[n:], src.refs[:count])
	copy(src.refs[:], src.refs[count:srcN])
	dst.heads |= src.heads & (1<<count - 1) << n
	src.heads >>= count
	src.n, dst.n = uint32(srcN-count), uint32(n+count)
	for _, ref := range dst.refs[n : n+count] {
		f.setLeaf(t, ref, to)
	}
}

// splitLeaf moves entries[keep:] of p's leaf to a new leaf, and returns p's new place.
func (f *forest) splitLeaf(t *tree, p place, keep int) place {
	right := f.newLeaf()
	lf, r := f.leaf(p.leaf), f.leaf(right)
	r.prev, r.next = p.leaf, lf.next
	if lf.next != 0 {
		f.leaf(lf.next).prev = right
	}
	lf.next = right
	if t.last == p.leaf {
		t.last = right
	}
	f.passRight(t, p.leaf, right, keep)
	f.addSibling(t, 0, p.leaf, right, r.countsBefore(int(r.n)))
	if p.i > keep {
		return place{right, p.i - keep}
	}
	return p
}

func (f *forest) parent(level, node uint32) *uint32 {
	if level == 0 {
		return &f.leaf(node).parent
	}
	return &f.inner(node).parent
}

func (f *forest) firstEntry(level, node uint32) (rows, uint32) {
	if level == 0 {
		return f.leafRows(node), f.leaf(node).refs[0]
	}
	return f.innerRows(node), f.inner(node).refs[0]
}

// setChild makes node the child k of parent. It does not set the sums.
func (f *forest) setChild(parent uint32, k int, level, node uint32) {
	in := f.inner(parent)
	rows, ref := f.firstEntry(level, node)
	in.child[k], in.refs[k] = node, ref
	f.innerRows(parent).copy(k, rows, 0, 1)
	*f.parent(level, node) = parent
}

// addSibling inserts node after left. sum has the counts that moved from left to node.
func (f *forest) addSibling(t *tree, level, left, node uint32, sum counts) {
	parent := *f.parent(level, left)
	if parent == 0 {
		parent = f.newInner(level + 1)
		f.inner(parent).n, f.inner(parent).sums[0] = 1, t.sum
		f.setChild(parent, 0, level, left)
		t.root, t.level = parent, level+1
	}
	in := f.inner(parent)
	if in.n == fan {
		f.splitInner(t, parent, in.childAt(left))
		parent = *f.parent(level, left)
		in = f.inner(parent)
	}
	k := in.childAt(left)
	f.shift(parent, k+1, 1)
	in.sums[k+1] = in.sums[k]
	in.sums[k] -= sum
	f.setChild(parent, k+1, level, node)
}

// shift moves child k and all later children: right if step is 1, left if step is -1.
func (f *forest) shift(node uint32, k, step int) {
	in, rows := f.inner(node), f.innerRows(node)
	n := int(in.n)
	copy(in.child[k+step:], in.child[k:n])
	copy(in.refs[k+step:], in.refs[k:n])
	copy(in.sums[k+step:], in.sums[k:n])
	rows.copy(k+step, rows, k, n-k)
	in.n = uint32(n + step)
}

func (f *forest) splitInner(t *tree, node uint32, k int) {
	in := f.inner(node)
	keep := fan / 2
	switch k {
	case fan - 1:
		keep = fan - endSplit
	case 0:
		keep = endSplit
	}
	right := f.newInner(in.level)
	in = f.inner(node) // newInner may have moved the node
	f.passChildren(node, right, keep)
	f.addSibling(t, in.level, node, right, f.inner(right).sum())
}

func (in *inner) sum() counts { return in.countsBefore(int(in.n)) }

// passChildren moves children[keep:] to the end of another node.
func (f *forest) passChildren(from, to uint32, keep int) {
	src, dst := f.inner(from), f.inner(to)
	n, srcN := int(dst.n), int(src.n)
	copy(dst.child[n:], src.child[keep:srcN])
	copy(dst.refs[n:], src.refs[keep:srcN])
	for k, s := range src.sums[keep:srcN] {
		dst.sums[n+k] = dst.sum() + s - src.countsBefore(keep)
	}
	f.innerRows(to).copy(n, f.innerRows(from), keep, srcN-keep)
	src.n, dst.n = uint32(keep), uint32(n+srcN-keep)
	for _, c := range dst.child[n:dst.n] {
		*f.parent(src.level-1, c) = to
	}
}

// joinOrFreeLeaf frees an empty leaf. It joins another leaf with a sibling if both together have at
// most maxJoined entries.
func (f *forest) joinOrFreeLeaf(t *tree, leaf uint32) {
	lf := f.leaf(leaf)
	if lf.parent == 0 {
		if lf.n == 0 {
			f.freeLeaf(t, leaf)
			t.root = 0
		}
		return
	}
	parent := lf.parent
	in := f.inner(parent)
	k := in.childAt(leaf)
	if lf.n == 0 {
		f.freeLeaf(t, leaf)
		f.removeChild(t, parent, k)
		return
	}
	if k+1 < int(in.n) && lf.n+f.leaf(in.child[k+1]).n <= maxJoined {
		f.joinLeaves(t, parent, k)
	} else if k > 0 && lf.n+f.leaf(in.child[k-1]).n <= maxJoined {
		f.joinLeaves(t, parent, k-1)
	}
}

func (f *forest) joinLeaves(t *tree, parent uint32, k int) {
	in := f.inner(parent)
	left, right := in.child[k], in.child[k+1]
	f.passLeft(t, right, left, int(f.leaf(right).n))
	in.sums[k] = in.sums[k+1]
	f.freeLeaf(t, right)
	f.removeChild(t, parent, k+1)
}

// removeChild removes the freed child k of node, and frees or joins node if needed.
func (f *forest) removeChild(t *tree, node uint32, k int) {
	f.shift(node, k+1, -1)
	in := f.inner(node)
	parent := in.parent
	if parent == 0 {
		f.lowerRoot(t)
		return
	}
	parentNode := f.inner(parent)
	position := parentNode.childAt(node)
	if in.n == 0 {
		f.freeInner(node)
		f.removeChild(t, parent, position)
		return
	}
	if k == 0 {
		f.fixChildFirst(node)
	}
	if in.n >= minFill {
		return
	}
	if position+1 < int(parentNode.n) && in.n+f.inner(parentNode.child[position+1]).n <= maxJoined {
		f.joinInners(t, parent, position)
	} else if position > 0 && in.n+f.inner(parentNode.child[position-1]).n <= maxJoined {
		f.joinInners(t, parent, position-1)
	}
}

func (f *forest) lowerRoot(t *tree) {
	for t.level > 0 && f.inner(t.root).n <= 1 {
		node := t.root
		t.root, t.level = f.inner(node).child[0], t.level-1
		if f.inner(node).n == 0 {
			t.root, t.level = 0, 0
		} else {
			*f.parent(t.level, t.root) = 0
		}
		f.freeInner(node)
	}
}

func (f *forest) fixChildFirst(node uint32) {
	rows, ref := f.firstEntry(1, node)
	for parent := f.inner(node).parent; parent != 0; {
		in := f.inner(parent)
		k := in.childAt(node)
		in.refs[k] = ref
		f.innerRows(parent).copy(k, rows, 0, 1)
		if k > 0 {
			return
		}
		node, parent = parent, in.parent
	}
}

func (f *forest) joinInners(t *tree, parent uint32, k int) {
	in := f.inner(parent)
	left, right := in.child[k], in.child[k+1]
	f.passChildren(right, left, 0)
	in.sums[k] = in.sums[k+1]
	f.freeInner(right)
	f.removeChild(t, parent, k+1)
}
