package ranking_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/embedded"
)

// notedStore keeps the times of changes as the Cassandra store does.
type notedStore struct {
	leaderboard.Store
	mu      sync.Mutex
	changes map[leaderboard.SeasonKey]time.Time
}

func (s *notedStore) NoteChange(_ context.Context, key leaderboard.SeasonKey, at time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at.After(s.changes[key]) {
		s.changes[key] = at
	}
	return nil
}

func (s *notedStore) ChangedAt(_ context.Context, key leaderboard.SeasonKey) (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changes[key], nil
}

// After the index has lost a season, its AsOf is the time of the last change, and not of the fill.
func TestAsOfSurvivesTheLossOfRedis(t *testing.T) {
	inner, index := embedded.Open(t)
	f := serviceOver(t, &notedStore{Store: inner, changes: map[leaderboard.SeasonKey]time.Time{}}, index)
	board := f.create(leaderboard.Board{ID: "b"})
	key := leaderboard.SeasonKey{Board: "b", Season: leaderboard.SeasonAll}
	check := func(state string, want time.Time) {
		t.Helper()
		for _, when := range []string{"before", "after"} {
			page, err := f.Page(t.Context(), ranking.PageQuery{Query: ranking.Query{Board: "b"}, Limit: 10})
			if err != nil || page.Degraded || !page.AsOf.Equal(want) {
				t.Errorf("%s, %s the loss: as of %v, degraded %v, error %v; want %v", state, when, page.AsOf, page.Degraded, err, want)
			}
			if err := f.index.Drop(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			f.clock.set(f.clock.now().Add(time.Minute))
		}
	}
	check("without results", board.CreatedAt)
	for _, act := range []struct {
		name string
		do   func() error
	}{
		{"a result", func() error { f.submit("b", points("ann", "m", 5)); return nil }},
		{"a result of another user", func() error { f.submit("b", points("bob", "m", 7)); return nil }},
		{"a retraction", func() error {
			_, err := f.Retract(t.Context(), &board, leaderboard.ResultKey{SeasonKey: key, User: "ann", Match: "m"}, nil)
			return err
		}},
		{"a ban", func() error {
			_, err := f.SetBan(t.Context(), leaderboard.Ban{User: "bob", Banned: true})
			return err
		}},
		{"the end of a ban", func() error {
			_, err := f.SetBan(t.Context(), leaderboard.Ban{User: "bob"})
			return err
		}},
		{"an erasure", func() error { return f.Erase(t.Context(), "bob") }},
	} {
		at := f.clock.now()
		if err := act.do(); err != nil {
			t.Fatal(err)
		}
		check("after "+act.name, at)
	}
	f.submit("b", points("cyd", "m", 5))
	at := f.clock.now()
	f.clock.set(at.Add(time.Minute))
	if r := f.trySubmit("b", points("cyd", "m", 5)); r.Status != leaderboard.Duplicate {
		t.Fatalf("the second submit: %+v, want a duplicate", r)
	}
	check("after a duplicate", at)
}
