package faults

import (
	"context"
	"errors"
	"testing"

	"github.com/open-leaderboard/leaderboard/test/deployment"
)

// A consumer is killed twenty times, each time while it applies results, and
// comes back: under its own name, so that it takes up its partitions at once, and
// as a stranger, whom the group lets in when it has given up the dead one.
func consumersKilled(t *testing.T, s *service) {
	ledger := s.ledger(t, "consumers")
	load := s.load(t, ledger)
	const kills, strangers = 20, 1
	for kill := range kills {
		n := s.constant
		if kill >= kills-strangers {
			n = s.other
		}
		works(t, n)
		must(t, n.Kill())
		must(t, n.Start(t.Context()))
	}
	works(t, s.constant)
	works(t, s.other)
	load.stop()
	check(t, ledger, s.apis...)
}

// A consumer is paused as it applies results, until the group has given its
// partitions to another and that has gone on; then it wakes, and ends what it
// was at. What it writes late must not stand.
func consumerPaused(t *testing.T, s *service) {
	ledger := s.ledger(t, "paused")
	load := s.load(t, ledger)
	works(t, s.other)
	load.more(t, 50)
	before, err := s.constant.Metric(t.Context(), "leaderboard_consumer_sessions_total")
	must(t, err)
	must(t, s.other.Pause())
	eventually(t, func(ctx context.Context) error {
		now, err := s.constant.Metric(ctx, "leaderboard_consumer_sessions_total")
		if err == nil && now == before {
			err = errors.New("the group has not given the partitions away")
		}
		return err
	})
	load.more(t, 100)
	must(t, s.other.Resume())
	load.more(t, 100)
	load.stop()
	check(t, ledger, s.apis...)
}

// works waits until a consumer's process has applied results.
func works(t *testing.T, n *deployment.Node) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		results, err := n.Metric(ctx, "leaderboard_consumer_results_total")
		if err == nil && results == 0 {
			err = errors.New("the consumer has applied nothing")
		}
		return err
	})
}
