package memory

import "hash/maphash"

// dict maps the hash of a user's id to two locations: of the user's record, and of the
// user's leaf in the overall ladder. The leaf is the tree node that holds the user's
// standing. A cell holds both locations, so the processor can fetch record and leaf
// concurrently. The ids in the records distinguish users with equal hashes.
//
// dict is a hash table with linear probing whose cells are sorted by hash. This has two
// consequences. First, a search ends at the first greater hash. Second, the table can
// grow gradually: each insertion moves a few cells into a larger table, the least hashes
// first. Until all cells are moved, a look-up of a hash below the frontier uses the new table, and
// any other look-up uses the old table. Once all cells of a chunk of the old table are moved, the
// dict releases the chunk. So no insertion waits until all cells are moved, and the dict never
// holds two complete tables.
type dict struct {
	seed maphash.Seed
	cur  cells
	// While the table grows, cells with a hash of at least frontier are still in old, and the other
	// cells are in cur. Otherwise, old is empty and all cells are in cur.
	old      cells
	frontier uint64
	cursor   int // the next cell of old to move
	count    int // the number of users
}

// cell is empty if its ref is 0.
type cell struct {
	hash, ref uint32 // ref is the location of the user's record (see users)
	leaf      uint32 // 0 if the user is in no ladder
}

// cells is an array of cells in chunks. A chunk is allocated when its first cell is
// written. All cells that were not written are empty.
type cells struct {
	chunks [][]cell
	size   uint64 // the number of positions to which home maps hashes
	alloc  *allocator
}

const (
	cellShift = 14
	cellChunk = 1 << cellShift
	// A table of n cells grows by the factor growthNum/growthDen when more than
	// maxLoadNum/maxLoadDen of its cells are taken. While it grows, each insertion moves
	// about moveCells cells, so n/moveCells insertions move all of them. The larger table
	// has n/4 cells more, so it is not full before all cells are moved.
	maxLoadNum, maxLoadDen = 7, 8
	growthNum, growthDen   = 5, 4
	moveCells              = 16
	minCells               = 16
)

func newDict(alloc *allocator) dict {
	return dict{seed: maphash.MakeSeed(), cur: cells{size: minCells, alloc: alloc}}
}

// home returns the position at which a search for a hash begins.
func (c *cells) home(hash uint32) int { return int(uint64(hash) * c.size >> 32) }

var emptyCell cell

// get returns the cell at i. Only a cell that set wrote may be modified through the
// pointer.
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

// insert puts a cell into its place and moves the cells of greater hashes to the
// right.
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

// remove removes the cell at i and moves the cells after it back towards their
// home positions.
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

// part returns the part of the table, cur or old, in which a hash is looked up.
func (d *dict) part(hash uint32) *cells {
	if d.old.size != 0 && uint64(hash) >= d.frontier {
		return &d.old
	}
	return &d.cur
}

// firstCell returns the position of the first cell that has the hash, and the part of the
// table that holds it. If no cell has the hash, firstCell returns the position of the next
// cell with a greater hash, or of an empty cell.
func (d *dict) firstCell(hash uint32) (*cells, int) {
	c := d.part(hash)
	i := c.home(hash)
	for stored := c.get(i); stored.ref != 0 && stored.hash < hash; stored = c.get(i) {
		i++
	}
	return c, i
}

// seek returns the position of the cell of a user, who must be in the table.
func (d *dict) seek(hash, ref uint32) (*cells, int) {
	c, i := d.firstCell(hash)
	for c.get(i).ref != ref {
		i++
	}
	return c, i
}

// setLeaf sets the leaf of a user in the overall ladder.
func (d *dict) setLeaf(hash, ref, leaf uint32) {
	c, i := d.seek(hash, ref)
	c.get(i).leaf = leaf
}

// add adds a user who is in no ladder.
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

// move visits the next cells of old, and moves the cells of users to cur. It stops at the first
// empty cell after moveCells cells, or when all cells are moved. All cells to the right of an
// empty cell also have their home positions to its right. So the hashes of the moved cells are
// less than the frontier, and the hashes of the other cells are not.
func (d *dict) move() {
	for n := 0; ; n++ {
		stored := d.old.get(d.cursor)
		if stored.ref != 0 {
			d.cur.insert(*stored)
		} else if d.cursor >= int(d.old.size) { // all cells are moved
			d.old, d.frontier = cells{}, 0
			return
		} else if n >= moveCells {
			break
		}
		d.cursor++
	}
	// The frontier is the least hash whose home position is at or after the cursor.
	d.frontier = (uint64(d.cursor)<<32 + d.old.size - 1) / d.old.size
	for chunk := d.cursor>>cellShift - 1; chunk >= 0 && d.old.chunks[chunk] != nil; chunk-- {
		d.old.chunks[chunk] = nil
	}
}

// remove removes a user, who must be in the table.
func (d *dict) remove(hash, ref uint32) {
	c, i := d.seek(hash, ref)
	c.remove(i)
	d.count--
}
