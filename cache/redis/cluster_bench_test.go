package redis

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

// BenchmarkFaultsOfACluster loads LEADERBOARD_BENCH_USERS users into a season with one shard and into a
// season with three shards, on a cluster of three masters and three replicas. The servers of each season
// then fail in three ways (see failServersOf), under 500 updates/s of each season and 500 reads/s. After
// each fault, the benchmark checks 2,000 ranks and 200 pages of each season. It logs how long each season
// had no ranks, and which shards were rebuilt.
func BenchmarkFaultsOfACluster(b *testing.B) {
	f := newFaultyCluster(b, int64(benchUsers(b)))
	f.check("after the load")
	for b.Loop() {
		for _, s := range f.seasons {
			f.failServersOf(s)
		}
	}
}

// failServersOf makes the servers of a season's first shard fail in three ways, one after another.
func (f *faultyCluster) failServersOf(s *scaledSeason) {
	b, key := f.b, f.control(s)[0]
	f.fault(fmt.Sprintf("a master of %s is killed", s.Board), key, func(master, replica *cluster.Server) {
		must(b, master.Kill())
		f.waitForPromotion(replica)
		must(b, master.Start(b.Context()))
	})
	f.fault(fmt.Sprintf("a master of %s and its replica are killed, and start again without data", s.Board), key, func(master, replica *cluster.Server) {
		must(b, errors.Join(master.Kill(), replica.Kill()))
		f.wait(3 * time.Second)
		must(b, errors.Join(master.Start(b.Context()), replica.Start(b.Context())))
	})
	f.fault(fmt.Sprintf("a slot of %s moves", s.Board), key, func(_, _ *cluster.Server) { moveSlot(b, f.reader, key) })
}

// scaledSeason is a season of n users, whose first scores are 0 to n-1: see scaleUser.
type scaledSeason struct {
	leaderboard.SeasonKey
	board    *leaderboard.Board
	rebuilds []string  // the rebuilt parts, since the fault began
	failed   int       // the reads without ranks, since the fault began
	first    time.Time // of the first of these reads
	last     time.Time // of the last of these reads
}

// faultyCluster is a cluster with two seasons, two owners that update both seasons, and a reader. The
// number of a user is the user's first score. Message i of the log gives a user the score n+i in both
// seasons.
type faultyCluster struct {
	b       *testing.B
	n       int64
	rng     *rand.Rand // used by check
	servers *cluster.Cluster
	reader  *Index
	seasons []*scaledSeason

	mu      sync.Mutex
	scores  map[int64]int64 // number of a user -> score, if it has changed
	changed []int64         // the users of all messages, oldest message first
	owners  []*benchOwner
}

// benchOwner owns one partition of the log: the messages of the users with even numbers, or with
// odd numbers.
type benchOwner struct {
	*Index
	messages []int64 // the users of its messages
}

func newFaultyCluster(b *testing.B, n int64) *faultyCluster {
	f := &faultyCluster{b: b, n: n, rng: rand.New(rand.NewPCG(seed.New(b), 0)), servers: cluster.Private(b, cluster.StartRedisCluster, cluster.RedisConfig{}), scores: map[int64]int64{}}
	o := options(f.servers.Addrs(), 1)
	f.reader = openIndex(b, o)
	c := f.reader.client().(*goredis.ClusterClient)
	must(b, c.ForEachShard(b.Context(), func(ctx context.Context, s *goredis.Client) error {
		return s.ConfigSet(ctx, "cluster-require-full-coverage", "no").Err()
	}))
	for range 2 {
		x, err := newIndex(f.reader.o)
		must(b, err)
		f.owners = append(f.owners, &benchOwner{Index: x})
		b.Cleanup(func() { must(b, x.Close()) })
	}
	for _, shards := range []int{1, 3} {
		board := *testBoard
		board.ID, board.Shards = leaderboard.BoardID(fmt.Sprint("shards-", shards)), shards
		s := &scaledSeason{SeasonKey: leaderboard.SeasonKey{Board: board.ID, Season: leaderboard.SeasonAll}, board: &board}
		f.seasons = append(f.seasons, s)
		start := time.Now()
		must(b, f.reader.Rebuild(b.Context(), s.board, s.SeasonKey, epoch, f.scan(s, leaderboard.Part{})))
		b.Logf("%d users in %d shards are loaded after %v", n, shards, time.Since(start).Round(time.Second))
	}
	return f
}

func (f *faultyCluster) entry(s *scaledSeason, user, score int64, version uint64) leaderboard.Entry {
	return leaderboard.Entry{
		SeasonKey: s.SeasonKey, User: scaleUser(f.n, user), Version: version, AchievedAt: epoch,
		Key: testBoard.ScorePrefix(leaderboard.Score(score), epoch),
	}
}

func (f *faultyCluster) stored(s *scaledSeason, user int64) leaderboard.Entry {
	f.mu.Lock()
	defer f.mu.Unlock()
	if score, ok := f.scores[user]; ok {
		return f.entry(s, user, score, uint64(score-f.n)+2)
	}
	return f.entry(s, user, user, 1)
}

func (f *faultyCluster) scan(s *scaledSeason, part leaderboard.Part) iter.Seq2[leaderboard.Entry, error] {
	return func(yield func(leaderboard.Entry, error) bool) {
		for user := f.n - 1; user >= 0; user-- {
			if e := f.stored(s, user); part.Contains(e.User) && !yield(e, nil) {
				return
			}
		}
	}
}

func (f *faultyCluster) control(s *scaledSeason) []string {
	return f.reader.controlKeys(s.SeasonKey, s.board.Shards)
}

// fault makes the servers of a key fail under load, waits until both seasons have ranks again, and checks
// the ranks.
func (f *faultyCluster) fault(name, key string, fail func(master, replica *cluster.Server)) {
	f.b.Helper()
	for _, s := range f.seasons {
		s.rebuilds, s.failed, s.first, s.last = nil, 0, time.Time{}, time.Time{}
	}
	ctx, stop := context.WithCancel(f.b.Context())
	var load sync.WaitGroup
	for i, o := range f.owners {
		load.Go(func() { f.own(ctx, i, o) })
	}
	load.Go(func() { f.read(ctx) })
	f.wait(5 * time.Second) // so that positions are recorded
	master, replica := f.serversOf(key)
	start := time.Now()
	fail(master, replica)
	f.b.Logf("%s: the fault took %v", name, time.Since(start).Round(10*time.Millisecond))
	bounded, cancel := context.WithTimeout(ctx, 10*time.Minute)
	for !f.available(bounded) {
		if sleep(bounded, 100*time.Millisecond) != nil {
			f.b.Fatalf("%s: a season has no ranks after 10 minutes", name)
		}
	}
	cancel()
	f.wait(5 * time.Second)
	stop()
	load.Wait()
	for _, s := range f.seasons {
		without := "always had ranks"
		if s.failed > 0 {
			without = fmt.Sprintf("had no ranks from %v to %v after the fault (%d reads)", s.first.Sub(start).Round(10*time.Millisecond), s.last.Sub(start).Round(10*time.Millisecond), s.failed)
		}
		f.b.Logf("%s: %s %s; rebuilt: %q", name, s.Board, without, s.rebuilds)
	}
	f.finish()
	f.check(name)
}

func (f *faultyCluster) wait(d time.Duration) { must(f.b, sleep(f.b.Context(), d)) }

// available restores lost shards, and reports whether both seasons have ranks.
func (f *faultyCluster) available(ctx context.Context) bool {
	all := true
	for _, s := range f.seasons {
		if loaded, err := f.reader.Loaded(ctx, s.SeasonKey); err == nil && !loaded {
			start := time.Now()
			err := f.reader.Restore(ctx, s.board, s.SeasonKey, time.Now(), func(part leaderboard.Part) iter.Seq2[leaderboard.Entry, error] {
				f.mu.Lock()
				defer f.mu.Unlock()
				s.rebuilds = append(s.rebuilds, fmt.Sprintf("part %d of %d", part.Index, max(part.Of, 1)))
				return f.scan(s, part)
			})
			f.b.Logf("%s: Restore took %v and returned the error %v", s.Board, time.Since(start).Round(100*time.Millisecond), err)
		}
		_, _, err := f.reader.Page(ctx, leaderboard.Ladder{SeasonKey: s.SeasonKey}, 1, 10, leaderboard.Competition)
		all = all && err == nil
	}
	return all
}

// own makes 250 updates/s of each season, and records positions.
func (f *faultyCluster) own(ctx context.Context, partition int, o *benchOwner) {
	rng, next := rand.New(rand.NewPCG(rand.Uint64(), 0)), time.Now()
	for tick := time.NewTicker(40 * time.Millisecond); ctx.Err() == nil; {
		<-tick.C
		f.mu.Lock()
		var users []int64
		for range 10 {
			user := rng.Int64N(f.n/2)*2 + int64(partition)
			f.scores[user] = f.n + int64(len(f.changed))
			f.changed = append(f.changed, user)
			users = append(users, user)
		}
		o.messages = append(o.messages, users...)
		f.mu.Unlock()
		f.update(ctx, o, users)
		if time.Now().After(next) {
			next = time.Now().Add(time.Second)
			if f.advance(ctx, partition, o) {
				next = time.Now().Add(100 * time.Millisecond)
			}
		}
	}
}

// update passes the present entries of users to both seasons. The index repeats failed updates.
func (f *faultyCluster) update(ctx context.Context, o *benchOwner, users []int64) {
	for _, s := range f.seasons {
		var entries []leaderboard.Entry
		for _, user := range users {
			entries = append(entries, f.stored(s, user))
		}
		_ = o.Update(ctx, s.SeasonKey, time.Now(), entries)
	}
}

// advance records the position of an owner, and repeats updates of seasons in doubt. It reports whether a
// season is in doubt.
func (f *faultyCluster) advance(ctx context.Context, partition int, o *benchOwner) bool {
	if !o.Synced() {
		return false
	}
	positions := []leaderboard.LogPosition{{Partition: fmt.Sprint("partition ", partition), Offset: int64(len(o.messages))}}
	doubts, _ := o.Advance(ctx, positions, false)
	for _, d := range doubts {
		s := f.seasons[slices.IndexFunc(f.seasons, func(s *scaledSeason) bool { return s.SeasonKey == d.SeasonKey })]
		if !d.Confirmed {
			var entries []leaderboard.Entry
			for _, user := range o.messages[max(d.Positions[0].Offset, 0):] {
				entries = append(entries, f.stored(s, user))
			}
			if o.Update(ctx, d.SeasonKey, time.Now(), entries) != nil || !o.Synced() {
				return true
			}
		}
		_ = o.Confirm(ctx, s.board, d, positions, leaderboard.LogSession{Generation: 1, Partitions: len(f.owners)})
	}
	return len(doubts) > 0
}

// read asks for 500 ranks/s, and records when a season has no ranks. A season with ranks must have all
// users.
func (f *faultyCluster) read(ctx context.Context) {
	rng := rand.New(rand.NewPCG(rand.Uint64(), 0))
	for tick := time.NewTicker(4 * time.Millisecond); ctx.Err() == nil; {
		<-tick.C
		for _, s := range f.seasons {
			before := f.stored(s, rng.Int64N(f.n))
			bounded, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
			all, v, err := f.reader.Standings(bounded, leaderboard.Ladder{SeasonKey: s.SeasonKey}, []leaderboard.UserID{before.User}, leaderboard.Competition)
			cancel()
			switch {
			case ctx.Err() != nil:
			case err != nil:
				if s.last = time.Now(); s.failed == 0 {
					s.first = s.last
				}
				s.failed++
			case v.Size != f.n || all[0].Ranks.Ordinal < 1 || all[0].Ranks.Ordinal > f.n:
				f.b.Errorf("%s: user %q has the ranks %+v among %d standings, want ranks among %d standings", s.Board, before.User, all[0].Ranks, v.Size, f.n)
			}
		}
	}
}

// finish waits until all updates are made and no season is in doubt.
func (f *faultyCluster) finish() {
	ctx, cancel := context.WithTimeout(f.b.Context(), time.Minute)
	defer cancel()
	for done := false; !done; {
		if sleep(ctx, 100*time.Millisecond) != nil {
			f.b.Fatal("the index is not up to date a minute after the load has ended")
		}
		done = f.available(ctx)
		for partition, o := range f.owners {
			done = o.Synced() && !f.advance(ctx, partition, o) && done
		}
	}
}

// check compares random ranks and pages of both seasons with the ranks that follow from the
// scores.
func (f *faultyCluster) check(when string) {
	f.b.Helper()
	var latest, moved []int64 // users with new scores: latest in order of rank, moved in order of first score
	for user := range f.scores {
		latest, moved = append(latest, user), append(moved, user)
	}
	slices.SortFunc(latest, func(x, y int64) int { return int(f.scores[y] - f.scores[x]) })
	slices.Sort(moved)
	userAt := func(position int64) int64 { // positions begin at 1
		if position <= int64(len(latest)) {
			return latest[position-1]
		}
		position -= int64(len(latest))
		// Find the user at this position among the users without new scores, greatest first score first.
		low, high := int64(0), f.n-1
		for low < high {
			middle := (low + high + 1) / 2
			above, _ := slices.BinarySearch(moved, middle)
			if f.n-middle-int64(len(moved)-above) >= position {
				low = middle
			} else {
				high = middle - 1
			}
		}
		return low
	}
	for _, s := range f.seasons {
		l := leaderboard.Ladder{SeasonKey: s.SeasonKey}
		equal := func(got leaderboard.Standing, position int64) {
			if want := (leaderboard.Ranks{Competition: position, Dense: position, Ordinal: position}); got.User != scaleUser(f.n, userAt(position)) || got.Ranks != want {
				f.b.Fatalf("%s, %s: got user %q with the ranks %+v, want user %q with %+v", when, s.Board, got.User, got.Ranks, scaleUser(f.n, userAt(position)), want)
			}
		}
		for range 2000 {
			position := 1 + f.rng.Int64N(f.n)
			if f.rng.IntN(4) == 0 && len(latest) > 0 {
				position = 1 + f.rng.Int64N(int64(len(latest)))
			}
			all, v, err := f.reader.Standings(f.b.Context(), l, []leaderboard.UserID{scaleUser(f.n, userAt(position))}, leaderboard.Competition)
			must(f.b, err)
			if v.Size != f.n {
				f.b.Fatalf("%s: %s has %d standings, want %d", when, s.Board, v.Size, f.n)
			}
			equal(all[0], position)
		}
		for range 200 {
			first := 1 + f.rng.Int64N(f.n-99)
			page, _, err := f.reader.Page(f.b.Context(), l, first, 100, leaderboard.Competition)
			must(f.b, err)
			for i, st := range page {
				equal(st, first+int64(i))
			}
		}
	}
	f.b.Logf("%s: 4000 ranks and 400 pages are right, after %d updates of %d users", when, 2*len(f.changed), len(moved))
}

func (f *faultyCluster) serversOf(key string) (master, replica *cluster.Server) {
	c := f.reader.client().(*goredis.ClusterClient)
	m, err := c.MasterForKey(f.b.Context(), key)
	must(f.b, err)
	ranges, err := f.reader.client().ClusterSlots(f.b.Context()).Result()
	must(f.b, err)
	server := func(addr string) *cluster.Server {
		i := slices.IndexFunc(f.servers.Servers, func(s *cluster.Server) bool { return s.Addr == addr })
		if i < 0 {
			f.b.Fatalf("the cluster has no server %s", addr)
		}
		return f.servers.Servers[i]
	}
	for _, r := range ranges {
		if len(r.Nodes) == 2 && r.Nodes[0].Addr == m.Options().Addr {
			return server(r.Nodes[0].Addr), server(r.Nodes[1].Addr)
		}
	}
	f.b.Fatalf("the master %s has no replica", m.Options().Addr)
	return nil, nil
}

func (f *faultyCluster) waitForPromotion(replica *cluster.Server) {
	c, start := goredis.NewClient(&goredis.Options{Addr: replica.Addr}), time.Now()
	defer func() { _ = c.Close() }()
	for {
		if info, err := c.Info(f.b.Context(), "replication").Result(); err == nil && strings.Contains(info, "role:master") {
			f.b.Logf("the replica is a master after %v", time.Since(start).Round(10*time.Millisecond))
			return
		}
		f.wait(20 * time.Millisecond)
	}
}
