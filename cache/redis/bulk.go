package redis

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	goredis "github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/open-leaderboard/leaderboard"
)

const (
	// heldBytes is the memory, in bytes, for the entries that all Rebuilds of a process hold for
	// bulk loads. An entry without divisions counts as about 53 bytes plus the user id, so the
	// limit is reached at about 3.9 million entries with ids of 16 bytes. A Rebuild sends the
	// entries beyond the limit to the update script, which is about ten times slower.
	heldBytes = 256 << 20
	// pieceCost is about the number of members and fields that a piece writes. A piece is a
	// transaction, so it blocks the server.
	pieceCost = 256
	// bulkWorkers is the number of connections that a bulk load uses. They are taken from the
	// client's pool, so they must be few.
	bulkWorkers = 3
	// leafBytes equals LEAF_BYTES in lua/tree.lua.
	leafBytes = 6144
)

// treeSizes are the greatest sizes of leaves and groups, and the average number of users in a
// bucket. They equal BITS, GROUP and USERS in the scripts.
var treeSizes = struct{ bits, group, users int }{96, 256, 64}

// unpacked is a member that makes Redis store a sorted set or a hash without packing. It
// equals UNPACKED in lua/edit.lua.
var unpacked = strings.Repeat("x", 65)

// held has the entries of one shard that wait for a bulk load, in a compact form.
type held struct {
	users    []heldUser
	chunks   [][]byte // for each user: the user's id and the record, each after its length
	keyBytes int
	longest  int // length of the longest sort key
	sorted   bool
	names    []string       // the ladders, by number
	numbers  map[string]int // the numbers of the ladders
	bytes    int64
}

// heldUser is one entry of held.
type heldUser struct {
	head uint64 // the first bytes of the sort key, which compare as the sort key does
	hash uint32 // see bucketHash
	at   uint32 // position in chunks
}

const (
	chunkBits = 20
	maxChunks = 1 << (32 - chunkBits)
)

func newHeld(keyBytes int) *held {
	return &held{keyBytes: keyBytes, sorted: true, names: []string{""}, numbers: map[string]int{"": 0}}
}

// number returns the number of a ladder. It adds the ladder if needed.
func (h *held) number(name string) int {
	n, ok := h.numbers[name]
	if !ok {
		n = len(h.names)
		h.names = append(h.names, name)
		h.numbers[name] = n
		h.bytes += int64(len(name)) + 64
	}
	return n
}

// add adds an entry. It reports whether the entry has been added. It adds no entry whose record is
// too large for a chunk.
func (h *held) add(e *leaderboard.Entry) bool {
	version := strings.TrimLeft(bigEndian(e.Version), "\x00")
	record, size, divisions := 1+len(version), 0, e.Divisions
	if e.Ranked() {
		size = len(e.Key) + 8
		record += size + 3*len(divisions)
	} else {
		divisions = nil
	}
	total := len(e.User) + record + 2*binary.MaxVarintLen32
	if total > 1<<chunkBits || len(h.chunks) == maxChunks-1 {
		return false
	}
	if n := len(h.chunks); n == 0 || len(h.chunks[n-1])+total > 1<<chunkBits {
		h.chunks = append(h.chunks, make([]byte, 0, 1<<chunkBits))
	}
	last := len(h.chunks) - 1
	b := h.chunks[last]
	u := heldUser{hash: bucketHash(string(e.User)), at: uint32(last)<<chunkBits | uint32(len(b))}
	b = binary.AppendUvarint(b, uint64(len(e.User)))
	b = append(b, e.User...)
	b = binary.AppendUvarint(b, uint64(record))
	b = append(append(b, byte(len(version))), version...)
	if size > 0 {
		from := len(b)
		b = append(append(b, e.Key...), instant(e.AchievedAt)...)
		u.head = binary.BigEndian.Uint64(b[from:])
		for _, d := range divisions {
			n := h.number(ladderName(d))
			b = append(b, byte(n>>16), byte(n>>8), byte(n))
		}
		h.longest = max(h.longest, size+len(e.User))
	}
	h.chunks[last] = b
	h.bytes += int64(total) + 24
	h.users = append(h.users, u)
	if n := len(h.users); h.sorted && n > 1 {
		h.sorted = h.compare(h.users[n-2], u) <= 0
	}
	return true
}

// read returns the id and the record of a user. The record has the form that lua/base.lua
// describes.
func (h *held) read(u heldUser) (user, record []byte) {
	b := h.chunks[u.at>>chunkBits][u.at&(1<<chunkBits-1):]
	n, k := binary.Uvarint(b)
	user, b = b[k:k+int(n)], b[k+int(n):]
	n, k = binary.Uvarint(b)
	return user, b[k : k+int(n)]
}

// split splits a record into the version, the prefix of the sort key, and the numbers of the
// ladders.
func (h *held) split(record []byte) (version, prefix, ladders []byte) {
	version, rest := record[1:1+record[0]], record[1+record[0]:]
	if len(rest) == 0 {
		return version, nil, nil
	}
	return version, rest[:h.keyBytes+8], rest[h.keyBytes+8:]
}

// compare compares the sort keys of two users. Users who are not ranked come first.
func (h *held) compare(a, b heldUser) int {
	if a.head != b.head {
		if a.head < b.head {
			return -1
		}
		return 1
	}
	x, r := h.read(a)
	y, s := h.read(b)
	_, p, _ := h.split(r)
	_, q, _ := h.split(s)
	if c := bytes.Compare(p, q); c != 0 {
		return c
	}
	return bytes.Compare(x, y)
}

// byBucket returns the positions of the users in h.users, bucket by bucket, and the end of each
// bucket.
func (h *held) byBucket(buckets int) (order []uint32, ends []int) {
	ends = make([]int, buckets+1)
	for _, u := range h.users {
		ends[bucketNumber(u.hash, buckets)+1]++
	}
	for i := range buckets {
		ends[i+1] += ends[i]
	}
	order = make([]uint32, len(h.users))
	for i, u := range h.users {
		n := bucketNumber(u.hash, buckets)
		order[ends[n]] = uint32(i)
		ends[n]++
	}
	return order, ends[:buckets]
}

// countBuckets returns the number of buckets of a shard with the given number of users.
func countBuckets(users int) int { return max(1, (users+treeSizes.users-1)/treeSizes.users) }

// prepare sorts the users and drops all but the newest entry of each user: a scan may read a user
// twice if the user moves meanwhile. It returns the positions of the users by bucket, as byBucket
// does.
func (h *held) prepare() (order []uint32, ends []int) {
	if !h.sorted {
		slices.SortStableFunc(h.users, h.compare)
	}
	order, ends = h.byBucket(countBuckets(len(h.users)))
	old := map[uint32]bool{}
	from := 0
	for _, end := range ends {
		bucket := order[from:end]
		slices.SortFunc(bucket, func(i, j uint32) int {
			switch a, b := h.users[i].hash, h.users[j].hash; {
			case a < b:
				return -1
			case a > b:
				return 1
			}
			return 0
		})
		for i := range bucket {
			for j := i + 1; j < len(bucket) && h.users[bucket[i]].hash == h.users[bucket[j]].hash; j++ {
				x, r := h.read(h.users[bucket[i]])
				y, s := h.read(h.users[bucket[j]])
				if !bytes.Equal(x, y) {
					continue
				}
				// The versions have no leading zeros, and their lengths precede them.
				if v, w := r[:1+r[0]], s[:1+s[0]]; bytes.Compare(v, w) >= 0 {
					old[bucket[j]] = true
				} else {
					old[bucket[i]] = true
				}
			}
		}
		from = end
	}
	if len(old) == 0 {
		return order, ends
	}
	kept := h.users[:0]
	for i, u := range h.users {
		if !old[uint32(i)] {
			kept = append(kept, u)
		}
	}
	h.users = kept
	return h.byBucket(countBuckets(len(h.users)))
}

// bulk writes the entries that a generation holds. lua/bulk.lua describes bulk loads, and states
// why they lose no update, and why a late piece of an overtaken Rebuild changes nothing.
type bulk struct {
	g     *generation
	name  string // the generation that the bulk load writes
	parts []*portion
	// units are the parts of the work that need their commands in order.
	units []unit
	// last has commands that follow all units.
	last []unit
}

// portion is the bulk load of one shard.
type portion struct {
	*held
	shard   int
	at      string // the beginning of the names of the generation's keys
	order   []uint32
	ends    []int
	pieces  atomic.Int64
	keys    int64            // the rank keys whose home is this shard
	ranked  int64            // the standings in all ladders
	ladders map[int][]uint32 // positions in users of the members of each ladder except the overall one, in order
	first   int              // position in users of the first ranked user
}

// unit writes keys of one part.
type unit struct {
	part *portion
	do   func(w *pieces) error
}

// loadHeld writes the held entries in bulk and makes their generation the one that is being
// built. Then it applies the updates that were made meanwhile.
func (g *generation) loadHeld(ctx context.Context) error {
	b := &bulk{g: g, name: g.name + "b"}
	for shard, h := range g.held {
		p := &portion{held: h, shard: shard, at: g.control[shard] + ":" + b.name + ":", ladders: map[int][]uint32{}}
		p.order, p.ends = h.prepare()
		b.parts = append(b.parts, p)
	}
	b.plan()
	call := func(pieces func(p *portion) any) ([]*call, error) {
		calls := make([]*call, len(b.parts))
		for i, p := range b.parts {
			calls[i] = newCall(bulkScript, g.control, i, g.name, b.name, len(p.ends), pieces(p))
		}
		bounded, cancel := context.WithTimeout(ctx, g.x.o.UpdateTimeout)
		defer cancel()
		if err := retry(bounded, func() error { return g.x.run(bounded, calls) }); err != nil {
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
	g.bulk = b.name
	if _, err := call(func(*portion) any { return "" }); err != nil {
		return err
	}
	if err := b.write(ctx); err != nil {
		if ctx.Err() != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		return err
	}
	ended, err := call(func(p *portion) any { return p.pieces.Load() })
	if err != nil {
		return err
	}
	g.aside, g.name = g.name, b.name
	g.release()
	for _, c := range ended {
		if err := g.applyAside(ctx, c.shard, int(c.int()), c.int()); err != nil {
			return err
		}
	}
	return nil
}

// release releases the memory of the held entries.
func (g *generation) release() {
	g.x.held.Add(-g.reserved)
	g.held, g.reserved = nil, 0
}

// applyAside sends the records of the generation aside to the generation that is being built.
// These are the updates that were made during the bulk load.
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
		bounded, cancel := context.WithTimeout(ctx, g.x.o.UpdateTimeout)
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
				p, err := asidePending(user, record, g.keyBytes, names)
				if err != nil {
					return err
				}
				g.pending[shard] = append(g.pending[shard], p)
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

// asidePending returns the arguments of the update script for a record.
func asidePending(user, record string, keyBytes int, names map[int]string) (pendingEntry, error) {
	bad := func() (pendingEntry, error) {
		return pendingEntry{}, fmt.Errorf("record %q of user %q: %w", record, user, leaderboard.ErrRankUnavailable)
	}
	if record == "" || len(record) < 1+int(record[0]) {
		return bad()
	}
	version, rest := record[1:1+record[0]], record[1+record[0]:]
	if rest == "" {
		return pendingEntry{args: []any{user, bucketHash(user), version, "", []byte(nil)}}, nil
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
	return pendingEntry{prefix + user, []any{user, bucketHash(user), version, prefix, divisions}}, nil
}

// unavailable wraps an error of a pipeline, so that it is retried.
func unavailable(_ []goredis.Cmder, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", leaderboard.ErrRankUnavailable, err)
}

// plan divides the work into units.
func (b *bulk) plan() {
	shards := len(b.parts)
	var homes []map[string][]rankKeyRef // by home and ladder
	for range shards {
		homes = append(homes, map[string][]rankKeyRef{})
	}
	for _, p := range b.parts {
		p.first = len(p.users)
		for i, u := range p.users {
			_, record := p.read(u)
			_, prefix, ladders := p.split(record)
			if prefix == nil {
				continue
			}
			p.first = min(p.first, i)
			p.ranked++
			for ; len(ladders) > 0; ladders = ladders[3:] {
				n := int(ladders[0])<<16 | int(ladders[1])<<8 | int(ladders[2])
				p.ladders[n] = append(p.ladders[n], uint32(i))
				p.ranked++
			}
		}
		b.addTree("0", p, len(p.users)-p.first, func(i int) rankKeyRef { return rankKeyRef{p, uint32(p.first + i)} }, p.longest, shards == 1)
		for n, members := range p.ladders {
			b.addTree(fmt.Sprint(n), p, len(members), func(i int) rankKeyRef { return rankKeyRef{p, members[i]} }, p.longest, shards == 1)
		}
		if shards > 1 {
			p.collectKeys(homes)
		}
		from := 0
		for i, end := range p.ends {
			if users := p.order[from:end]; len(users) > 0 {
				b.units = append(b.units, unit{p, func(w *pieces) error { return w.bucket(i, users) }})
			}
			from = end
		}
	}
	for home, ladders := range homes {
		for name, refs := range ladders {
			b.addKeys(b.parts[home], name, refs)
		}
	}
}

// rankKeyRef refers to a ranked user of a shard, or to the user's rank key.
type rankKeyRef struct {
	part *portion
	user uint32 // position in the part's users
}

// key returns the rank key.
func (r rankKeyRef) key() []byte {
	_, record := r.part.read(r.part.users[r.user])
	_, prefix, _ := r.part.split(record)
	return prefix[:r.part.keyBytes]
}

// sortKey returns the user's sort key.
func (r rankKeyRef) sortKey() string {
	user, record := r.part.read(r.part.users[r.user])
	_, prefix, _ := r.part.split(record)
	key := make([]byte, 0, len(prefix)+len(user))
	return string(append(append(key, prefix...), user...))
}

// collectKeys adds the different rank keys of each ladder to their homes.
func (p *portion) collectKeys(homes []map[string][]rankKeyRef) {
	add := func(name string, n int, at func(i int) int) {
		var last []byte
		for i := range n {
			r := rankKeyRef{p, uint32(at(i))}
			if k := r.key(); last == nil || !bytes.Equal(k, last) {
				home := homes[hash(string(k))%uint32(len(homes))]
				home[name] = append(home[name], r)
				last = k
			}
		}
	}
	add("", len(p.users)-p.first, func(i int) int { return p.first + i })
	for n, members := range p.ladders {
		add(p.names[n], len(members), func(i int) int { return int(members[i]) })
	}
}

// addKeys adds the tree of the rank keys of a ladder whose home is p. Each ref stands for a
// shard that holds the rank key.
func (b *bulk) addKeys(p *portion, name string, refs []rankKeyRef) {
	slices.SortFunc(refs, func(x, y rankKeyRef) int { return bytes.Compare(x.key(), y.key()) })
	number := fmt.Sprint(p.number(name))
	var shared []any
	different := refs[:0]
	for i := 0; i < len(refs); {
		j := i + 1
		for j < len(refs) && bytes.Equal(refs[i].key(), refs[j].key()) {
			j++
		}
		if j-i > 1 {
			shared = append(shared, refs[i].key(), j-i-1)
		}
		different = append(different, refs[i])
		i = j
	}
	p.keys += int64(len(different))
	b.addTree(number+"k", p, len(different), func(i int) rankKeyRef { return different[i] }, 0, false)
	if len(shared) > 0 {
		b.units = append(b.units, unit{p, func(w *pieces) error { return w.setFields(p.at+number+"m", shared) }})
	}
}

// addTree adds the units that write a tree of n sorted strings. lua/tree.lua describes trees.
// Parameter longest is the length of the longest sort key, or 0 for a tree of rank keys.
func (b *bulk) addTree(name string, p *portion, n int, at func(i int) rankKeyRef, longest int, follow bool) {
	if n == 0 {
		return
	}
	t := &bulkTree{part: p, at: p.at + name, n: n, ref: at, str: func(i int) string { return at(i).sortKey() }, follow: follow}
	if longest == 0 {
		longest, t.str = p.keyBytes, func(i int) string { return string(at(i).key()) }
	}
	// Leaves of four fifths of the greatest size leave room for new strings.
	full := max(min(treeSizes.bits, leafBytes/(longest+4)), 8) * 4 / 5
	t.leaves = (n + full - 1) / full
	if t.leaves == 1 {
		b.units = append(b.units, unit{p, func(w *pieces) error { return t.leaf(w, 0, "") }})
		return
	}
	full = treeSizes.group * 3 / 4
	groups := (t.leaves + full - 1) / full
	t.strings, t.followers = make([]int, groups), make([]int, groups)
	for i := range groups {
		b.units = append(b.units, unit{p, func(w *pieces) error { return t.group(w, i) }})
	}
	if groups > 1 {
		b.last = append(b.last, unit{p, t.sums})
	}
}

// bulkTree is a tree that a bulk load writes.
type bulkTree struct {
	part               *portion
	at                 string
	n, leaves          int
	ref                func(i int) rankKeyRef
	str                func(i int) string
	follow             bool
	strings, followers []int // by group
}

// start returns the position of the first string of a leaf.
func (t *bulkTree) start(leaf int) int { return int(int64(leaf) * int64(t.n) / int64(t.leaves)) }

// name returns the name of a leaf, which is its lower bound.
func (t *bulkTree) name(leaf int) string {
	if leaf == 0 {
		return ""
	}
	a, b := t.str(t.start(leaf)-1), t.str(t.start(leaf))
	for i := range len(b) {
		if i == len(a) || a[i] != b[i] {
			return b[:i+1]
		}
	}
	return b
}

// leaf writes a leaf.
func (t *bulkTree) leaf(w *pieces, leaf int, name string) error {
	from, to := t.start(leaf), t.start(leaf+1)
	args := make([]any, 2, 2+2*(to-from))
	args[0], args[1] = "ZADD", t.at+"l"+name
	for i := from; i < to; i++ {
		args = append(args, "0", t.str(i))
	}
	return w.add(to-from, args)
}

// countFollowers returns the number of followers in a leaf.
func (t *bulkTree) countFollowers(leaf int) (n int) {
	if !t.follow {
		return 0
	}
	from, to := t.start(leaf), t.start(leaf+1)
	var last []byte
	if from > 0 {
		last = t.ref(from - 1).key()
	}
	for i := from; i < to; i++ {
		k := t.ref(i).key()
		if last != nil && bytes.Equal(k, last) {
			n++
		}
		last = k
	}
	return n
}

// group writes a group: first its directory and its counts, then its leaves.
func (t *bulkTree) group(w *pieces, group int) error {
	groups := len(t.strings)
	from, to := group*t.leaves/groups, (group+1)*t.leaves/groups
	name := t.name(from)
	block := treeSizes.bits / 8
	counts, followers := make([]byte, (to-from)*block), make([]byte, (to-from)*block)
	directory := []any{"ZADD", t.at + "d" + name, "0", unpacked}
	names := make([]string, to-from)
	for leaf := from; leaf < to; leaf++ {
		i := leaf - from
		names[i] = t.name(leaf)
		directory = append(directory, "0", names[i])
		n, f := t.start(leaf+1)-t.start(leaf), t.countFollowers(leaf)
		setOnes(counts[i*block:], n)
		setOnes(followers[i*block:], f)
		t.strings[group] += n
		t.followers[group] += f
	}
	commands := [][]any{directory, {"ZREM", t.at + "d" + name, unpacked}, {"SET", t.at + "c" + name, counts}}
	if t.followers[group] > 0 {
		commands = append(commands, []any{"SET", t.at + "f" + name, followers})
	}
	if groups > 1 {
		commands = append(commands, []any{"ZADD", t.at + "r", "0", unpacked, "0", name}, []any{"ZREM", t.at + "r", unpacked})
	}
	if err := w.add(to-from, commands...); err != nil {
		return err
	}
	for i, name := range names {
		if err := t.leaf(w, from+i, name); err != nil {
			return err
		}
	}
	return nil
}

// setOnes sets the first n bits of b.
func setOnes(b []byte, n int) {
	for i := range n {
		b[i/8] |= 0x80 >> (i % 8)
	}
}

// sums writes the sums over groups.
func (t *bulkTree) sums(w *pieces) error {
	total := func(counts []int) (n int) {
		for _, c := range counts {
			n += c
		}
		return n
	}
	if err := w.add(3, []any{"HSET", t.at + "s", "x", unpacked, "t", total(t.strings), "ft", total(t.followers)}, []any{"HDEL", t.at + "s", "x"}); err != nil {
		return err
	}
	var fields []any
	add := func(kind string, counts []int) {
		sums := make([]int, len(counts)+1)
		for i := 1; i <= len(counts); i++ {
			sums[i] += counts[i-1]
			if j := i + i&-i; j < len(sums) {
				sums[j] += sums[i]
			}
			fields = append(fields, fmt.Sprint(kind, i), sums[i])
		}
	}
	add("", t.strings)
	if t.follow {
		add("f", t.followers)
	}
	return w.setFields(t.at+"s", fields)
}

// write performs all units, in several connections.
func (b *bulk) write(ctx context.Context) error {
	var first []unit
	for _, p := range b.parts {
		first = append(first, unit{p, func(w *pieces) error { return w.ladders() }})
		b.last = append(b.last, unit{p, func(w *pieces) error {
			return w.add(3, []any{"HSET", p.at + "w", "users", len(p.users), "standings", p.ranked, "keys", p.keys})
		}})
	}
	// free.lua finds a tree by its ladder. So the ladders come first.
	for _, units := range [][]unit{first, b.units, b.last} {
		if err := b.perform(ctx, units); err != nil {
			return err
		}
	}
	return nil
}

// perform performs units and returns when all of them are done.
func (b *bulk) perform(ctx context.Context, units []unit) error {
	var next atomic.Int64
	all, ctx := errgroup.WithContext(ctx)
	for range min(bulkWorkers, len(units)/8+1) {
		all.Go(func() error {
			w := &pieces{b: b, ctx: ctx}
			defer w.close()
			for i := next.Add(1); int(i) <= len(units); i = next.Add(1) {
				u := units[i-1]
				if w.part != u.part {
					if err := w.flush(); err != nil {
						return err
					}
					w.close() // the other part may be on another server
					w.part = u.part
				}
				if err := u.do(w); err != nil {
					return err
				}
			}
			return w.flush()
		})
	}
	return all.Wait()
}

// pieces writes commands in pieces: transactions that the server executes only if the bulk load
// has not ended. It uses one connection, so the pieces keep their order. If it does not know
// whether a piece was executed, it repeats the piece, which changes nothing then.
type pieces struct {
	b        *bulk
	part     *portion
	ctx      context.Context
	conn     *goredis.Conn
	commands [][]any
	cost     int
}

// add adds commands, and writes a piece if it is large enough. Parameter cost is the number of
// members and fields in the commands.
func (w *pieces) add(cost int, commands ...[]any) error {
	w.commands = append(w.commands, commands...)
	if w.cost += cost; w.cost >= pieceCost {
		return w.flush()
	}
	return nil
}

// setFields sets many fields of a hash. Fields and values alternate.
func (w *pieces) setFields(key string, fields []any) error {
	for part := range slices.Chunk(fields, 2*pieceCost) {
		if err := w.add(len(part)/2, append([]any{"HSET", key}, part...)); err != nil {
			return err
		}
	}
	return nil
}

// bucket writes a bucket of users.
func (w *pieces) bucket(number int, users []uint32) error {
	args := make([]any, 2, 2+2*len(users))
	args[0], args[1] = "HSET", fmt.Sprint(w.part.at, "u", number)
	for _, i := range users {
		user, record := w.part.read(w.part.users[i])
		args = append(args, user, record)
	}
	return w.add(len(users), args)
}

// ladders writes the numbers and the names of the ladders.
func (w *pieces) ladders() error {
	var numbers, names []any
	for n, name := range w.part.names[1:] {
		numbers, names = append(numbers, name, n+1), append(names, n+1, name)
	}
	if err := w.setFields(w.part.at+"l", numbers); err != nil || len(w.b.parts) == 1 {
		return err
	}
	return w.setFields(w.part.at+"n", names)
}

// flush writes the commands as a piece.
func (w *pieces) flush() error {
	if len(w.commands) == 0 {
		return nil
	}
	commands := append(w.commands, []any{"SETBIT", w.part.at + "p", w.part.pieces.Add(1) - 1, 1})
	w.commands, w.cost = nil, 0
	ctx, cancel := context.WithTimeout(w.ctx, w.b.g.x.o.UpdateTimeout)
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

// connect takes a connection to the server of the part and watches the key :b.
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

// watch executes a pipeline that ends with a watch of the key :b. The watch makes sure that the next
// transaction fails if the key was removed.
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

// close ends the watch and returns the connection.
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
