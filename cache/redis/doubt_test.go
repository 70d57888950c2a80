package redis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	goredis "github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

// at returns the positions of the partitions "a/0", "a/1", … of a log.
func at(offsets ...int64) (positions []leaderboard.LogPosition) {
	for i, offset := range offsets {
		positions = append(positions, leaderboard.LogPosition{Partition: "a/" + string(rune('0'+i)), Offset: offset})
	}
	return positions
}

// advance records positions, and returns the doubt about the test's season, or nil.
func advance(t *testing.T, x *Index, positions []leaderboard.LogPosition) *leaderboard.Doubt {
	t.Helper()
	doubts, err := x.Advance(t.Context(), positions, false)
	must(t, err)
	for i := range doubts {
		if doubts[i].SeasonKey == testSeason {
			return &doubts[i]
		}
	}
	return nil
}

// checkInDoubt checks that a read of ranks fails, and that the season counts as loaded.
func checkInDoubt(t *testing.T, x *Index) {
	t.Helper()
	if _, _, err := x.Page(t.Context(), leaderboard.Ladder{SeasonKey: testSeason}, 1, 10, leaderboard.Competition); !errors.Is(err, leaderboard.ErrRankUnavailable) {
		t.Errorf("Page: error %v, want ErrRankUnavailable", err)
	}
	if loaded, err := x.Loaded(t.Context(), testSeason); !loaded || err != nil {
		t.Errorf("Loaded = %v, %v, want true, nil", loaded, err)
	}
}

// restart kills a server and starts it again. The server keeps its data.
func restart(t *testing.T, c *cluster.Cluster, x *Index) {
	t.Helper()
	must(t, c.Servers[0].Kill())
	must(t, c.Servers[0].Start(t.Context()))
	eventually(t, "the server answers", func(ctx context.Context) error { return x.client().Ping(ctx).Err() })
}

// eachNumberOfShards runs a test with one shard and with several.
func eachNumberOfShards(t *testing.T, test func(t *testing.T, shards int)) {
	for _, shards := range []int{1, 4} {
		t.Run(fmt.Sprint("shards=", shards), func(t *testing.T) { test(t, shards) })
	}
}

// The index has recorded a position in each partition. An owner is the consumer that applies the
// messages of a partition. If a new owner's first applied message is after the position, the owner must
// repeat the Updates of the messages between the two. Reads continue meanwhile. After a
// Rebuild, the positions are still known.
func TestAnOwnerFollowsTheRecordedPositions(t *testing.T) {
	eachNumberOfShards(t, anOwnerFollowsTheRecordedPositions)
}

func anOwnerFollowsTheRecordedPositions(t *testing.T, shards int) {
	x, s := openIndex(t, options([]string{cluster.Redis(t)}, shards)), newStore(50)
	s.rebuild(t, x)
	from := func(first, offset int64) []leaderboard.LogPosition {
		return []leaderboard.LogPosition{{Partition: "a/0", From: first, Offset: offset}, {Partition: "a/1", From: 5, Offset: 6}}
	}
	record := func(positions []leaderboard.LogPosition, want ...int64) *leaderboard.Doubt {
		t.Helper()
		doubts, err := x.Advance(t.Context(), positions, true)
		must(t, err)
		var got []int64
		if len(doubts) > 0 {
			for _, p := range doubts[0].Positions {
				got = append(got, p.Offset)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("Advance to %+v returned the positions (-want +got):\n%s", positions, diff)
		}
		if len(doubts) == 0 {
			return nil
		}
		return &doubts[0]
	}
	record(from(8, 10)) // no position is recorded yet, so any first message is accepted
	record(from(9, 12))
	record(from(12, 12))
	d := record(from(13, 14), 12, 6)
	if d.Confirmed {
		t.Error("the doubt is already confirmed, want a doubt that is not")
	}
	checkLadders(t, x, s.entries)
	must(t, x.Confirm(t.Context(), testBoard, *d, from(13, 14), leaderboard.LogSession{Generation: 1, Partitions: 2}))
	record(from(13, 15))

	must(t, x.Drop(t.Context(), testSeason))
	s.rebuild(t, x)
	record(from(15, 17))
	record(from(18, 19), 17, 6)
	checkLadders(t, x, s.entries)
}

// After a restart with its data, a season is in doubt until the owners of all partitions have
// confirmed the season. No Rebuild is needed.
func TestARestartPutsASeasonInDoubt(t *testing.T) { eachNumberOfShards(t, aRestartPutsASeasonInDoubt) }

func aRestartPutsASeasonInDoubt(t *testing.T, shards int) {
	c := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{AppendOnly: true})
	x, s := openIndex(t, options(addrsOf(c), shards)), newStore(50)
	s.rebuild(t, x)
	s.update(t, x, entry("user 3", 2, 77, "F"))
	if d := advance(t, x, at(10, 5)); d != nil {
		t.Fatalf("Advance returned %+v, want no doubt", d)
	}
	restart(t, c, x)
	checkInDoubt(t, x)
	s.update(t, x, entry("user 4", 2, 78, "M")) // an update while the season is in doubt counts
	checkInDoubt(t, x)

	d := advance(t, x, at(12, 6))
	if d == nil {
		t.Fatal("Advance returned no doubt about the season, want one")
	}
	if diff := cmp.Diff(at(10, 5), d.Positions); diff != "" {
		t.Errorf("recorded positions (-want +got):\n%s", diff)
	}
	// A session is a generation of the consumer group.
	confirm := func(session int64, positions []leaderboard.LogPosition) {
		t.Helper()
		must(t, x.Confirm(t.Context(), testBoard, *d, positions, leaderboard.LogSession{Generation: session, Partitions: 2}))
	}
	confirm(7, at(12))
	checkInDoubt(t, x) // the second partition is not confirmed
	confirm(6, at(12, 6)[1:])
	checkInDoubt(t, x) // a confirmation of an older session, by a former owner, does not count
	confirm(8, at(12, 6)[1:])
	checkInDoubt(t, x) // confirmations of two sessions do not count together
	wrong := *d
	wrong.Server = strings.Repeat("another server"+serverSeparator, shards-1) + "another server"
	must(t, x.Confirm(t.Context(), testBoard, wrong, at(12, 6), leaderboard.LogSession{Generation: 8, Partitions: 2}))
	checkInDoubt(t, x)
	confirm(8, at(12))
	checkLadders(t, x, s.entries)
	if d := advance(t, x, at(12, 6)); d != nil {
		t.Fatalf("Advance returned %+v after all confirmations, want no doubt", d)
	}

	// A second restart may lose updates again. So the season is in doubt again, and the earlier
	// confirmations no longer count.
	restart(t, c, x)
	if d = advance(t, x, at(13, 6)); d == nil || d.Confirmed {
		t.Fatalf("Advance returned %+v after another restart, want a doubt that is not confirmed", d)
	}
	if diff := cmp.Diff(at(12, 6), d.Positions); diff != "" {
		t.Errorf("recorded positions (-want +got):\n%s", diff)
	}
}

// A restarted server counts as another server. A process must repeat the updates that it made before
// the restart, even if other processes have already confirmed the season.
func TestUpdatesOnAFormerServerAreRepeated(t *testing.T) {
	eachNumberOfShards(t, updatesOnAFormerServerAreRepeated)
}

func updatesOnAFormerServerAreRepeated(t *testing.T, shards int) {
	c := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{AppendOnly: true})
	o := options(addrsOf(c), shards)
	x, other, s := openIndex(t, o), openIndex(t, o), newStore(50)
	s.rebuild(t, x)
	s.update(t, x, entry("user 3", 2, 77, "F"))
	s.update(t, other, entry("user 4", 2, 77, "F"))
	advance(t, x, at(4))
	restart(t, c, x)
	d := advance(t, x, at(5))
	must(t, x.Confirm(t.Context(), testBoard, *d, at(5), leaderboard.LogSession{Partitions: 1}))
	checkLadders(t, x, s.entries)
	if d = advance(t, other, at(9)); d == nil {
		t.Fatal("Advance of a process with updates on the former server returned no doubt, want one")
	}
	if diff := cmp.Diff(at(5), d.Positions); diff != "" {
		t.Errorf("recorded positions (-want +got):\n%s", diff)
	}
	must(t, other.Confirm(t.Context(), testBoard, *d, at(9), leaderboard.LogSession{Partitions: 1}))
	if d = advance(t, other, at(10)); d != nil {
		t.Errorf("Advance returned %+v after the confirmation, want no doubt", d)
	}
}

// A change of a board is not in the log. So Confirm for a recreated board drops a season in doubt.
func TestASeasonOfOtherRulesIsLost(t *testing.T) { eachNumberOfShards(t, aSeasonOfOtherRulesIsLost) }

func aSeasonOfOtherRulesIsLost(t *testing.T, shards int) {
	c := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{AppendOnly: true})
	x, s := openIndex(t, options(addrsOf(c), shards)), newStore(50)
	s.rebuild(t, x)
	advance(t, x, at(4))
	restart(t, c, x)
	d := advance(t, x, at(5))
	recreated := *testBoard
	recreated.CreatedAt = epoch
	must(t, x.Confirm(t.Context(), &recreated, *d, at(5), leaderboard.LogSession{Partitions: 1}))
	checkUnavailable(t, x)
	s.rebuild(t, x)
	checkLadders(t, x, s.entries)
}

// If no process confirms a season, the season counts as not loaded after doubtTimeout, so the
// service rebuilds it.
func TestADoubtEnds(t *testing.T) { eachNumberOfShards(t, aDoubtEnds) }

func aDoubtEnds(t *testing.T, shards int) {
	c := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{AppendOnly: true})
	x, s := openIndex(t, options(addrsOf(c), shards)), newStore(50)
	s.rebuild(t, x)
	restart(t, c, x)
	checkInDoubt(t, x)
	season := x.season(testSeason)
	season.doubtSince.Add(-int64(doubtTimeout))
	checkUnavailable(t, x)
	s.rebuild(t, x)
	checkLadders(t, x, s.entries)
	if season.doubtSince.Load() != 0 {
		t.Error("the season is still in doubt after a Rebuild")
	}
}

// keepUp acts as the owner of a log's only partition, which has all entries: if the season is in
// doubt, keepUp repeats all updates and confirms the season.
func (s *store) keepUp(ctx context.Context, x *Index) error {
	doubts, err := x.Advance(ctx, at(1), false)
	if err != nil {
		return err
	}
	for _, d := range doubts {
		s.mu.Lock()
		entries := slices.Collect(maps.Values(s.entries))
		s.mu.Unlock()
		if err := x.Update(ctx, testSeason, epoch, entries); err != nil {
			return err
		}
		if err := x.Confirm(ctx, testBoard, d, at(1), leaderboard.LogSession{Partitions: 1}); err != nil {
			return err
		}
	}
	return nil
}

// moveSlot moves the slot of a key to another master of a cluster, as redis-cli --cluster reshard does.
func moveSlot(t testing.TB, x *Index, key string) {
	t.Helper()
	beginMove(t, x, key)()
}

// finish acts as the owner of the log until all updates are made and reads have ranks.
func (s *store) finish(t *testing.T, x *Index) {
	t.Helper()
	eventually(t, "all updates are made, and reads have ranks", func(ctx context.Context) error {
		if err := s.keepUp(ctx, x); err != nil || !x.Synced() {
			return errors.Join(err, leaderboard.ErrRankUnavailable)
		}
		_, _, err := x.Page(ctx, leaderboard.Ladder{SeasonKey: testSeason}, 1, 10, leaderboard.Competition)
		return err
	})
}

// checkValidity is the time for which a check of the server is valid (see lua/server.lua), also on the
// server to which a slot has moved.
const checkValidity = 100 * time.Millisecond

// beginMove begins to move a slot, and returns a function that moves its keys.
func beginMove(t testing.TB, x *Index, key string) (finish func()) {
	t.Helper()
	c := x.client().(*goredis.ClusterClient)
	slot, err := c.ClusterKeySlot(t.Context(), key).Result()
	must(t, err)
	source, err := c.MasterForKey(t.Context(), key)
	must(t, err)
	var target *goredis.Client
	var mu sync.Mutex
	must(t, c.ForEachMaster(t.Context(), func(_ context.Context, m *goredis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		if m.Options().Addr != source.Options().Addr {
			target = m
		}
		return nil
	}))
	id := func(m *goredis.Client) string {
		name, err := m.Do(t.Context(), "CLUSTER", "MYID").Text()
		must(t, err)
		return name
	}
	from, to := id(source), id(target)
	must(t, target.Do(t.Context(), "CLUSTER", "SETSLOT", slot, "IMPORTING", from).Err())
	must(t, source.Do(t.Context(), "CLUSTER", "SETSLOT", slot, "MIGRATING", to).Err())
	return func() {
		host, port, err := net.SplitHostPort(target.Options().Addr)
		must(t, err)
		for {
			keys, err := source.ClusterGetKeysInSlot(t.Context(), int(slot), 10).Result()
			must(t, err)
			if len(keys) == 0 {
				break
			}
			args := []any{"MIGRATE", host, port, "", 0, 5000, "KEYS"}
			for _, key := range keys {
				args = append(args, key)
			}
			must(t, source.Do(t.Context(), args...).Err())
		}
		for _, m := range []*goredis.Client{target, source} {
			must(t, m.Do(t.Context(), "CLUSTER", "SETSLOT", slot, "NODE", to).Err())
		}
	}
}

// While a slot moves, updates of its shard fail. So reads fail too, although no key has moved yet.
func TestReadsFailWhileASlotMoves(t *testing.T) {
	needs.Slow(t, "clusters")
	x, s := openIndex(t, options(addrsOf(cluster.Private(t, cluster.StartRedisCluster, cluster.RedisConfig{})), 1)), newStore(50)
	s.rebuild(t, x)
	must(t, s.keepUp(t.Context(), x))
	finish := beginMove(t, x, (*x.season(testSeason).control.Load())[0])
	if page, _, err := x.Page(t.Context(), leaderboard.Ladder{SeasonKey: testSeason}, 1, 10, leaderboard.Competition); err == nil {
		t.Errorf("a page has %d standings while the slot moves, want an error", len(page))
	}
	e := entry("user 1", 2, 7, "F")
	s.put(e)
	if err := x.Update(t.Context(), testSeason, epoch, []leaderboard.Entry{e}); !isMoving(err) {
		t.Errorf("an update while the slot moves has the error %v, want the server's error about a key that is not local", err)
	}
	finish()
	must(t, sleep(t.Context(), checkValidity))
	s.finish(t, x)
	checkLadders(t, x, s.entries)
}

// Under load, a slot moves to another master, and then moves again. The season has no ranks meanwhile, and
// exact ranks afterwards, without a Rebuild. Every page has all its standings.
func TestASlotMovesUnderLoad(t *testing.T) {
	needs.Slow(t, "clusters")
	eachNumberOfShards(t, aSlotMovesUnderLoad)
}

func aSlotMovesUnderLoad(t *testing.T, shards int) {
	c := cluster.Private(t, cluster.StartRedisCluster, cluster.RedisConfig{})
	o := options(addrsOf(c), shards)
	o.UpdateTimeout = 2 * time.Second
	x, s := openIndex(t, o), newStore(3000)
	s.rebuild(t, x)
	must(t, s.keepUp(t.Context(), x))
	control := (*x.season(testSeason).control.Load())[0]

	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	const writers = 8 // each has its own users
	var updates atomic.Int64
	answers := 0
	for i := range uint64(writers) {
		load.Go(func() {
			for version := i + writers; ctx.Err() == nil; version += writers {
				e := entry(fmt.Sprint("user ", version%3000), version, int64(version%1000), "F")
				s.put(e)
				_ = x.Update(ctx, testSeason, epoch, []leaderboard.Entry{e}) // a failed update is repeated
				updates.Add(1)
			}
		})
	}
	load.Go(func() {
		for ctx.Err() == nil {
			if page, _, err := x.Page(ctx, leaderboard.Ladder{SeasonKey: testSeason}, 1, 10, leaderboard.Competition); err == nil {
				if answers++; len(page) != 10 {
					t.Errorf("a page has %d standings while the slot moves, want 10", len(page))
				}
			}
		}
	})
	for range 2 {
		must(t, sleep(ctx, 200*time.Millisecond))
		moveSlot(t, x, control)
		must(t, sleep(ctx, checkValidity))
		eventually(t, "the season is available", func(ctx context.Context) error {
			if err := s.keepUp(ctx, x); err != nil {
				return err
			}
			loaded, err := x.Loaded(ctx, testSeason)
			if err == nil && !loaded {
				t.Fatal("the season was lost while its slot moved")
			}
			_, _, err = x.Page(ctx, leaderboard.Ladder{SeasonKey: testSeason}, 1, 10, leaderboard.Competition)
			return err
		})
	}
	stop()
	load.Wait()
	s.finish(t, x)
	checkLadders(t, x, s.entries)
	t.Logf("%d updates, %d answers", updates.Load(), answers)
}
