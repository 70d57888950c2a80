package pipeline

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard/test/deployment"
	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/official"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

// The ranks must equal the official ranks, even if messages are repeated or in random order.
func TestOfficialResultsThroughKafka(t *testing.T) {
	d := withTwoConsumers(t)
	deploy := func(f official.Feeder) official.Deployment {
		d := d
		d.Feeder = f
		return d
	}
	s := seed.New(t)
	// A result moves up by at most distance places. An F1 round has fewer than 40 results, and the
	// marathon has 31,931 runners.
	disordered := func(distance int) official.Feeder {
		return official.Shuffled(official.Duplicated(d.Feeder, 0.2, s), distance, s)
	}
	t.Run("F1", func(t *testing.T) {
		needs.Slow(t, "official")
		official.F1(t, d)
		official.F1(t, deploy(disordered(40)))
	})
	t.Run("late F1 shuffled and duplicated", func(t *testing.T) { official.LateF1(t, deploy(disordered(40))) })
	t.Run("Boston", func(t *testing.T) {
		needs.Slow(t, "official")
		official.Boston(t, d)
		official.Boston(t, deploy(disordered(30_000)))
		official.BostonDivisionAdded(t, d)
	})
}

func TestLinkedFootballThroughKafka(t *testing.T) {
	needs.Slow(t, "official")
	d := withTwoConsumers(t)
	t.Run("half a month", func(t *testing.T) {
		p := official.Period{Start: day(2019, time.June, 15), End: day(2019, time.July, 1), RollingFrom: day(2019, time.June, 25)}
		official.LinkedFootball(t, d, p, 20)
	})
	t.Run("two months shuffled", func(t *testing.T) {
		p := official.Period{Start: day(2019, time.May, 1), End: day(2019, time.July, 1), RollingFrom: day(2019, time.June, 1)}
		official.LinkedFootballShuffled(t, d, p)
	})
	t.Run("two years", func(t *testing.T) {
		official.LinkedFootball(t, d, official.Years(2018, 2019), 200)
	})
}

func day(year int, month time.Month, day int) time.Time {
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
}

// The feeder writes to Kafka with kcat.
func withTwoConsumers(t *testing.T) official.Deployment {
	t.Helper()
	d := deployment.New(t, deployment.Options{})
	api := serveAPI(t, d)
	consumers := []*deployment.Node{d.Serve(t, "--roles=consumer"), d.Serve(t, "--roles=consumer")}
	stream := newStream(t, d)
	feed := func(ctx context.Context, board string, results []official.Result) error {
		for part := range slices.Chunk(results, 1000) {
			converted := make([]result, len(part))
			for i, r := range part {
				converted[i] = result{r.User, r.Match, r}
			}
			if err := stream.send(ctx, board, converted); err != nil {
				return err
			}
		}
		return nil
	}
	applied := func(ctx context.Context) (counts []int, err error) {
		for _, c := range consumers {
			n, err := c.Metric(ctx, `leaderboard_consumer_results_total{status="APPLIED"}`)
			if err != nil {
				return nil, err
			}
			counts = append(counts, int(n))
		}
		return counts, nil
	}
	return official.Deployment{URL: api.URL, Key: d.Key, Feeder: feed, Applied: applied}
}

// The REST routes give the same answers as on the embedded engine, even with 16 concurrent writers.
func TestSpecification(t *testing.T) {
	d := deployment.New(t, deployment.Options{Fresh: true}) // the examples need an empty default board
	api := serveAPI(t, d)
	d.Serve(t, "--roles=consumer")
	official.Specification(t, official.Deployment{URL: api.URL, Key: d.Key})
}
