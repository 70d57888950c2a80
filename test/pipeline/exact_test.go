package pipeline

import (
	"context"
	"slices"
	"testing"

	"github.com/open-leaderboard/leaderboard/test/deployment"
	"github.com/open-leaderboard/leaderboard/test/official"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

// The test writes the results of Formula 1 seasons and of a marathon to Kafka with kcat.
// It compares the ranks that REST returns with the official ranks, after each round of a
// season and after the marathon. Then it repeats both with a fifth of the messages
// duplicated and all messages shuffled.
func TestOfficialResultsThroughKafka(t *testing.T) {
	d := deployment.New(t, deployment.Options{})
	api := serveAPI(t, d)
	d.Serve(t, "--roles=consumer")
	d.Serve(t, "--roles=consumer")
	stream := newStream(t, d)
	// Each part is sent in one encoding, JSON or protobuf. Several parts cover both.
	feed := func(ctx context.Context, board string, results []official.Result) error {
		for part := range slices.Chunk(results, 4000) {
			out := make([]result, len(part))
			for i, r := range part {
				out[i] = result{r.User, r.Match, r}
			}
			if err := stream.send(ctx, board, out); err != nil {
				return err
			}
		}
		return nil
	}
	deploy := func(f official.Feeder) official.Deployment {
		return official.Deployment{URL: api.URL, Key: d.Key, Feeder: f}
	}
	s := seed.New(t)
	// A window of 30,000 results covers almost all runners of the marathon. A window of
	// 40 results covers a whole round of a season.
	worse := func(window int) official.Feeder {
		return official.Shuffled(official.Duplicated(feed, 0.2, s), window, s)
	}
	t.Run("F1", func(t *testing.T) { official.F1(t, deploy(feed)) })
	t.Run("F1 shuffled and duplicated", func(t *testing.T) { official.F1(t, deploy(worse(40))) })
	t.Run("Boston", func(t *testing.T) { official.Boston(t, deploy(feed)) })
	t.Run("Boston shuffled and duplicated", func(t *testing.T) { official.Boston(t, deploy(worse(30_000))) })
}

// The public routes answer as on the embedded engine. The answer to a submit has the
// score and the rank after this submit, even with 16 concurrent writers.
func TestSpecification(t *testing.T) {
	d := deployment.New(t, deployment.Options{Fresh: true}) // the examples need an empty default board
	api := serveAPI(t, d)
	d.Serve(t, "--roles=consumer")
	official.Specification(t, official.Deployment{URL: api.URL, Key: d.Key})
}
