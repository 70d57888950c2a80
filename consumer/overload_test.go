package consumer_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/consumer"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/embedded"
)

// slowStore applies only a quarter of the results, after ApplyTimeout. It counts the running calls.
type slowStore struct {
	leaderboard.Store
	takes time.Duration // how long Apply runs after ApplyTimeout

	mu               sync.Mutex
	running, highest int
	applied          map[leaderboard.MatchID]int
}

func (s *slowStore) count(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running += n
	s.highest = max(s.highest, s.running)
}

func (s *slowStore) Apply(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) (leaderboard.ApplyReport, error) {
	s.count(1)
	defer s.count(-1)
	<-ctx.Done()
	time.Sleep(s.takes)
	n := (len(results) + 3) / 4
	report, err := s.Store.Apply(context.WithoutCancel(ctx), b, results[:n])
	if err != nil {
		return report, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range results[:n] {
		s.applied[r.Match]++
	}
	for range results[n:] {
		report.Outcomes = append(report.Outcomes, leaderboard.Outcome{Err: fmt.Errorf("%w: %w", leaderboard.ErrUnavailable, ctx.Err())})
	}
	return report, nil
}

func TestSlowStoreGetsOneAttemptAtATime(t *testing.T) {
	c := start(t)
	inner, index := embedded.Open(t)
	const attempt = 100 * time.Millisecond
	store := &slowStore{Store: inner, takes: attempt, applied: map[leaderboard.MatchID]int{}}
	s := ranking.New(store, index, ranking.Options{})
	t.Cleanup(s.Close)
	if _, err := s.CreateBoard(t.Context(), leaderboard.Board{ID: "b", Policy: leaderboard.Sum}); err != nil {
		t.Fatal(err)
	}
	const n = 200
	c.send(c.results(0, n, n)...)
	c.join(s, consumer.Options{ApplyTimeout: attempt})
	eventually(t, "all offsets are committed", func() bool { return c.allCommitted() == n })
	if got := len(boardLines(t, s)); got != n {
		t.Errorf("the board has %d users, want %d", got, n)
	}
	store.mu.Lock()
	defer store.mu.Unlock()
	if store.highest > partitions {
		t.Errorf("%d calls of Apply ran at a time, want at most %d, one for each partition", store.highest, partitions)
	}
	for match, times := range store.applied {
		if times != 1 {
			t.Errorf("%s was applied %d times, want once", match, times)
		}
	}
}
