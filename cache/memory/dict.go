package memory

import "hash/maphash"

// dict leads from the hash of a user's id to the leaf in which the user stands
// overall, or else to the user's record. There may be several users of a hash:
// the ids are in the records, and the hashes in the leaves too.
//
// It is a hash table by linear probing whose
// cells are in the order of their hashes, so that a search ends at the first
// greater hash, and so that the table grows by moving its cells, from the left
// on, into a larger one: a few with each insertion, while the part already moved
// and the part to come both answer, and the chunks behind are let go. No
// insertion waits for the whole table, and there are never two whole tables.
type dict struct {
	seed maphash.Seed
	cur  cells
	// While the table grows, hashes from frontier on are still in old.
	old      cells
	frontier uint64
	cursor   int // the cell of old to move next
	count    int
}

// A target is a leaf, or a ref with notStanding set.
const notStanding = 1 << 31

// cells is an array of hash<<32 | target, 0 if empty, as long as it was written
// to; what lies beyond is empty.
type cells struct {
	chunks [][]uint64
	size   uint64 // home positions
	alloc  *allocator
}

const (
	cellShift = 15
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

func (c *cells) get(i int) uint64 {
	chunk := i >> cellShift
	if chunk >= len(c.chunks) {
		return 0
	}
	if cells := c.chunks[chunk]; i&(cellChunk-1) < len(cells) {
		return cells[i&(cellChunk-1)]
	}
	return 0
}

func (c *cells) set(i int, v uint64) {
	chunk, within := i>>cellShift, i&(cellChunk-1)
	for chunk >= len(c.chunks) {
		c.chunks = append(c.chunks, nil)
	}
	if within >= len(c.chunks[chunk]) {
		c.chunks[chunk] = grown(c.alloc, c.chunks[chunk], chunk == 0, within+1, cellChunk)
	}
	c.chunks[chunk][within] = v
}

// insert puts a cell in its place and moves those of greater hashes on.
func (c *cells) insert(cell uint64) {
	i := c.home(uint32(cell >> 32))
	for {
		have := c.get(i)
		if have == 0 {
			c.set(i, cell)
			return
		}
		if have>>32 > cell>>32 {
			break
		}
		i++
	}
	for cell != 0 {
		have := c.get(i)
		c.set(i, cell)
		cell = have
		i++
	}
}

// remove takes the cell at i out and moves those behind it back towards their homes.
func (c *cells) remove(i int) {
	for {
		next := c.get(i + 1)
		if next == 0 || c.home(uint32(next>>32)) == i+1 {
			c.set(i, 0)
			return
		}
		c.set(i, next)
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

// first returns the first cell of a hash or, if there is none, of a greater one.
func (d *dict) first(hash uint32) (*cells, int) {
	c := d.part(hash)
	i := c.home(hash)
	for {
		if cell := c.get(i); cell == 0 || uint32(cell>>32) >= hash {
			return c, i
		}
		i++
	}
}

// seek returns the cell of a hash and target, which must be there.
func (d *dict) seek(hash, target uint32) (*cells, int) {
	c, i := d.first(hash)
	for c.get(i) != uint64(hash)<<32|uint64(target) {
		i++
	}
	return c, i
}

// has says whether a hash has a target.
func (d *dict) has(hash, target uint32) bool {
	for c, i := d.first(hash); ; i++ {
		switch cell := c.get(i); {
		case cell == uint64(hash)<<32|uint64(target):
			return true
		case cell == 0 || uint32(cell>>32) != hash:
			return false
		}
	}
}

// lead makes the cell of a hash and target lead to another one.
func (d *dict) lead(hash, from, to uint32) {
	c, i := d.seek(hash, from)
	c.set(i, uint64(hash)<<32|uint64(to))
}

// add adds a target to those of a hash.
func (d *dict) add(hash, target uint32) {
	if d.old.size == 0 && uint64(d.count+1)*maxLoadDen > d.cur.size*maxLoadNum {
		d.old, d.cur = d.cur, cells{size: d.cur.size*growthNum/growthDen + 1, alloc: d.cur.alloc}
		d.frontier, d.cursor = 0, 0
	}
	if d.old.size != 0 {
		d.move()
	}
	d.part(hash).insert(uint64(hash)<<32 | uint64(target))
	d.count++
}

// move moves some of old's cells, up to an empty one: no cell behind that was
// pushed there from before it, so a frontier can be drawn between them.
func (d *dict) move() {
	for moved := 0; ; moved++ {
		cell := d.old.get(d.cursor)
		if cell != 0 {
			d.cur.insert(cell)
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

// remove takes away a target of a hash, which must be there.
func (d *dict) remove(hash, target uint32) {
	c, i := d.seek(hash, target)
	c.remove(i)
	d.count--
}
