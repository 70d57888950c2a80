package ranking_test

import (
	"context"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/test/embedded"
)

// shardedIndex records the number of shards of the last Rebuild of each season.
type shardedIndex struct {
	leaderboard.Index
	shards   map[leaderboard.SeasonKey]int
	rebuilds int
}

func (x *shardedIndex) Fits(b *leaderboard.Board, s leaderboard.SeasonKey) bool {
	return x.shards[s] == b.Shards
}

func (x *shardedIndex) Rebuild(ctx context.Context, b *leaderboard.Board, s leaderboard.SeasonKey, at time.Time, entries iter.Seq2[leaderboard.Entry, error]) error {
	x.shards[s] = b.Shards
	x.rebuilds++
	return x.Index.Rebuild(ctx, b, s, at, entries)
}

// After a change of a board's shards, only the loaded seasons of this board are rebuilt, each
// once.
func TestChangeShards(t *testing.T) {
	store, index := embedded.Open(t)
	x := &shardedIndex{Index: index, shards: map[leaderboard.SeasonKey]int{}}
	f := serviceOver(t, store, x)
	t.Cleanup(f.Service.Close)
	for _, id := range []leaderboard.BoardID{"b", "c"} {
		f.create(leaderboard.Board{ID: id, Policy: leaderboard.Sum})
		for i := range 3 {
			f.submit(id, points(fmt.Sprint("u", i), "m", int64(i)))
		}
	}
	if err := f.Load(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	check := func(shards, rebuilds int) {
		t.Helper()
		x.rebuilds = 0
		for range 2 {
			if err := f.ChangeShards(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		key := leaderboard.SeasonKey{Board: "b", Season: leaderboard.SeasonAll}
		if x.shards[key] != shards || x.rebuilds != rebuilds {
			t.Errorf("the season has %d shards after %d rebuilds, want %d after %d", x.shards[key], x.rebuilds, shards, rebuilds)
		}
		f.wantList(boardB, "u2 2 1", "u1 1 2", "u0 0 3")
	}
	check(0, 0)
	if _, err := f.AmendBoard(t.Context(), "b", func(b *leaderboard.Board) error { b.Shards = 3; return nil }); err != nil {
		t.Fatal(err)
	}
	check(3, 1)
}
