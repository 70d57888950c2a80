package memory

import "hash/maphash"

// dict maps the hash of a user's id to the user's record and leaf in the overall ladder.
//
// dict is a hash table with linear probing. Its cells are sorted by hash, so a search ends at the
// first greater hash. The dict grows gradually: each insertion moves a few cells, in order, from the
// table old to the larger table cur. Until all cells are moved, cur has the hashes below frontier,
// and old has all other hashes.
type dict struct {
	seed     maphash.Seed
	cur      cells
	old      cells // of size 0 unless the dict is growing
	frontier uint64
	cursor   int // next cell of old to move
	count    int // number of users
}

type cell struct {
	hash, ref uint32 // ref is the location of the user's record, or 0 in an empty cell
	leaf      uint32 // leaf in the overall ladder, or 0
}

// cells is an array of cells in chunks. A chunk is allocated when its first cell is written.
type cells struct {
	chunks [][]cell
	size   uint64
	alloc  *allocator
}

const (
	cellShift = 14
	cellChunk = 1 << cellShift
	// A table of n cells begins to grow when more than maxLoadNum/maxLoadDen of its cells are taken.
	// About n/moveCells insertions move all cells. They need less space than the n/4 new cells.
	maxLoadNum, maxLoadDen = 7, 8
	growthNum, growthDen   = 5, 4
	moveCells              = 16
	minCells               = 16
)

func newDict(alloc *allocator) dict {
	return dict{seed: maphash.MakeSeed(), cur: cells{size: minCells, alloc: alloc}}
}

// home returns the position that the hash selects. Linear probing starts there.
func (c *cells) home(hash uint32) int { return int(uint64(hash) * c.size >> 32) }

var emptyCell cell

// get returns the cell at i. If the cell is not allocated, get returns emptyCell, which must not be
// modified.
func (c *cells) get(i int) *cell {
	if chunk := i >> cellShift; chunk < len(c.chunks) {
		if cells := c.chunks[chunk]; i&(cellChunk-1) < len(cells) {
			return &cells[i&(cellChunk-1)]
		}
	}
	return &emptyCell
}

func (c *cells) set(i int, value cell) {
	chunk, offset := i>>cellShift, i&(cellChunk-1)
	for chunk >= len(c.chunks) {
		c.chunks = append(c.chunks, nil)
	}
	if offset >= len(c.chunks[chunk]) {
		c.chunks[chunk] = grown(c.alloc, c.chunks[chunk], chunk == 0, offset+1, cellChunk)
	}
	c.chunks[chunk][offset] = value
}

func (c *cells) insert(carried cell) {
	i := c.home(carried.hash)
	for stored := c.get(i); stored.ref != 0 && stored.hash <= carried.hash; stored = c.get(i) {
		i++
	}
	for carried.ref != 0 {
		stored := *c.get(i)
		c.set(i, carried)
		carried = stored
		i++
	}
}

// remove removes the cell at i. Cells after it move back towards their home positions.
func (c *cells) remove(i int) {
	for {
		right := c.get(i + 1)
		if right.ref == 0 || c.home(right.hash) == i+1 {
			c.set(i, cell{})
			return
		}
		c.set(i, *right)
		i++
	}
}

func (d *dict) hash(id string) uint32 { return uint32(maphash.String(d.seed, id) >> 32) }

func (d *dict) part(hash uint32) *cells {
	if d.old.size != 0 && uint64(hash) >= d.frontier {
		return &d.old
	}
	return &d.cur
}

// firstCell returns the part (cur or old) and the position of the first cell that is empty or has
// at least this hash.
func (d *dict) firstCell(hash uint32) (*cells, int) {
	c := d.part(hash)
	i := c.home(hash)
	for stored := c.get(i); stored.ref != 0 && stored.hash < hash; stored = c.get(i) {
		i++
	}
	return c, i
}

// seek returns the position of a user's cell, which must exist.
func (d *dict) seek(hash, ref uint32) (*cells, int) {
	c, i := d.firstCell(hash)
	for c.get(i).ref != ref {
		i++
	}
	return c, i
}

func (d *dict) setLeaf(hash, ref, leaf uint32) {
	c, i := d.seek(hash, ref)
	c.get(i).leaf = leaf
}

func (d *dict) add(hash, ref uint32) {
	if d.old.size == 0 && uint64(d.count+1)*maxLoadDen > d.cur.size*maxLoadNum {
		d.old, d.cur = d.cur, cells{size: d.cur.size*growthNum/growthDen + 1, alloc: d.cur.alloc}
		d.frontier, d.cursor = 0, 0
	}
	if d.old.size != 0 {
		d.move()
	}
	d.part(hash).insert(cell{hash: hash, ref: ref})
	d.count++
}

// move moves at least moveCells cells of old to cur, and stops at an empty cell. All cells to the
// right of an empty cell have their home positions to its right. So exactly the moved hashes are
// below frontier.
func (d *dict) move() {
	for n := 0; ; n++ {
		stored := d.old.get(d.cursor)
		if stored.ref != 0 {
			d.cur.insert(*stored)
		} else if d.cursor >= int(d.old.size) {
			d.old, d.frontier = cells{}, 0
			return
		} else if n >= moveCells {
			break
		}
		d.cursor++
	}
	d.frontier = (uint64(d.cursor)<<32 + d.old.size - 1) / d.old.size
	for chunk := d.cursor>>cellShift - 1; chunk >= 0 && d.old.chunks[chunk] != nil; chunk-- {
		d.old.chunks[chunk] = nil
	}
}

func (d *dict) remove(hash, ref uint32) {
	c, i := d.seek(hash, ref)
	c.remove(i)
	d.count--
}
