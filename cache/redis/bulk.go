package redis

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	goredis "github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/open-leaderboard/leaderboard"
)

const (
	// pieceCost is about the number of members and fields that a transaction of a bulk load writes.
	// While a transaction runs, the server executes no other command.
	pieceCost = 256
	// bulkWorkers is the number of connections that a bulk load uses. It is small, because other
	// commands need connections of the same pool.
	bulkWorkers = 3
	// leafBytes equals LEAF_BYTES in lua/tree.lua.
	leafBytes = 6144
)

// bulkSizes bound the memory of bulk loads, in bytes. An entry without divisions counts as about
// 53 bytes plus the user id. So a run has about 1.9 million entries with ids of 16 bytes.
var bulkSizes = struct {
	held    int64 // the entries that all Rebuilds of a process hold in memory
	run     int64 // a run: entries that are sorted together
	least   int64 // a run, if the limit held is exceeded
	block   int   // a block: a part of a run, stored as one string
	strings int64 // the strings that wait in tree writers
}{256 << 20, 128 << 20, 4 << 20, 64 << 10, 32 << 20}

// treeSizes are the greatest sizes of a tree's leaves and groups (see lua/tree.lua), and the average
// number of users in a bucket. They equal BITS, GROUP and USERS in the scripts.
var treeSizes = struct{ bits, group, users int }{96, 256, 64}

// unpacked is too long for Redis's packed encoding. A sorted set or hash that has had this member
// stays unpacked. It equals UNPACKED in lua/edit.lua.
var unpacked = strings.Repeat("x", 65)

// bulk is a bulk load, which writes a Rebuild's entries. lua/bulk.lua states why it loses no update, and why
// it changes nothing after another Rebuild has overtaken it.
//
// bulk sorts the entries by sort key. If they exceed the memory of a run (see bulkSizes), bulk makes
// an external sort:
//
//  1. It sorts the entries of each run, and writes them to Redis in blocks. Meanwhile it reads the
//     entries of the next run.
//  2. It merges the runs, and frees each block after it has read the block.
//
// The merge returns all entries in order. So bulk writes all trees at once, with memory only for the
// last leaf of each tree. But the merge does not group users by bucket (see lua/base.lua). So bulk
// collects the merged users in chunks of the size of a run, and writes each bucket's users with one
// command.
type bulk struct {
	g      *generation
	name   string // the generation that the bulk load writes
	names  *ladderNames
	parts  []*portion
	bytes  int64           // the memory of the parts' held entries and chunks
	spill  *errgroup.Group // the goroutine that writes the latest run; nil before the first run
	cancel context.CancelFunc

	ctx     context.Context // of the jobs
	jobs    chan job
	waiting int64 // the memory of the strings that wait in tree writers
	chunks  int64 // the memory of the parts' chunks
}

// portion is the bulk load of one shard.
type portion struct {
	shard   int
	at      string  // the beginning of the names of the generation's keys
	held    *held   // the entries that are in no run
	runs    [][]int // for each run, the numbers of its blocks
	blocks  int     // the number of blocks of all runs
	chunk   *held   // entries from blocks that are not in their buckets yet
	users   int
	buckets int
	pieces  atomic.Int64
	ranked  int64               // standings in all ladders
	trees   map[int]*treeWriter // by the ladder's number
}

// command is a Redis command. Its cost is about the number of members and fields that it writes.
type command struct {
	cost int
	args []any
}

// job has commands for one shard, which must be executed in order.
type job struct {
	part     *portion
	commands []command
}

// newBulk also returns the context that release cancels. The caller must call release.
func newBulk(ctx context.Context, g *generation) (*bulk, context.Context) {
	suffix := "b"
	if g.copied {
		suffix = "c"
	}
	b := &bulk{g: g, name: g.name + suffix, names: newLadderNames()}
	ctx, b.cancel = context.WithCancel(ctx)
	for shard := range g.control {
		b.parts = append(b.parts, &portion{shard: shard, at: g.control[shard] + ":" + b.name + ":", held: newHeld(g.keyBytes, b.names), trees: map[int]*treeWriter{}})
	}
	return b, ctx
}

// release ends the bulk load, and subtracts its memory from Index.held.
func (b *bulk) release() {
	b.cancel()
	if b.spill != nil {
		_ = b.spill.Wait()
	}
	b.g.x.held.Add(-b.bytes)
}

func (b *bulk) addAll(ctx context.Context, entries iter.Seq2[leaderboard.Entry, error]) error {
	for e, err := range entries {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if e.Ranked() && len(e.Key) != b.g.keyBytes {
			return fmt.Errorf("entry of %q: rank key has %d bytes, want %d: %w", e.User, len(e.Key), b.g.keyBytes, leaderboard.ErrFormat)
		}
		p := b.parts[shardOf(e.User, len(b.parts))]
		if err := b.add(ctx, p, func() { p.held.add(&e) }); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// copyShard adds the records of a shard's live generation.
func (b *bulk) copyShard(ctx context.Context, shard int, live string) error {
	const step, steps = 8, 16 // buckets of a call, and calls of a round trip
	p, names, buckets := b.parts[shard], map[int]int{}, int64(0)
	for from := int64(0); from == 0 || from < buckets; {
		var calls []*call
		for i := range int64(steps) {
			if next := from + i*step; i == 0 || next < buckets {
				calls = append(calls, newCall(usersScript, b.g.control, shard, live, buckets, next, step))
			}
		}
		bounded, cancel := context.WithTimeout(ctx, b.g.stepTimeout())
		err := retry(bounded, func() error { return b.g.x.run(bounded, calls) })
		cancel()
		if err != nil {
			return err
		}
		for _, c := range calls {
			if c.status != statusOK {
				return errOvertaken
			}
			buckets = c.int()
			all := c.strings()
			for ; len(all) > 1; all = all[2:] {
				record, err := b.renumber(ctx, p, live, names, all[1])
				if err != nil {
					return fmt.Errorf("user %q: %w", all[0], err)
				}
				if err := b.add(ctx, p, func() { p.held.addSorted([]byte(all[0]), record) }); err != nil {
					return err
				}
			}
		}
		if err := fault(calls); err != nil {
			return err
		}
		from += int64(len(calls)) * step
	}
	return nil
}

// renumber replaces the numbers of ladders in a record. names maps the live generation's number of a
// ladder to the bulk load's number.
func (b *bulk) renumber(ctx context.Context, p *portion, live string, names map[int]int, text string) ([]byte, error) {
	record := []byte(text)
	fixed := 1
	if len(record) > 0 {
		fixed += int(record[0])
	}
	if ranked := fixed + b.g.keyBytes + 8; len(record) > fixed {
		fixed = ranked
	}
	if len(record) < fixed || (len(record)-fixed)%3 != 0 {
		return nil, fmt.Errorf("record %q: %w", text, leaderboard.ErrRankUnavailable)
	}
	for ladders := record[fixed:]; len(ladders) > 0; ladders = ladders[3:] {
		old := int(ladders[0])<<16 | int(ladders[1])<<8 | int(ladders[2])
		if _, ok := names[old]; !ok {
			// An Update may have added a ladder since the last readNames.
			if err := b.readNames(ctx, b.g.control[p.shard]+":"+live+":l", names); err != nil {
				return nil, err
			}
		}
		n, ok := names[old]
		if !ok {
			return nil, fmt.Errorf("ladder %d: %w", old, leaderboard.ErrRankUnavailable)
		}
		ladders[0], ladders[1], ladders[2] = byte(n>>16), byte(n>>8), byte(n)
	}
	return record, nil
}

// readNames adds the ladders of a live generation to names.
func (b *bulk) readNames(ctx context.Context, key string, names map[int]int) error {
	ctx, cancel := context.WithTimeout(ctx, b.g.stepTimeout())
	defer cancel()
	return retry(ctx, func() error {
		all, err := b.g.x.client().HGetAll(ctx, key).Result()
		if err != nil {
			return unavailable(nil, err)
		}
		for name, number := range all {
			old, err := strconv.Atoi(number)
			if err != nil {
				return fmt.Errorf("number of ladder %q: %w", name, err)
			}
			names[old] = b.names.number(name)
		}
		return nil
	})
}

// add calls hold, which adds one entry to p.held. If the held entries have become too large, add
// writes a run.
func (b *bulk) add(ctx context.Context, p *portion, hold func()) error {
	before := p.held.bytes
	hold()
	p.users++
	grown := p.held.bytes - before
	b.bytes += grown
	if all := b.g.x.held.Add(grown); b.bytes < bulkSizes.run && (all < bulkSizes.held || b.bytes < bulkSizes.least) {
		return nil
	}
	return b.writeRun(ctx)
}

// writeRun writes the held entries as a run, in the background. It first waits for the end of the
// previous run.
func (b *bulk) writeRun(ctx context.Context) error {
	if b.spill == nil {
		if err := b.begin(ctx); err != nil {
			return err
		}
	} else if err := b.spill.Wait(); err != nil {
		return err
	}
	full := make([]*held, len(b.parts))
	for i, p := range b.parts {
		full[i], p.held = p.held, newHeld(b.g.keyBytes, b.names)
	}
	bytes := b.bytes
	b.bytes = 0
	b.spill = &errgroup.Group{}
	b.spill.Go(func() error {
		defer b.g.x.held.Add(-bytes)
		return b.perform(ctx, func() error {
			for i, p := range b.parts {
				if err := b.writeBlocks(p, full[i]); err != nil {
					return err
				}
			}
			return nil
		})
	})
	return nil
}

func (b *bulk) writeBlocks(p *portion, h *held) error {
	h.sort()
	var run []int
	var block []byte
	for i, u := range h.users {
		user, record := h.read(u)
		block = appendRecord(block, user, record)
		if len(block) < bulkSizes.block && i < len(h.users)-1 {
			continue
		}
		// The set gets the block's number before the block exists, so free.lua finds every block.
		all := []command{{1, []any{"SADD", p.at + "x", p.blocks}}, {pieceCost / 2, []any{"SET", p.block(p.blocks), block}}}
		if err := b.emit(job{p, all}); err != nil {
			return err
		}
		run, block = append(run, p.blocks), nil
		p.blocks++
	}
	p.runs = append(p.runs, run)
	return nil
}

func (p *portion) block(n int) string { return fmt.Sprint(p.at, "x", n) }

// call runs bulkScript in all shards. If countPieces is nil, the script begins the bulk load. Otherwise,
// countPieces returns a shard's number of pieces, and the script ends the bulk load.
func (b *bulk) call(ctx context.Context, countPieces func(p *portion) int64) ([]*call, error) {
	calls := make([]*call, len(b.parts))
	for i, p := range b.parts {
		var n any = ""
		if countPieces != nil {
			n = countPieces(p)
		}
		calls[i] = newCall(bulkScript, b.g.control, i, b.g.name, b.name, p.buckets, n)
	}
	bounded, cancel := context.WithTimeout(ctx, b.g.stepTimeout())
	defer cancel()
	if err := retry(bounded, func() error { return b.g.x.run(bounded, calls) }); err != nil {
		return nil, err
	}
	for _, c := range calls {
		switch c.status {
		case statusOK:
		case statusGap:
			return nil, fmt.Errorf("shard %d lacks a piece: %w", c.shard, leaderboard.ErrRankUnavailable)
		default:
			return nil, errOvertaken
		}
	}
	return calls, nil
}

// begin begins the bulk load in all shards. If finish calls begin again, begin records the numbers of
// buckets.
func (b *bulk) begin(ctx context.Context) error {
	b.g.bulk = b.name
	_, err := b.call(ctx, nil)
	return err
}

// finish writes all entries, and makes the bulk load's generation the one that is being built. It
// then adds the updates that were made during the bulk load.
func (b *bulk) finish(ctx context.Context) error {
	if b.spill != nil {
		if err := b.spill.Wait(); err != nil {
			return err
		}
	}
	for _, p := range b.parts {
		p.buckets = countBuckets(p.users)
		p.held.sort()
	}
	if err := b.begin(ctx); err != nil {
		return err
	}
	var last []job
	for _, step := range []func() error{
		b.writeNames, // first, because free.lua finds a tree by its ladder's number
		func() (err error) { last, err = b.merge(ctx); return err },
		func() error {
			for _, j := range last {
				if err := b.emit(j); err != nil {
					return err
				}
			}
			return b.writeCounters()
		},
	} {
		if err := b.perform(ctx, step); err != nil {
			return err
		}
	}
	ended, err := b.call(ctx, func(p *portion) int64 { return p.pieces.Load() })
	if err != nil {
		return err
	}
	g := b.g
	g.aside, g.name = g.name, b.name
	for _, c := range ended {
		if err := g.applyAside(ctx, c.shard, int(c.int()), c.int()); err != nil {
			return err
		}
	}
	return nil
}

func (b *bulk) writeNames() error {
	var numbers []any
	for n, name := range b.names.names[1:] {
		numbers = append(numbers, name, n+1)
	}
	for _, p := range b.parts {
		if err := b.emit(job{p, setFields(p.at+"l", numbers)}); err != nil {
			return err
		}
	}
	return nil
}

// setFields returns commands that set fields of a hash. fields has names and values in turn.
func setFields(key string, fields []any) (all []command) {
	for part := range slices.Chunk(fields, 2*pieceCost) {
		all = append(all, command{len(part) / 2, append([]any{"HSET", key}, part...)})
	}
	return all
}

func (b *bulk) writeCounters() error {
	for _, p := range b.parts {
		all := []command{{2, []any{"HSET", p.at + "w", "users", p.users, "standings", p.ranked}}}
		if err := b.emit(job{p, all}); err != nil {
			return err
		}
	}
	return nil
}

// merge writes all entries in the order of their sort keys. The caller must emit the returned jobs
// after all other jobs are done.
func (b *bulk) merge(ctx context.Context) (last []job, err error) {
	var all []*cursor
	for _, p := range b.parts {
		if err := b.writeBuckets(p, p.held); err != nil {
			return nil, err
		}
		all = append(all, &cursor{b: b, part: p, held: p.held})
		for _, run := range p.runs {
			all = append(all, &cursor{b: b, part: p, blocks: run})
		}
		p.chunk = newHeld(b.g.keyBytes, b.names)
	}
	m := merged(all)
	for _, c := range all {
		if err := c.next(ctx); err != nil {
			return nil, err
		}
	}
	m.begin()
	for len(m) > 0 {
		c := m[0]
		if err := b.addEntry(c); err != nil {
			return nil, err
		}
		if err := c.next(ctx); err != nil {
			return nil, err
		}
		m.moveFirst()
	}
	if err := b.writeChunks(); err != nil {
		return nil, err
	}
	for _, t := range b.trees() {
		commands, err := t.finish()
		if err != nil {
			return nil, err
		}
		if len(commands) > 0 {
			last = append(last, job{t.part, commands})
		}
	}
	return last, nil
}

// addEntry adds a cursor's entry to the trees of the entry's ladders. If the entry is from a block,
// addEntry also adds the entry to the shard's chunk.
func (b *bulk) addEntry(c *cursor) error {
	p := c.part
	if c.held == nil {
		before := p.chunk.bytes
		p.chunk.addRecord(c.user, c.record)
		grown := p.chunk.bytes - before
		b.bytes, b.chunks = b.bytes+grown, b.chunks+grown
		b.g.x.held.Add(grown)
		if b.chunks >= bulkSizes.run {
			if err := b.writeChunks(); err != nil {
				return err
			}
		}
	}
	prefix, ladders := p.held.split(c.record)
	if prefix == nil {
		return nil
	}
	key := string(append(append(make([]byte, 0, len(prefix)+len(c.user)), prefix...), c.user...))
	if err := b.rank(p, 0, key); err != nil {
		return err
	}
	for ; len(ladders) > 0; ladders = ladders[3:] {
		if err := b.rank(p, int(ladders[0])<<16|int(ladders[1])<<8|int(ladders[2]), key); err != nil {
			return err
		}
	}
	return nil
}

func (b *bulk) writeChunks() error {
	for _, p := range b.parts {
		if err := b.writeBuckets(p, p.chunk); err != nil {
			return err
		}
		p.chunk = newHeld(b.g.keyBytes, b.names)
	}
	b.g.x.held.Add(-b.chunks)
	b.bytes, b.chunks = b.bytes-b.chunks, 0
	return nil
}

func (b *bulk) writeBuckets(p *portion, h *held) error {
	order, ends := h.byBucket(p.buckets)
	j, cost, from := job{part: p}, 0, 0
	for i, end := range ends {
		if end > from {
			args := make([]any, 2, 2+2*(end-from))
			args[0], args[1] = "HSET", fmt.Sprint(p.at, "u", i)
			for _, n := range order[from:end] {
				user, record := h.read(h.users[n])
				args = append(args, user, record)
			}
			j.commands = append(j.commands, command{end - from, args})
			cost += end - from
		}
		from = end
		if cost >= 8*pieceCost || i == len(ends)-1 {
			if err := b.emit(j); err != nil {
				return err
			}
			j, cost = job{part: p}, 0
		}
	}
	return nil
}

// keep counts the memory of a string that waits in a tree writer. If too much memory waits, keep
// flushes all tree writers.
func (b *bulk) keep(bytes int64) error {
	if b.waiting += bytes; b.waiting < bulkSizes.strings {
		return nil
	}
	b.waiting = 0
	for _, t := range b.trees() {
		if err := t.flush(); err != nil {
			return err
		}
	}
	return nil
}

// rank adds a user's sort key to the tree of a ladder. The sort keys of a ladder must come in order.
func (b *bulk) rank(p *portion, number int, sortKey string) error {
	t := p.trees[number]
	if t == nil {
		t = &treeWriter{b: b, part: p, at: p.at + strconv.Itoa(number)}
		p.trees[number] = t
	}
	p.ranked++
	return t.add(sortKey)
}

func (b *bulk) trees() (all []*treeWriter) {
	for _, p := range b.parts {
		all = slices.AppendSeq(all, maps.Values(p.trees))
	}
	return all
}

// cursor reads a sorted run: entries in memory, or blocks in Redis.
type cursor struct {
	b      *bulk
	part   *portion
	held   *held  // nil if the entries are in blocks
	at     int    // position of the next user in held
	blocks []int  // the numbers of the unread blocks
	number int    // the number of the present block
	block  []byte // the unread bytes of the present block

	user, record, prefix []byte // the entry; user is nil at the end; for prefix, see held.split
}

func (c *cursor) next(ctx context.Context) error {
	c.user = nil
	switch {
	case c.held != nil && c.at < len(c.held.users):
		c.user, c.record = c.held.read(c.held.users[c.at])
		c.at++
	case c.held != nil:
		return nil
	default:
		if len(c.block) == 0 {
			if ok, err := c.nextBlock(ctx); !ok || err != nil {
				return err
			}
		}
		c.user, c.record, c.block = cutRecord(c.block)
	}
	c.prefix, _ = c.part.held.split(c.record)
	return nil
}

// nextBlock frees the present block and reads the next one. It reports whether a next block exists.
func (c *cursor) nextBlock(ctx context.Context) (bool, error) {
	if c.block != nil {
		c.block = nil
		free := []command{{1, []any{"UNLINK", c.part.block(c.number)}}, {1, []any{"SREM", c.part.at + "x", c.number}}}
		if err := c.b.emit(job{c.part, free}); err != nil {
			return false, err
		}
	}
	if len(c.blocks) == 0 {
		return false, nil
	}
	c.number, c.blocks = c.blocks[0], c.blocks[1:]
	bounded, cancel := context.WithTimeout(ctx, c.b.g.stepTimeout())
	defer cancel()
	return true, retry(bounded, func() (err error) {
		c.block, err = c.b.g.x.client().Get(bounded, c.part.block(c.number)).Bytes()
		if errors.Is(err, goredis.Nil) {
			return errOvertaken
		}
		return unavailable(nil, err)
	})
}

// compare compares the sort keys of two entries. Users who are not ranked come first.
func (c *cursor) compare(d *cursor) int {
	return cmp.Or(bytes.Compare(c.prefix, d.prefix), bytes.Compare(c.user, d.user))
}

// merged is a heap of cursors. The first cursor has the smallest sort key.
type merged []*cursor

// begin removes the cursors without entries, and sorts the rest. A sorted slice is a heap.
func (m *merged) begin() {
	*m = slices.DeleteFunc(*m, func(c *cursor) bool { return c.user == nil })
	slices.SortFunc(*m, (*cursor).compare)
}

// moveFirst restores the heap after the first cursor has read its next entry. If no entry is
// left, moveFirst removes this cursor.
func (m *merged) moveFirst() {
	h := *m
	if h[0].user == nil {
		h[0] = h[len(h)-1]
		h = h[:len(h)-1]
		*m = h
	}
	for i := 0; ; {
		least := i
		for j := 2*i + 1; j <= 2*i+2 && j < len(h); j++ {
			if h[j].compare(h[least]) < 0 {
				least = j
			}
		}
		if least == i {
			return
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}

// perform calls the function produce, and executes the jobs that produce emits, in bulkWorkers
// connections. It returns after the last job.
func (b *bulk) perform(ctx context.Context, produce func() error) error {
	all, ctx := errgroup.WithContext(ctx)
	b.ctx, b.jobs = ctx, make(chan job, bulkWorkers)
	jobs := b.jobs
	all.Go(func() error {
		defer close(jobs)
		return produce()
	})
	for range bulkWorkers {
		all.Go(func() error {
			w := &pieces{b: b, ctx: ctx}
			defer w.close()
			for j := range jobs {
				if w.part != j.part {
					if err := w.flush(); err != nil {
						return err
					}
					w.close() // parts may be on different servers
					w.part = j.part
				}
				for _, c := range j.commands {
					if err := w.add(c.cost, c.args); err != nil {
						return err
					}
				}
			}
			return w.flush()
		})
	}
	return all.Wait()
}

func (b *bulk) emit(j job) error {
	select {
	case b.jobs <- j:
		return nil
	case <-b.ctx.Done():
		return context.Cause(b.ctx)
	}
}

// applyAside sends the records of the generation g.aside to the generation that is being built.
// These records are the updates that were made during the bulk load.
func (g *generation) applyAside(ctx context.Context, shard, buckets int, users int64) error {
	if users == 0 {
		return nil
	}
	at := g.control[shard] + ":" + g.aside + ":"
	names := map[int]string{}
	found := int64(0)
	for from := -1; from < buckets; from += 16 { // about 1,000 users
		var ladders *goredis.MapStringStringCmd
		var records []*goredis.MapStringStringCmd
		bounded, cancel := context.WithTimeout(ctx, g.stepTimeout())
		err := retry(bounded, func() error {
			ladders, records = nil, nil
			pipe := g.x.client().Pipeline()
			if from < 0 {
				ladders = pipe.HGetAll(bounded, at+"l")
			}
			for i := max(from, 0); i < min(from+16, buckets); i++ {
				records = append(records, pipe.HGetAll(bounded, fmt.Sprint(at, "u", i)))
			}
			return unavailable(pipe.Exec(bounded))
		})
		cancel()
		if err != nil {
			return err
		}
		if ladders != nil {
			for name, number := range ladders.Val() {
				n := 0
				if _, err := fmt.Sscan(number, &n); err != nil {
					return fmt.Errorf("number of ladder %q: %w", name, err)
				}
				names[n] = name
			}
		}
		for _, c := range records {
			for user, record := range c.Val() {
				found++
				args, err := asideArgs(user, record, g.keyBytes, names)
				if err != nil {
					return err
				}
				g.pending[shard] = append(g.pending[shard], args)
				if g.queued++; g.queued >= 256 {
					if err := g.send(ctx); err != nil {
						return err
					}
				}
			}
		}
	}
	if found != users {
		return fmt.Errorf("shard %d: %d users changed during the bulk load, found %d: %w", shard, users, found, leaderboard.ErrRankUnavailable)
	}
	return g.send(ctx)
}

// asideArgs returns the arguments of the update script for a record.
func asideArgs(user, record string, keyBytes int, names map[int]string) ([]any, error) {
	bad := func() ([]any, error) {
		return nil, fmt.Errorf("record %q of user %q: %w", record, user, leaderboard.ErrRankUnavailable)
	}
	if record == "" || len(record) < 1+int(record[0]) {
		return bad()
	}
	version, rest := record[1:1+record[0]], record[1+record[0]:]
	if rest == "" {
		return []any{user, bucketHash(user), version, "", []byte(nil)}, nil
	}
	if len(rest) < keyBytes+8 || (len(rest)-keyBytes-8)%3 != 0 {
		return bad()
	}
	prefix, numbers := rest[:keyBytes+8], rest[keyBytes+8:]
	divisions := []byte(nil)
	for ; numbers != ""; numbers = numbers[3:] {
		name, ok := names[int(numbers[0])<<16|int(numbers[1])<<8|int(numbers[2])]
		if !ok {
			return bad()
		}
		divisions = append(append(divisions, byte(len(name))), name...)
	}
	return []any{user, bucketHash(user), version, prefix, divisions}, nil
}

// unavailable wraps an error, so that the function retry repeats the call.
func unavailable(_ []goredis.Cmder, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", leaderboard.ErrRankUnavailable, err)
}

// pieces writes commands in pieces: transactions that the server executes only if the bulk load
// has not ended. It uses one connection, so the pieces keep their order. If the answer to a
// piece is lost, it repeats the piece: a second execution changes nothing.
type pieces struct {
	b        *bulk
	part     *portion
	ctx      context.Context
	conn     *goredis.Conn
	commands [][]any
	cost     int
}

// add adds commands to the present piece, and writes the piece if it is large enough. For cost, see
// command.
func (w *pieces) add(cost int, commands ...[]any) error {
	w.commands = append(w.commands, commands...)
	if w.cost += cost; w.cost >= pieceCost {
		return w.flush()
	}
	return nil
}

func (w *pieces) flush() error {
	if len(w.commands) == 0 {
		return nil
	}
	commands := append(w.commands, []any{"SETBIT", w.part.at + "p", w.part.pieces.Add(1) - 1, 1})
	w.commands, w.cost = nil, 0
	ctx, cancel := context.WithTimeout(w.ctx, w.b.g.stepTimeout())
	defer cancel()
	return retry(ctx, func() error {
		err := w.execute(ctx, commands)
		if err != nil {
			w.close()
			if c, ok := w.b.g.x.client().(*goredis.ClusterClient); ok && !errors.Is(err, errOvertaken) {
				c.ReloadState(ctx)
			}
		}
		return err
	})
}

func (w *pieces) connect(ctx context.Context) error {
	client, _, err := w.b.g.x.master(ctx, w.part.at)
	if err != nil {
		return unavailable(nil, err)
	}
	c, ok := client.(*goredis.Client)
	if !ok {
		return fmt.Errorf("unexpected client %T", client)
	}
	w.conn = c.Conn()
	pipe := w.conn.Pipeline()
	return w.watch(ctx, pipe)
}

// watch adds a WATCH of the key :b (see lua/bulk.lua) to a pipeline, and executes the pipeline. If
// the key is removed later, the connection's next transaction fails.
func (w *pieces) watch(ctx context.Context, pipe goredis.Pipeliner) error {
	pipe.Do(ctx, "WATCH", w.part.at+"b")
	exists := pipe.Exists(ctx, w.part.at+"b")
	if err := unavailable(pipe.Exec(ctx)); err != nil {
		return err
	}
	if exists.Val() == 0 {
		return errOvertaken
	}
	return nil
}

func (w *pieces) execute(ctx context.Context, commands [][]any) error {
	if w.conn == nil {
		if err := w.connect(ctx); err != nil {
			return err
		}
	}
	pipe := w.conn.Pipeline()
	pipe.Do(ctx, "MULTI")
	for _, c := range commands {
		pipe.Do(ctx, c...)
	}
	executed := pipe.Do(ctx, "EXEC")
	err := w.watch(ctx, pipe)
	replies, failed := executed.Slice()
	switch {
	case errors.Is(failed, goredis.Nil):
		return errOvertaken
	case failed != nil:
		return unavailable(nil, failed)
	case err != nil:
		return err
	}
	for _, r := range replies {
		if failed, ok := r.(error); ok {
			return unavailable(nil, failed)
		}
	}
	return nil
}

func (w *pieces) close() {
	if w.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), pingTimeout)
	defer cancel()
	_ = w.conn.Do(ctx, "UNWATCH").Err() // if this fails, the client closes the connection
	_ = w.conn.Close()
	w.conn = nil
}
