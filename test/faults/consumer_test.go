package faults

import (
	"context"
	"errors"
	"testing"

	"github.com/open-leaderboard/leaderboard/test/deployment"
)

// A killed consumer with a group instance id gets its partitions back at once. The consumer that is
// killed last has no such id. After its restart, it is a new member of the group, and gets partitions
// once the old member's session has timed out.
func testConsumersKilled(t *testing.T, s *service) {
	ledger := s.ledger(t, "consumers")
	load := s.load(t, ledger)
	const kills, withoutInstanceID = 20, 1
	for kill := range kills {
		n := s.static
		if kill >= kills-withoutInstanceID {
			n = s.dynamic
		}
		waitForResults(t, n)
		must(t, n.Kill())
		must(t, n.Start(t.Context()))
	}
	waitForResults(t, s.static)
	waitForResults(t, s.dynamic)
	load.stop()
	check(t, ledger, s.apis...)
}

// The other consumer takes over the partitions of a paused consumer. When the paused consumer
// resumes, its late writes must have no effect.
func testConsumerPaused(t *testing.T, s *service) {
	ledger := s.ledger(t, "paused")
	load := s.load(t, ledger)
	waitForResults(t, s.dynamic)
	load.waitForMore(t, 50)
	before, err := s.static.Metric(t.Context(), "leaderboard_consumer_sessions_total")
	must(t, err)
	must(t, s.dynamic.Pause())
	deployment.Eventually(t, func(ctx context.Context) error {
		now, err := s.static.Metric(ctx, "leaderboard_consumer_sessions_total")
		if err == nil && now == before {
			err = errors.New("the group has not reassigned the paused consumer's partitions")
		}
		return err
	})
	load.waitForMore(t, 100)
	must(t, s.dynamic.Resume())
	load.waitForMore(t, 100)
	load.stop()
	check(t, ledger, s.apis...)
}

func waitForResults(t *testing.T, n *deployment.Node) {
	t.Helper()
	deployment.Eventually(t, func(ctx context.Context) error {
		results, err := n.Metric(ctx, "leaderboard_consumer_results_total")
		if err == nil && results == 0 {
			err = errors.New("the consumer has applied no result since its start")
		}
		return err
	})
}
