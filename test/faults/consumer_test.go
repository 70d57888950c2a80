package faults

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
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
	before, err := metric(t.Context(), s.constant, "sessions_total")
	must(t, err)
	must(t, s.other.Pause())
	eventually(t, func(ctx context.Context) error {
		now, err := metric(ctx, s.constant, "sessions_total")
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
		results, err := metric(ctx, n, "results_total")
		if err == nil && results == 0 {
			err = errors.New("the consumer has applied nothing")
		}
		return err
	})
}

// metric returns a figure of a consumer, with all its labels added up.
func metric(ctx context.Context, n *deployment.Node, name string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.URL+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	sum := 0.0
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		sample, value, _ := strings.Cut(lines.Text(), " ")
		if sample, _, _ = strings.Cut(sample, "{"); sample == "leaderboard_consumer_"+name {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return 0, err
			}
			sum += v
		}
	}
	return sum, lines.Err()
}
