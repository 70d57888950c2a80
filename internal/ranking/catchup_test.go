package ranking_test

import (
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/faults"
)

// applyUnseen applies a result of ann like a process that cannot reach the index.
func (f outage) applyUnseen() {
	f.t.Helper()
	b := f.board("b")
	r, err := f.Complete(f.t.Context(), b, points("ann", "unseen", 4))
	if err == nil {
		_, err = f.store.Apply(f.t.Context(), b, []leaderboard.MatchResult{r})
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// Another process has applied a result and could not update the index. RepairIndex adds the entry,
// and the season stays loaded.
func TestRepairIndex(t *testing.T) {
	f := openOutage(t)
	f.checkRanks("bob 7 1", "cyd 7 1", "ann 5 3", "dan 1 4")
	f.applyUnseen()
	f.checkRanks("bob 7 1", "cyd 7 1", "ann 5 3", "dan 1 4")
	key := leaderboard.SeasonKey{Board: "b", Season: leaderboard.SeasonAll}
	f.RepairIndex(key, "ann")
	for deadline := time.Now().Add(10 * time.Second); ; {
		standings, _, err := f.index.Standings(t.Context(), leaderboard.Ladder{SeasonKey: key}, []leaderboard.UserID{"ann"}, leaderboard.Competition)
		if err != nil {
			t.Fatalf("the season is not loaded: %v", err)
		}
		if standings[0].Ranks.Competition == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("ann has rank %d, want 1", standings[0].Ranks.Competition)
		}
		time.Sleep(time.Millisecond)
	}
	f.checkRanks("ann 9 1", "bob 7 2", "cyd 7 2", "dan 1 4")
}

// RepairIndex cannot reach the index either. When the index answers again, reads do not return its
// old ranks.
func TestRepairIndexWhileTheIndexIsDown(t *testing.T) {
	f := openOutage(t)
	f.checkRanks("bob 7 1", "cyd 7 1", "ann 5 3", "dan 1 4")
	f.applyUnseen()
	f.index.Set(faults.Refuse)
	for range 200 {
		f.RepairIndex(leaderboard.SeasonKey{Board: "b", Season: leaderboard.SeasonAll}, "ann")
	}
	f.RepairIndex(leaderboard.SeasonKey{Board: "unknown", Season: leaderboard.SeasonAll}, "ann")
	key := leaderboard.SeasonKey{Board: "b", Season: leaderboard.SeasonAll}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		loaded, err := f.index.Index.Loaded(t.Context(), key)
		if err == nil && !loaded {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the season is loaded: %v, error %v; want an invalid season", loaded, err)
		}
	}
	f.index.Set(faults.Up)
	got := f.list(ranking.Query{Board: "b"}, 10)
	if diff := gocmp.Diff([]string{"ann 9 1", "bob 7 2", "cyd 7 2", "dan 1 4"}, got); diff != "" {
		t.Errorf("ladder (-want +got):\n%s", diff)
	}
}
