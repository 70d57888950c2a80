package consumer_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/consumer"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

// closedService applies nothing until open is called.
type closedService struct {
	consumer.Service
	opened chan struct{}
	open   func()
}

func newClosed(s consumer.Service) closedService {
	opened := make(chan struct{})
	return closedService{s, opened, sync.OnceFunc(func() { close(opened) })}
}

func (c closedService) Apply(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) (leaderboard.ApplyReport, error) {
	select {
	case <-c.opened:
		return c.Service.Apply(ctx, b, results)
	case <-ctx.Done():
		return leaderboard.ApplyReport{}, ctx.Err()
	}
}

func TestLagAndVisibleTime(t *testing.T) {
	c := start(t)
	s, _ := newService(t, ranking.Options{})
	service := newClosed(s)
	c.send(c.results(0, 5, 5)...)
	m := c.join(service, consumer.Options{}.WithLagPoll(20*time.Millisecond))
	t.Cleanup(service.open) // runs before the cleanup that stops the consumer
	eventually(t, "a lag of 5", func() bool {
		lag, _, _ := m.metric("lag_messages") // it appears with the first measurement
		return lag == 5
	})
	c.send(c.results(5, 7, 5)...)
	eventually(t, "a lag of 7, while Apply waits", func() bool { return m.count("lag_messages") == 7 })
	service.open()
	eventually(t, "no lag", func() bool { return m.count("lag_messages") == 0 })
	c.send(c.results(0, 1, 1)...)
	eventually(t, "the duplicate is committed", func() bool { return c.allCommitted() == 8 })
	if _, n, _ := m.metric("visible_seconds"); n != 7 {
		t.Errorf("visible_seconds has the times of %d results, want 7, without the duplicate", n)
	}
}
