package redis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	goredis "github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

// shardServers imitates a Redis Cluster with one server for each shard of the test's season, and one
// server for all other keys. If a test changes the number of shards, shard i is on the server of shard
// i % shards. If a server fails, another server takes over with an older copy. The former server still
// answers processes that have not noticed the change.
type shardServers struct {
	t       *testing.T
	shards  int
	clients map[string]*goredis.Client // by address
	free    []string                   // addresses of unused servers
	present []string                   // addresses of the servers in use: by shard, then the server of all other keys
	slots   map[int]int                // slot of a shard -> the index of its server in present
	keys    [][]string                 // the control keys on each server, by its index in present
	all     []*member
}

// member is a process with an index.
type member struct {
	*Index
	servers *shardServers
	mu      sync.Mutex
	view    []string         // servers.present as this process knows it: see follow
	open    map[net.Conn]int // connection -> the index of its server in view
	faults  *memberFaults
}

// otherShards are the new numbers of shards if a history changes the number.
var otherShards = []int{1, 2, 3}

func startShardServers(t *testing.T, shards, spares int) *shardServers {
	s := &shardServers{t: t, shards: shards, clients: map[string]*goredis.Client{}, slots: map[int]int{}}
	s.keys = make([][]string, shards)
	for _, n := range append(otherShards, shards) {
		for i := range n {
			key := controlKey(defaultPrefix, testSeason, i, n)
			_, tag, _ := strings.Cut(strings.TrimSuffix(key, "}"), "{")
			s.keys[i%shards], s.slots[slot(tag)] = append(s.keys[i%shards], key), i%shards
		}
	}
	for i := range shards + 1 + spares {
		c := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{})
		addr := c.Addrs()[0]
		s.clients[addr] = goredis.NewClient(&goredis.Options{Addr: addr})
		t.Cleanup(func() { _ = s.clients[addr].Close() })
		for _, script := range []*script{updateScript, advanceScript, confirmScript, ownerScript} {
			must(t, s.clients[addr].ScriptLoad(t.Context(), script.text).Err())
		}
		if i <= shards {
			s.present = append(s.present, addr)
		} else {
			s.free = append(s.free, addr)
		}
	}
	return s
}

// join opens the index of a new process.
func (s *shardServers) join() *member {
	s.t.Helper()
	o := options(nil, s.shards)
	o.Prefix, o.UpdateTimeout = defaultPrefix, 2*time.Second
	x, err := newIndex(o)
	must(s.t, err)
	m := &member{Index: x, servers: s, view: slices.Clone(s.present), open: map[net.Conn]int{}, faults: &memberFaults{}}
	c := goredis.NewClusterClient(&goredis.ClusterOptions{
		ClusterSlots: m.clusterSlots, Dialer: m.dial, ContextTimeoutEnabled: true, PoolSize: 20,
		DialTimeout: time.Second, ReadTimeout: time.Second,
	})
	c.AddHook(m.faults)
	m.faults.client = c
	var client goredis.UniversalClient = c
	_ = (*x.connection.Swap(&client)).Close()
	s.all = append(s.all, m)
	return m
}

// leave ends a process, so that it repeats no more Updates.
func (s *shardServers) leave(m *member) {
	m.stop()
	must(s.t, m.Close())
	s.all = slices.DeleteFunc(s.all, func(o *member) bool { return o == m })
}

func (m *member) clusterSlots(context.Context) (all []goredis.ClusterSlot, _ error) {
	add := func(from, to, shard int) {
		if from <= to {
			all = append(all, goredis.ClusterSlot{Start: from, End: to, Nodes: []goredis.ClusterNode{{ID: fmt.Sprint(shard), Addr: fmt.Sprintf("shard:%d", shard)}}})
		}
	}
	next := 0
	for _, n := range slices.Sorted(maps.Keys(m.servers.slots)) {
		add(next, n-1, m.servers.shards)
		add(n, n, m.servers.slots[n])
		next = n + 1
	}
	add(next, slots-1, m.servers.shards)
	return all, nil
}

func (m *member) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	var shard int
	if _, err := fmt.Sscanf(addr, "shard:%d", &shard); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", m.view[shard])
	if err == nil {
		m.open[c] = shard
	}
	return c, err
}

// follow makes the process notice the present server of a shard.
func (m *member) follow(shard int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.view[shard] == m.servers.present[shard] {
		return
	}
	m.view[shard] = m.servers.present[shard]
	for c, n := range m.open {
		if n == shard {
			_ = c.Close()
			delete(m.open, c)
		}
	}
}

func (m *member) followAll() {
	for shard := range m.servers.shards {
		m.follow(shard)
	}
}

// copyScript returns a copy of all keys of a server. restoreScript writes this copy to a server.
const (
	copyScript = `local all = {}
for _, k in ipairs(redis.call('KEYS', '*')) do
  all[#all + 1], all[#all + 2], all[#all + 3] = k, math.max(redis.call('PTTL', k), 0), redis.call('DUMP', k)
end
return all`
	restoreScript = `for i = 1, #ARGV, 3 do redis.call('RESTORE', ARGV[i], ARGV[i + 1], ARGV[i + 2]) end return 1`
)

func (s *shardServers) copyOf(shard int) []any {
	s.t.Helper()
	all, err := s.clients[s.present[shard]].Eval(s.t.Context(), copyScript, nil).Slice()
	must(s.t, err)
	return all
}

// fail replaces the server of a shard by a free server with an older copy of the shard.
func (s *shardServers) fail(shard int, older []any) {
	s.t.Helper()
	if len(s.free) == 0 {
		s.reclaim()
	}
	addr := s.free[0]
	c := s.clients[addr]
	ctx := s.t.Context()
	must(s.t, c.FlushAll(ctx).Err())
	must(s.t, c.ReplicaOf(ctx, "127.0.0.1", "1").Err()) // so that the server has a new identity
	must(s.t, c.ReplicaOf(ctx, "NO", "ONE").Err())
	if len(older) > 0 {
		must(s.t, c.Eval(ctx, restoreScript, nil, older...).Err())
		for _, key := range s.keys[shard] {
			// Redis does not replicate the field seen: see lua/server.lua.
			must(s.t, c.Eval(ctx, `if redis.call('EXISTS', KEYS[1]) == 1 then redis.call('HSET', KEYS[1], 'seen', 0) end return 1`, []string{key}).Err())
		}
	}
	s.free, s.present[shard] = s.free[1:], addr
}

// reclaim makes all processes use the present servers, so that the other servers are free.
func (s *shardServers) reclaim() {
	for _, m := range s.all {
		m.followAll()
	}
	for addr := range s.clients {
		if !slices.Contains(s.present, addr) {
			s.free = append(s.free, addr)
		}
	}
}

// memberFaults is a hook that makes calls of scripts fail: see arm.
type memberFaults struct {
	client  *goredis.ClusterClient
	mu      sync.Mutex
	armed   []string
	delayed [][]any // the arguments of the commands that release sends
	rest    int     // see after
	act     func()
}

// after makes the hook call act just before the n-th command or pipeline from now, or never if n is 0.
func (f *memberFaults) after(n int, act func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rest, f.act = n, act
}

func (f *memberFaults) count() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rest--; f.rest == 0 {
		f.act()
	}
}

// arm makes one call fail. If kind is "lost", the server executes the call, and the answer is lost.
// If kind is "delayed", release sends the call later. If kind is "refused", the call is never sent.
func (f *memberFaults) arm(kind string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed = append(f.armed, kind)
}

func (f *memberFaults) disarm() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed = nil
}

func (f *memberFaults) release(ctx context.Context) {
	f.mu.Lock()
	delayed := f.delayed
	f.delayed = nil
	f.mu.Unlock()
	for _, args := range delayed {
		_ = f.client.Do(ctx, args...).Err()
	}
}

// take returns the kind of the fault for a command, or "".
func (f *memberFaults) take(c goredis.Cmder) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c.Name() != "evalsha" || len(f.armed) == 0 {
		return ""
	}
	kind := f.armed[0]
	f.armed = f.armed[1:]
	if kind == "delayed" {
		f.delayed = append(f.delayed, c.Args())
	}
	return kind
}

var errFault = errors.New("the test lets this command fail")

func (f *memberFaults) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (f *memberFaults) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, c goredis.Cmder) error {
		f.count()
		switch f.take(c) {
		case "":
			return next(ctx, c)
		case "lost":
			_ = next(ctx, c)
		}
		c.SetErr(errFault)
		return errFault
	}
}

func (f *memberFaults) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, all []goredis.Cmder) error {
		f.count()
		var sent, failed []goredis.Cmder
		for _, c := range all {
			kind := f.take(c)
			if kind == "" || kind == "lost" {
				sent = append(sent, c)
			}
			if kind != "" {
				failed = append(failed, c)
			}
		}
		err := error(nil)
		if len(sent) > 0 {
			err = next(ctx, sent)
		}
		for _, c := range failed {
			c.SetErr(errFault)
			err = errFault
		}
		return err
	}
}

// owner is a process that applies the messages of some partitions of the log: see doubt.go.
type owner struct {
	*member
	session   leaderboard.LogSession
	first     map[int]int // partition -> the offset that was committed before this session
	applied   map[int]int // partition -> the offset after the last applied message
	confirmed string      // the servers on which this session has confirmed the season
	halted    bool        // whether the process is suspended
}

// history is a random sequence of steps of owners and servers. Each message of the log is an entry.
type history struct {
	t         *testing.T
	rng       *rand.Rand
	name      string // of the log
	servers   *shardServers
	store     *store
	log       [3][]leaderboard.Entry
	committed [3]int // by partition
	session   int64
	owners    []*owner
	copies    [][][]any // by shard: earlier copies of its server, oldest first
	rebuilds  int
	counts    map[string]int // how often each step was made
	losses    bool           // whether a failed server's successor may have no data at all
	changes   bool           // whether steps may change the number of shards
	changing  bool           // whether the step change is running
}

func (h *history) run(steps int) {
	for range 3 {
		h.start()
	}
	h.rebalance()
	h.produce(200)
	h.finish()
	h.check()
	h.rebuilds = 0
	for range steps {
		h.step()
		if h.t.Failed() {
			return
		}
	}
	h.finish()
	h.check()
	h.compareWithRebuilt()
}

func (h *history) step() {
	var name string
	var do func()
	o := h.owners[h.rng.IntN(len(h.owners))]
	shard := h.rng.IntN(h.servers.shards)
	switch n := h.rng.IntN(100); {
	case n < 20:
		name, do = "produce", func() { h.produce(1 + h.rng.IntN(20)) }
	case n < 45:
		name, do = "apply", func() { h.apply(o, 1+h.rng.IntN(15)) }
	case n < 60:
		name, do = "advance", func() { h.advance(o) }
	case n < 66:
		name, do = "fault", func() { o.faults.arm([]string{"lost", "delayed", "refused"}[h.rng.IntN(3)]) }
	case n < 70:
		name, do = "release", func() { o.faults.release(h.t.Context()) }
	case n < 74:
		name, do = "pause", func() { o.halted = !o.halted }
	case n < 77:
		name, do = "rebalance", h.rebalance
	case n < 79 && !h.changing:
		name, do = "death", func() { h.die(o) }
	case n < 84:
		name, do = "copy", func() { h.copies[shard] = append(h.copies[shard], h.servers.copyOf(shard)) }
	case n < 89:
		name, do = "failure", func() { h.fail(shard) }
	case n < 96 || h.changing:
		name, do = "follow", func() { o.follow(shard) }
	case n < 98 && h.changes:
		name, do = "change", func() { h.change(o) }
	default:
		name, do = "check", func() { h.finish(); h.check() }
	}
	h.counts[name]++
	do()
}

func (h *history) start() {
	h.owners = append(h.owners, &owner{member: h.servers.join(), applied: map[int]int{}})
}

func (h *history) die(o *owner) {
	h.servers.leave(o.member)
	h.owners = slices.DeleteFunc(h.owners, func(other *owner) bool { return other == o })
	h.start()
	h.rebalance()
}

// rebalance begins a new session of the consumer group, in which processes that are not halted
// own the partitions.
func (h *history) rebalance() {
	h.session++
	var members []*owner
	for _, o := range h.owners {
		if !o.halted {
			o.session, o.applied = leaderboard.LogSession{Generation: h.session, Partitions: len(h.log)}, map[int]int{}
			o.confirmed, o.first = "", map[int]int{}
			members = append(members, o)
		}
	}
	for p := range h.log {
		if len(members) > 0 {
			o := members[h.rng.IntN(len(members))]
			o.first[p], o.applied[p] = h.committed[p], h.committed[p]
		}
	}
}

func (h *history) produce(n int) {
	for range n {
		e := randomEntries(h.rng, 1, 40)[0]
		i := h.rng.IntN(150)
		e.User = leaderboard.UserID(fmt.Sprint("user ", i))
		p := i % len(h.log)
		e.Version = uint64(len(h.log[p]) + 1)
		h.log[p] = append(h.log[p], e)
	}
}

// apply applies the next messages of a partition, and commits them if the index is synced.
func (h *history) apply(o *owner, n int) {
	partitions := slices.Sorted(maps.Keys(o.applied))
	if o.halted || len(partitions) == 0 {
		return
	}
	p := partitions[h.rng.IntN(len(partitions))]
	var entries []leaderboard.Entry
	for _, e := range h.log[p][o.applied[p]:min(o.applied[p]+n, len(h.log[p]))] {
		if h.store.entries[e.User].Version < e.Version {
			h.store.put(e)
		}
		entries = append(entries, h.store.entries[e.User])
	}
	o.applied[p] += len(entries)
	_ = o.Update(h.t.Context(), testSeason, epoch, entries) // the process repeats a failed Update
	if o.Synced() && o.session.Generation == h.session {
		h.committed[p] = max(h.committed[p], o.applied[p])
	}
}

// advance records the positions of a process. If the season is in doubt, the process repeats updates and
// confirms the season: see doubt.go.
func (h *history) advance(o *owner) {
	if o.halted || len(o.applied) == 0 || !o.Synced() {
		return
	}
	var positions []leaderboard.LogPosition
	partitions := slices.Sorted(maps.Keys(o.applied))
	for _, p := range partitions {
		positions = append(positions, leaderboard.LogPosition{Partition: h.name + fmt.Sprint(p), From: int64(o.first[p]), Offset: int64(o.applied[p])})
	}
	doubts, _ := o.Advance(h.t.Context(), positions, h.rng.IntN(4) == 0)
	for _, d := range doubts {
		if (!d.Confirmed || o.confirmed != d.Server) && !h.repeat(o, d, partitions) {
			return
		}
		if o.Confirm(h.t.Context(), testBoard, d, positions, o.session) == nil {
			h.counts["confirmations"]++
			o.confirmed = d.Server
		}
	}
}

// repeat repeats the updates of the messages at and after the positions of a doubt. It reports whether it
// succeeded.
func (h *history) repeat(o *owner, d leaderboard.Doubt, partitions []int) bool {
	users := map[leaderboard.UserID]bool{}
	for i, p := range partitions {
		for _, e := range h.log[p][max(d.Positions[i].Offset, 0):] {
			users[e.User] = true
		}
	}
	var entries []leaderboard.Entry
	for user := range users {
		if e, ok := h.store.entries[user]; ok {
			entries = append(entries, e)
		}
	}
	return o.Update(h.t.Context(), testSeason, epoch, entries) == nil && o.Synced()
}

// fail replaces the server of a shard. The new server has the same state, one of the last three
// copies or, if losses is true, sometimes no data.
func (h *history) fail(shard int) {
	older := h.servers.copyOf(shard)
	if n := len(h.copies[shard]); n > 0 && h.rng.IntN(4) > 0 {
		older = h.copies[shard][n-1-h.rng.IntN(min(n, 3))]
	}
	if h.losses && h.rng.IntN(6) == 0 {
		older = nil
	}
	h.servers.fail(shard, older)
	for _, o := range h.owners {
		if h.rng.IntN(2) == 0 {
			o.follow(shard)
		}
	}
}

// change changes the number of shards by a Rebuild. Other steps run while the Rebuild reads the store.
// After it has read the store, a server may fail.
func (h *history) change(o *owner) {
	if o.halted {
		return
	}
	h.changing = true
	defer func() { h.changing = false }()
	users := slices.Sorted(maps.Keys(h.store.entries))
	scan := func(yield func(leaderboard.Entry, error) bool) {
		for _, user := range users {
			if h.rng.IntN(20) == 0 {
				h.step()
			}
			if !yield(h.store.entries[user], nil) {
				return
			}
		}
		if h.rng.IntN(2) == 0 {
			shard := h.rng.IntN(h.servers.shards)
			o.faults.after(1+h.rng.IntN(40), func() { h.fail(shard) })
		}
	}
	ctx, cancel := context.WithTimeout(h.t.Context(), 10*time.Second)
	defer cancel()
	shards := append(otherShards, h.servers.shards)[h.rng.IntN(len(otherShards)+1)]
	if o.Rebuild(ctx, boardOf(shards), testSeason, epoch, scan) == nil {
		h.counts[fmt.Sprint("changes to ", shards)]++
	}
	o.faults.after(0, nil)
}

// finish runs all processes until all messages are applied and the season can be read.
func (h *history) finish() {
	h.t.Helper()
	for _, o := range h.owners {
		o.halted = false
		o.followAll()
		o.faults.release(h.t.Context())
		o.faults.disarm()
	}
	h.rebalance()
	eventually(h.t, "the history finishes", func(ctx context.Context) error {
		for _, o := range h.owners {
			if loaded, err := o.Loaded(ctx, testSeason); err == nil && !loaded {
				h.rebuilds++
				scan := &partScans{store: h.store}
				if err := o.Restore(ctx, testBoard, testSeason, epoch, scan.scan); err != nil {
					return err
				}
			}
			for range o.applied {
				h.apply(o, 1000)
			}
			h.advance(o)
			if !o.Synced() {
				return errors.New("a process is not synced")
			}
		}
		for _, o := range h.owners {
			if _, _, err := o.Page(ctx, leaderboard.Ladder{SeasonKey: testSeason}, 1, 1, leaderboard.Competition); err != nil {
				return err
			}
			for p, n := range o.applied {
				if n < len(h.log[p]) {
					return errors.New("not all messages are applied")
				}
			}
		}
		return nil
	})
}

// check compares all ranks that one process reads with ranks computed from the store.
func (h *history) check() {
	h.t.Helper()
	checkLadders(h.t, h.owners[h.rng.IntN(len(h.owners))].Index, h.store.entries)
}

func (h *history) compareWithRebuilt() {
	h.t.Helper()
	x := h.owners[0].Index
	got := contents(h.t, x)
	h.store.rebuild(h.t, x)
	if diff := cmp.Diff(contents(h.t, x), got); diff != "" {
		h.t.Errorf("the index differs from a rebuilt one (-rebuilt +index):\n%s", diff)
	}
}

// runHistories runs random histories of a season that begins with the given number of shards. For
// losses and changes, see history.
func runHistories(t *testing.T, shards, runs int, losses, changes bool) {
	runSeed := seed.New(t)
	servers := startShardServers(t, shards, 4)
	for run := range runs {
		h := &history{t: t, rng: rand.New(rand.NewPCG(runSeed, uint64(run))), name: fmt.Sprint("log ", run, "/"), servers: servers, store: newStore(0), copies: make([][][]any, shards), counts: map[string]int{}, losses: losses, changes: changes}
		h.run(200)
		t.Logf("run %d: %d rebuilds, %v", run, h.rebuilds, h.counts)
		if h.rebuilds > 0 && !losses && !changes {
			t.Errorf("run %d: %d rebuilds after failures of servers, want 0", run, h.rebuilds)
		}
		must(t, h.owners[0].Drop(t.Context(), testSeason))
		for _, o := range h.owners {
			servers.leave(o.member)
		}
		if t.Failed() {
			return
		}
	}
}

// Servers of shards fail, and servers with older copies replace them. Owners of partitions end, or pause
// and continue. Their calls are lost or arrive late, and they notice failures late. In the end, all ranks
// are right, and the season was not rebuilt.
func TestShardsFailInRandomHistories(t *testing.T) {
	needs.NoRace(t, "histories with lost servers run under the detector")
	smallTrees(t)
	eachNumberOfShards(t, func(t *testing.T, shards int) { runHistories(t, shards, needs.More(t, 1), false, false) })
}

// Some servers also lose all data. Lost shards are then filled from the store. In the end, all ranks are
// right.
func TestShardsAreLostInRandomHistories(t *testing.T) {
	smallTrees(t)
	eachNumberOfShards(t, func(t *testing.T, shards int) { runHistories(t, shards, needs.More(t, 1), true, false) })
}

// The number of shards changes often, and servers fail before, during and after the changes. In the end,
// all ranks are right.
func TestTheNumberOfShardsChangesInRandomHistories(t *testing.T) {
	needs.NoRace(t, "histories with lost servers run under the detector")
	smallTrees(t)
	runHistories(t, 4, needs.More(t, 1), false, true)
}
