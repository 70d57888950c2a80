package pipeline

import (
	"context"
	"slices"
	"testing"

	"github.com/open-leaderboard/leaderboard/test/deployment"
	"github.com/open-leaderboard/leaderboard/test/official"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

// Results that a client which is not ours wrote into Kafka come out over REST as
// their organisers published them: each round of a season, while the next is
// not there, and a whole marathon. So they do when a fifth of the messages come
// twice, and all in another order.
func TestOfficialResultsThroughKafka(t *testing.T) {
	d := deployment.New(t, deployment.Options{})
	api := serveAPI(t, d)
	d.Serve(t, "--roles=consumer")
	d.Serve(t, "--roles=consumer")
	stream := newStream(t, d)
	// In parts, so that some go in each form.
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
	// A minute of a marathon is all of it; of a race, its round.
	worse := func(window int) official.Feeder {
		return official.Shuffled(official.Duplicated(feed, 0.2, s), window, s)
	}
	t.Run("F1", func(t *testing.T) { official.F1(t, deploy(feed)) })
	t.Run("F1 shuffled and duplicated", func(t *testing.T) { official.F1(t, deploy(worse(40))) })
	t.Run("Boston", func(t *testing.T) { official.Boston(t, deploy(feed)) })
	t.Run("Boston shuffled and duplicated", func(t *testing.T) { official.Boston(t, deploy(worse(30_000))) })
}

// The public routes answer as they do on one process and its embedded store: with
// the score and the rank after the result, also to 16 writers at once.
func TestSpecification(t *testing.T) {
	d := deployment.New(t, deployment.Options{Fresh: true}) // the examples need an empty default board
	api := serveAPI(t, d)
	d.Serve(t, "--roles=consumer")
	official.Specification(t, official.Deployment{URL: api.URL, Key: d.Key})
}
