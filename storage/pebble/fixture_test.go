package pebble

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	leaderboard "github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/engine"
)

var testEpoch = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

func testBoard() *leaderboard.Board {
	return &leaderboard.Board{ID: "b", Policy: leaderboard.Sum, CreatedAt: testEpoch, Divisions: []string{"gender"}}
}

var testSeason = leaderboard.SeasonKey{Board: "b", Season: leaderboard.SeasonAll}

func testResult(user leaderboard.UserID, match leaderboard.MatchID, revision int64, score leaderboard.Score) leaderboard.MatchResult {
	return leaderboard.MatchResult{
		ResultKey: leaderboard.ResultKey{SeasonKey: testSeason, User: user, Match: match},
		Revision:  revision, Score: score, AchievedAt: testEpoch.Add(time.Duration(score) * time.Second),
		ReceivedAt: testEpoch.Add(time.Hour), Attributes: map[string]string{"gender": []string{"F", "M"}[score&1]},
		Metadata: `{"pad":"` + strings.Repeat("x", 200) + `"}`,
	}
}

func mustOpen(t testing.TB, dir string, opts Options) *testStore {
	t.Helper()
	s, err := Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	return &testStore{s, engine.New(s)}
}

// A testStore is a store with the engine over it.
type testStore struct {
	*Store
	*engineStore
}

type engineStore = engine.Store

// Apply is ambiguous otherwise.
func (s *testStore) Apply(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) (leaderboard.ApplyReport, error) {
	return s.engineStore.Apply(ctx, b, results)
}

func mustClose(t testing.TB, s *testStore) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// checkLadders checks that Recount changes no entry, that the season has no orphan rows, and that
// the overall ladder has n rows.
func checkLadders(t *testing.T, s *testStore, n int) {
	t.Helper()
	for user := range s.Users(t.Context(), testSeason) {
		c, err := s.Recount(t.Context(), testBoard(), testSeason.Season, user)
		if err != nil || c.Before.Version != c.After.Version {
			t.Fatalf("Recount of user %q returned the change %+v, error %v; want no change", user, c, err)
		}
	}
	orphanRows, err := s.findOrphanRows(t.Context(), s.board("b"), testSeason.Season)
	if err != nil || len(orphanRows) > 0 {
		t.Fatalf("the season has the orphan rows %v, error %v; want none", orphanRows, err)
	}
	rows := 0
	for _, err := range s.Entries(t.Context(), leaderboard.Ladder{SeasonKey: testSeason}, "") {
		if err != nil {
			t.Fatal(err)
		}
		rows++
	}
	if rows != n {
		t.Fatalf("the overall ladder has %d rows, want %d", rows, n)
	}
}

func openTest(t testing.TB) *testStore {
	t.Helper()
	s := mustOpen(t, "data", Options{FS: vfs.NewMem()})
	t.Cleanup(func() { mustClose(t, s) })
	if err := s.CreateBoard(t.Context(), *testBoard()); err != nil {
		t.Fatal(err)
	}
	return s
}

func mustApply(t testing.TB, s *testStore, results ...leaderboard.MatchResult) {
	t.Helper()
	if _, err := s.Apply(t.Context(), testBoard(), results); err != nil {
		t.Fatal(err)
	}
}

func mustEntry(t testing.TB, s *testStore, user leaderboard.UserID) leaderboard.Entry {
	t.Helper()
	e, err := s.Entry(t.Context(), testSeason, user)
	if err != nil {
		t.Fatal(err)
	}
	return e
}
