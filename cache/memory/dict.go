package memory

import "hash/maphash"

// dict leads from the hash of a user's id to the user's record, and to the leaf
// in which the user stands overall. Both can then be looked into at once.
// Different users may have one hash: the ids are in the records.
//
// It is a hash table by linear probing whose cells are in the order of their
// hashes, so that a search ends at the first greater hash, and so that the
// table grows by moving its cells, from the left on, into a larger one: a few
// with each insertion, while the part already moved and the part to come both
// answer, and the chunks behind are let go. No insertion waits for the whole
// table, and there are never two whole tables.
type dict struct {
	seed maphash.Seed
	cur  cells
	// While the table grows, hashes from frontier on are still in old.
	old      cells
	frontier uint64
	cursor   int // the cell of old to move next
	count    int
}

// cell is empty if its ref is 0.
type cell struct {
	hash, ref uint32
	leaf      uint32 // 0 if the user stands nowhere
}

// cells is an array that is as long as it was written to; what lies beyond is empty.
type cells struct {
	chunks [][]cell
	size   uint64 // home positions
	alloc  *allocator
}

const (
	cellShift = 14
	cellChunk = 1 << cellShift
	// A table grows by growth when more than maxLoad of it is taken. Each
	// insertion meanwhile moves moveCells cells: the table is moved before the
	// larger one is full, since growth/moveCells < growth-1 by far.
	maxLoadNum, maxLoadDen = 7, 8
	growthNum, growthDen   = 5, 4
	moveCells              = 16
	minCells               = 16
)

func newDict(alloc *allocator) dict {
	return dict{seed: maphash.MakeSeed(), cur: cells{size: minCells, alloc: alloc}}
}

func (c *cells) home(hash uint32) int { return int(uint64(hash) * c.size >> 32) }

var emptyCell cell

// get returns the cell at i, to be read.
func (c *cells) get(i int) *cell {
	if chunk := i >> cellShift; chunk < len(c.chunks) {
		if cells := c.chunks[chunk]; i&(cellChunk-1) < len(cells) {
			return &cells[i&(cellChunk-1)]
		}
	}
	return &emptyCell
}

func (c *cells) set(i int, to cell) {
	chunk, within := i>>cellShift, i&(cellChunk-1)
	for chunk >= len(c.chunks) {
		c.chunks = append(c.chunks, nil)
	}
	if within >= len(c.chunks[chunk]) {
		c.chunks[chunk] = grown(c.alloc, c.chunks[chunk], chunk == 0, within+1, cellChunk)
	}
	c.chunks[chunk][within] = to
}

// insert puts a cell in its place and moves those of greater hashes on.
func (c *cells) insert(in cell) {
	i := c.home(in.hash)
	for have := c.get(i); have.ref != 0 && have.hash <= in.hash; have = c.get(i) {
		i++
	}
	for in.ref != 0 {
		have := *c.get(i)
		c.set(i, in)
		in = have
		i++
	}
}

// remove takes the cell at i out and moves those behind it back towards their homes.
func (c *cells) remove(i int) {
	for {
		next := c.get(i + 1)
		if next.ref == 0 || c.home(next.hash) == i+1 {
			c.set(i, cell{})
			return
		}
		c.set(i, *next)
		i++
	}
}

func (d *dict) hash(id string) uint32 { return uint32(maphash.String(d.seed, id) >> 32) }

// part returns the cells that hold a hash.
func (d *dict) part(hash uint32) *cells {
	if d.old.size != 0 && uint64(hash) >= d.frontier {
		return &d.old
	}
	return &d.cur
}

// first returns the position of the first cell of a hash or, if there is none,
// of a greater one or an empty one.
func (d *dict) first(hash uint32) (*cells, int) {
	c := d.part(hash)
	i := c.home(hash)
	for have := c.get(i); have.ref != 0 && have.hash < hash; have = c.get(i) {
		i++
	}
	return c, i
}

// seek returns the position of the cell of a user, who must be there.
func (d *dict) seek(hash, ref uint32) (*cells, int) {
	c, i := d.first(hash)
	for c.get(i).ref != ref {
		i++
	}
	return c, i
}

// lead notes the leaf in which a user stands overall.
func (d *dict) lead(hash, ref, leaf uint32) {
	c, i := d.seek(hash, ref)
	c.get(i).leaf = leaf
}

// add adds a user who stands nowhere.
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

// move moves some of old's cells, up to an empty one: no cell behind that was
// pushed there from before it, so a frontier can be drawn between them.
func (d *dict) move() {
	for moved := 0; ; moved++ {
		have := d.old.get(d.cursor)
		if have.ref != 0 {
			d.cur.insert(*have)
		} else if d.cursor >= int(d.old.size) { // nothing was pushed further
			d.old, d.frontier = cells{}, 0
			return
		} else if moved >= moveCells {
			break
		}
		d.cursor++
	}
	// The least hash whose home is at or behind the cursor.
	d.frontier = (uint64(d.cursor)<<32 + d.old.size - 1) / d.old.size
	for chunk := d.cursor>>cellShift - 1; chunk >= 0 && d.old.chunks[chunk] != nil; chunk-- {
		d.old.chunks[chunk] = nil
	}
}

// remove takes out a user, who must be there.
func (d *dict) remove(hash, ref uint32) {
	c, i := d.seek(hash, ref)
	c.remove(i)
	d.count--
}
