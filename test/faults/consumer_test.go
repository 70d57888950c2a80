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

// works waits until a consumer's process has applied results.
func works(t *testing.T, n *deployment.Node) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		results, err := settled(ctx, n)
		if err == nil && results == 0 {
			err = errors.New("the consumer has applied nothing")
		}
		return err
	})
}

// settled returns how many results a consumer has settled since it began.
func settled(ctx context.Context, n *deployment.Node) (float64, error) {
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
		if name, value, ok := strings.Cut(lines.Text(), " "); ok && strings.HasPrefix(name, "leaderboard_consumer_results_total{") {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return 0, err
			}
			sum += v
		}
	}
	return sum, lines.Err()
}
