package memory

import (
	"fmt"
	"math/bits"
	"slices"
)

func (s *slab[T]) used() int { return int(s.last) - len(s.free) }

// check returns an error for the first violated invariant.
func (t *table) check() error {
	seenLeaves, seenInners := map[uint32]bool{}, map[uint32]bool{}
	for n := range t.ladders {
		if slices.Contains(t.spare, uint32(n)) {
			continue
		}
		if err := t.checkTree(uint32(n), seenLeaves, seenInners); err != nil {
			return fmt.Errorf("ladder %d: %w", n, err)
		}
	}
	if n := t.forest.leaves.used(); n != len(seenLeaves) {
		return fmt.Errorf("%d leaves are allocated and %d are in trees, want equal numbers", n, len(seenLeaves))
	}
	if n := t.forest.inners.used(); n != len(seenInners) {
		return fmt.Errorf("%d inner nodes are allocated and %d are in trees, want equal numbers", n, len(seenInners))
	}
	if n := t.ladders[0].sum.standings(); n != int64(t.rankedUsers) {
		return fmt.Errorf("table.rankedUsers is %d, but the overall ladder has %d standings", t.rankedUsers, n)
	}
	if t.users.count != t.dict.count {
		return fmt.Errorf("%d users have records and %d are in the dict, want equal numbers", t.users.count, t.dict.count)
	}
	return t.checkDict()
}

func row(r rows, i int) []uint64 {
	var words []uint64
	for c := range r.columns() {
		words = append(words, r.column(c)[i])
	}
	return words
}

func (t *table) checkTree(n uint32, seenLeaves, seenInners map[uint32]bool) error {
	tr, f := &t.ladders[n], &t.forest
	if tr.root == 0 {
		if tr.sum != 0 {
			return fmt.Errorf("the tree is empty and has sum %x", uint64(tr.sum))
		}
		if n != 0 {
			return fmt.Errorf("the ladder of an empty division still exists")
		}
		return nil
	}
	var lastLeaf uint32
	var lastRow []uint64
	var lastID string
	var walk func(level, node, parent uint32) (counts, error)
	walk = func(level, node, parent uint32) (counts, error) {
		if level > 0 {
			in := f.inner(node)
			if seenInners[node] {
				return 0, fmt.Errorf("inner %d is reachable twice", node)
			}
			seenInners[node] = true
			least := uint32(1)
			if parent == 0 {
				least = 2
			}
			if in.level != level || in.parent != parent || in.n < least || in.n > fan {
				return 0, fmt.Errorf("inner %d has level %d, parent %d and %d children, want level %d, parent %d and %d to %d children", node, in.level, in.parent, in.n, level, parent, least, fan)
			}
			var sum counts
			for k, c := range in.child[:in.n] {
				rows, ref := f.firstEntry(level-1, c)
				if in.refs[k] != ref || !slices.Equal(row(f.innerRows(node), k), row(rows, 0)) {
					return 0, fmt.Errorf("inner %d: its copy of the first entry of child %d differs from the entry", node, k)
				}
				s, err := walk(level-1, c, node)
				if err != nil {
					return 0, err
				}
				sum += s
				if in.sums[k] != sum {
					return 0, fmt.Errorf("inner %d: sums[%d] is %x, want %x", node, k, uint64(in.sums[k]), uint64(sum))
				}
			}
			return sum, nil
		}
		lf := f.leaf(node)
		if seenLeaves[node] {
			return 0, fmt.Errorf("leaf %d is reachable twice", node)
		}
		seenLeaves[node] = true
		if lf.parent != parent || lf.n == 0 || lf.n > fan || lf.prev != lastLeaf {
			return 0, fmt.Errorf("leaf %d has parent %d, prev %d and %d entries, want parent %d, prev %d and 1 to %d entries", node, lf.parent, lf.prev, lf.n, parent, lastLeaf, fan)
		}
		if lastLeaf != 0 && f.leaf(lastLeaf).next != node {
			return 0, fmt.Errorf("leaf %d: next is %d, want %d", lastLeaf, f.leaf(lastLeaf).next, node)
		}
		lastLeaf = node
		if lf.heads>>lf.n != 0 && lf.n < fan {
			return 0, fmt.Errorf("leaf %d: a bit of heads is set beyond the last entry", node)
		}
		for i, ref := range lf.refs[:lf.n] {
			row, id := row(f.leafRows(node), i), string(f.users.id(ref))
			if lastRow != nil {
				if c := slices.Compare(lastRow, row); c > 0 || c == 0 && lastID >= id {
					return 0, fmt.Errorf("leaf %d: entry %d is out of order", node, i)
				}
			}
			if isHead := lastRow == nil || !slices.Equal(lastRow[:len(row)-1], row[:len(row)-1]); isHead != (lf.heads>>i&1 != 0) {
				return 0, fmt.Errorf("leaf %d: entry %d: head is %v, want %v: the first entry with each rank key is a head", node, i, !isHead, isHead)
			}
			if n != 0 && t.users.field(ref, tr.field) != node {
				return 0, fmt.Errorf("leaf %d: the record of entry %d's user names leaf %d instead of this leaf", node, i, t.users.field(ref, tr.field))
			}
			if n != 0 && t.users.field(ref, tr.field-4) != n {
				return 0, fmt.Errorf("leaf %d: the record of entry %d's user names ladder %d, want %d", node, i, t.users.field(ref, tr.field-4), n)
			}
			if stored, leaf := t.lookUp(t.dict.hash(id), id); stored != ref || n == 0 && leaf != node {
				return 0, fmt.Errorf("leaf %d: entry %d has the user record %d, but for this user's id the dict has the record %d and the leaf %d", node, i, ref, stored, leaf)
			}
			lastRow, lastID = row, id
		}
		return counts(lf.n)<<32 + counts(bits.OnesCount64(lf.heads)), nil
	}
	sum, err := walk(tr.level, tr.root, 0)
	if err != nil {
		return err
	}
	if sum != tr.sum {
		return fmt.Errorf("tree.sum is %x, but the leaves have %x", uint64(tr.sum), uint64(sum))
	}
	if tr.last != lastLeaf {
		return fmt.Errorf("tree.last is leaf %d, want %d", tr.last, lastLeaf)
	}
	if f.leaf(lastLeaf).next != 0 {
		return fmt.Errorf("the last leaf has a next leaf")
	}
	return nil
}

func (t *table) checkDict() error {
	d := &t.dict
	count, standing := 0, 0
	for _, part := range []struct {
		c     *cells
		first uint64
		limit uint64
	}{{&d.cur, 0, d.frontier}, {&d.old, d.frontier, 1 << 32}} {
		if d.old.size == 0 {
			part.limit = 1 << 32
		}
		if part.c.size == 0 {
			continue
		}
		last, empty := uint32(0), -1
		for i := range len(part.c.chunks) << cellShift {
			cell := part.c.get(i)
			if cell.ref == 0 {
				empty = i
				continue
			}
			if cell.hash < last {
				return fmt.Errorf("dict: cell %d is out of order", i)
			}
			last = cell.hash
			if uint64(last) < part.first {
				continue // counted in cur
			}
			if uint64(last) >= part.limit {
				return fmt.Errorf("dict: cell %d is in cur, but its hash is not below dict.frontier", i)
			}
			count++
			if cell.leaf != 0 {
				standing++
			}
			if home := part.c.home(last); home > i || home <= empty {
				return fmt.Errorf("dict: cell %d has home position %d, want %d to %d, because cell %d is empty", i, home, empty+1, i, empty)
			}
			if d.hash(string(t.users.id(cell.ref))) != last {
				return fmt.Errorf("dict: the hash of cell %d differs from the hash of its user's id", i)
			}
			if c, position := d.seek(last, cell.ref); c != part.c || position != i {
				return fmt.Errorf("dict: seek with the hash and the record of cell %d finds another cell", i)
			}
		}
	}
	if uint64(d.count)*20 > 19*d.cur.size && d.count > 100 {
		return fmt.Errorf("dict is too full: %d users in %d cells, with %d of %d old cells moved", d.count, d.cur.size, d.cursor, d.old.size)
	}
	if count != d.count || standing != t.rankedUsers {
		return fmt.Errorf("dict: its cells have %d users, %d of them in a ladder, but dict.count is %d and table.rankedUsers is %d", count, standing, d.count, t.rankedUsers)
	}
	return nil
}
