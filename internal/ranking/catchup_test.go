package ranking_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/embedded"
	"github.com/open-leaderboard/leaderboard/test/faults"
)

// applyUnseen applies a result of ann to the store, but not to the index.
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

func waitUntil(t *testing.T, condition string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting until %s", condition)
		}
	}
}

// Another process stored a result, but could not update the index.
func TestRepairIndex(t *testing.T) {
	f := openOutage(t)
	f.checkRanks("bob 7 1", "cyd 7 1", "ann 5 3", "dan 1 4")
	f.applyUnseen()
	f.checkRanks("bob 7 1", "cyd 7 1", "ann 5 3", "dan 1 4")
	key := leaderboard.SeasonKey{Board: "b", Season: leaderboard.SeasonAll}
	f.RepairIndex(key, "ann")
	waitUntil(t, "ann has rank 1", func() bool {
		standings, _, err := f.index.Standings(t.Context(), leaderboard.Ladder{SeasonKey: key}, []leaderboard.UserID{"ann"}, leaderboard.Competition)
		if err != nil {
			t.Fatalf("the season is not loaded: %v", err)
		}
		return standings[0].Ranks.Competition == 1
	})
	f.checkRanks("ann 9 1", "bob 7 2", "cyd 7 2", "dan 1 4")
}

// When the index answers again, reads return the new ranks.
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
	waitUntil(t, "the season is not loaded", func() bool {
		loaded, err := f.index.Index.Loaded(t.Context(), key)
		return err == nil && !loaded
	})
	f.index.Set(faults.Up)
	got := f.list(ranking.Query{Board: "b"}, 10)
	if diff := gocmp.Diff([]string{"ann 9 1", "bob 7 2", "cyd 7 2", "dan 1 4"}, got); diff != "" {
		t.Errorf("ladder (-want +got):\n%s", diff)
	}
}

// brokenReads is a store in which only the first n calls of Entry succeed.
type brokenReads struct {
	leaderboard.Store
	n atomic.Int32
}

func (s *brokenReads) Entry(ctx context.Context, key leaderboard.SeasonKey, user leaderboard.UserID) (leaderboard.Entry, error) {
	if s.n.Add(-1) < 0 {
		return leaderboard.Entry{}, leaderboard.ErrUnavailable
	}
	return s.Store.Entry(ctx, key, user)
}

func TestCatchUpReturnsTheUsersThatAreLeft(t *testing.T) {
	store, index := embedded.Open(t)
	reads := &brokenReads{Store: store}
	f := serviceOver(t, reads, index)
	b := f.create(sumBoard)
	key := leaderboard.SeasonKey{Board: "b", Season: leaderboard.SeasonAll}
	f.submit("b", points("first", "m", 9))
	f.wantList(ranking.Query{Board: "b"}, "first 9 1")
	var users []leaderboard.UserID
	var results []leaderboard.MatchResult
	for i := range 900 {
		r, err := f.Complete(t.Context(), &b, points(fmt.Sprint("u", i), "m", 1))
		if err != nil {
			t.Fatal(err)
		}
		users, results = append(users, r.User), append(results, r)
	}
	if _, err := store.Apply(t.Context(), &b, results); err != nil {
		t.Fatal(err)
	}
	reads.n.Store(600)
	rest, dropped, err := f.CatchUp(t.Context(), key, users)
	if !errors.Is(err, leaderboard.ErrUnavailable) || dropped || len(rest) == 0 || len(rest) >= len(users) || rest[len(rest)-1] != users[len(users)-1] {
		t.Fatalf("CatchUp: %d users are left, dropped %v, error %v; want the last of %d users, false and ErrUnavailable", len(rest), dropped, err, len(users))
	}
	reads.n.Store(int32(len(rest)))
	if rest, dropped, err := f.CatchUp(t.Context(), key, rest); err != nil || dropped || len(rest) > 0 {
		t.Fatalf("CatchUp of the rest: %d users are left, dropped %v, error %v; want 0, false and no error", len(rest), dropped, err)
	}
	_, view, err := f.index.Page(t.Context(), leaderboard.Ladder{SeasonKey: key}, 1, 1)
	if err != nil || view.Size != int64(len(users))+1 {
		t.Errorf("the index has %d users, error %v; want %d", view.Size, err, len(users)+1)
	}
}
