package redis

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/test/cluster"
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
	doubts, err := x.Advance(t.Context(), positions)
	must(t, err)
	for i := range doubts {
		if doubts[i].SeasonKey == testSeason {
			return &doubts[i]
		}
	}
	return nil
}

// checkInDoubt checks that a question fails, and that the season counts as loaded.
func checkInDoubt(t *testing.T, x *Index) {
	t.Helper()
	if _, _, err := x.Page(t.Context(), leaderboard.Ladder{SeasonKey: testSeason}, 1, 10); !errors.Is(err, leaderboard.ErrRankUnavailable) {
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

// After a restart with old data, a season of one shard is in doubt until the owners of all
// partitions have confirmed it. Nothing is rebuilt.
func TestARestartPutsASeasonInDoubt(t *testing.T) {
	c := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{AppendOnly: true})
	x, s := openIndex(t, options(addrsOf(c), 1)), newStore(50)
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
	confirm := func(session int64, positions []leaderboard.LogPosition) {
		t.Helper()
		must(t, x.Confirm(t.Context(), testBoard, *d, positions, leaderboard.LogSession{Generation: session, Partitions: 2}))
	}
	confirm(7, at(12))
	checkInDoubt(t, x) // one partition is missing
	confirm(6, at(12, 6)[1:])
	checkInDoubt(t, x) // a former owner of the partition does not count
	confirm(8, at(12, 6)[1:])
	checkInDoubt(t, x) // confirmations of two sessions do not count together
	wrong := *d
	wrong.Server = "another server"
	must(t, x.Confirm(t.Context(), testBoard, wrong, at(12, 6), leaderboard.LogSession{Generation: 8, Partitions: 2}))
	checkInDoubt(t, x)
	confirm(8, at(12))
	checkLadders(t, x, s.entries)
	if d := advance(t, x, at(12, 6)); d != nil {
		t.Fatalf("Advance returned %+v after all confirmations, want no doubt", d)
	}

	// Another process, which made its updates on the former server, must repeat them too.
	restart(t, c, x)
	if d = advance(t, x, at(13, 6)); d == nil || d.Confirmed {
		t.Fatalf("Advance returned %+v after another restart, want a doubt that is not confirmed", d)
	}
	if diff := cmp.Diff(at(12, 6), d.Positions); diff != "" {
		t.Errorf("recorded positions (-want +got):\n%s", diff)
	}
}

// A process whose updates were made on a former server must repeat them, even if the others have
// already confirmed the season.
func TestUpdatesOnAFormerServerAreRepeated(t *testing.T) {
	c := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{AppendOnly: true})
	o := options(addrsOf(c), 1)
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

// If the board has changed in a way that is not in the log, its season is lost with the server.
func TestASeasonOfOtherRulesIsLost(t *testing.T) {
	c := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{AppendOnly: true})
	x, s := openIndex(t, options(addrsOf(c), 1)), newStore(50)
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

// If nobody confirms a season, it counts as not loaded after doubtTimeout, so that it is rebuilt.
func TestADoubtEnds(t *testing.T) {
	c := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{AppendOnly: true})
	x, s := openIndex(t, options(addrsOf(c), 1)), newStore(50)
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
