package official

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Feeder sends results to a board in their order, and returns once reads see all of them. It is
// safe for concurrent use.
type Feeder func(ctx context.Context, board string, results []Result) error

// Deployment is a service under test.
type Deployment struct {
	URL    string // base of the REST API, such as http://127.0.0.1:8080
	Key    string // an API key with every scope, or empty if the service needs none
	Feeder Feeder
	// Applied returns the number of results that each consumer has applied. It is nil if the
	// service has no consumers.
	Applied func(context.Context) ([]int, error)
}

func (d Deployment) client() *client { return newClient(d.URL, d.Key) }

const readers = 16

func newClient(url, key string) *client {
	return &client{base: url, key: key, http: &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: 2 * readers},
		Timeout:   2 * time.Minute,
	}}
}

// REST returns a feeder that submits results over REST, one batch after another.
func REST(url, key string, batch int) Feeder {
	c := newClient(url, key)
	return func(ctx context.Context, board string, results []Result) error {
		for part := range slices.Chunk(results, batch) {
			outcomes, err := c.submit(ctx, board, part)
			if err != nil {
				return err
			}
			if err := c.waitApplied(ctx, board, part, outcomes); err != nil {
				return err
			}
		}
		return nil
	}
}

func (c *client) submit(ctx context.Context, board string, results []Result) ([]outcome, error) {
	if len(results) == 1 {
		var o outcome
		err := c.call(ctx, http.MethodPost, query{board: board}.path("scores"), nil, results[0], &o)
		return []outcome{o}, err
	}
	var answer struct {
		Outcomes []outcome `json:"outcomes"`
	}
	body := map[string]any{"results": results}
	if err := c.call(ctx, http.MethodPost, query{board: board}.path("scores:batch"), nil, body, &answer); err != nil {
		return nil, err
	}
	if len(answer.Outcomes) != len(results) {
		return nil, fmt.Errorf("%d outcomes for %d results, want one for each", len(answer.Outcomes), len(results))
	}
	return answer.Outcomes, nil
}

func (c *client) waitApplied(ctx context.Context, board string, results []Result, outcomes []outcome) error {
	for i, o := range outcomes {
		switch o.Status {
		case "APPLIED", "DUPLICATE", "SUPERSEDED":
		case "ACCEPTED":
			if err := c.waitResult(ctx, board, o.Season, results[i].User, o.Match, results[i].Revision); err != nil {
				return err
			}
		default:
			return fmt.Errorf("board %s: result %+v: outcome %s %s %s", board, results[i], o.Status, o.Reason, o.Detail)
		}
	}
	return nil
}

const applyTimeout = time.Minute

// Until the revision is applied or rejected, the service answers 404. A rejected revision is an
// error.
func (c *client) waitResult(ctx context.Context, board, season, user, match string, revision int64) error {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	values := url.Values{"revision": {strconv.FormatInt(revision, 10)}}
	if season != "" {
		values.Set("season", season)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var answer struct{ Status, Reason string }
		err := c.call(ctx, http.MethodGet, query{board: board}.path("results", escape(user), escape(match)), values, nil, &answer)
		var missing *statusError
		switch {
		case errors.As(err, &missing) && missing.code == http.StatusNotFound:
		case err != nil:
			return err
		case answer.Status == "REJECTED":
			return fmt.Errorf("board %s: result %q of %q was rejected: %s", board, match, user, answer.Reason)
		default:
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("board %s: result %q of %q is not applied after %v: %w", board, match, user, applyTimeout, ctx.Err())
		}
	}
}

// Duplicated returns a feeder that submits a part of the results twice. share, from 0 to 1, is the
// size of this part.
func Duplicated(feeder Feeder, share float64, seed uint64) Feeder {
	random := lockedRand(seed)
	return func(ctx context.Context, board string, results []Result) error {
		var doubled []Result
		var copies []Result
		random(func(r *rand.Rand) {
			for _, result := range results {
				doubled = append(doubled, result)
				if r.Float64() < share {
					copies = append(copies, result)
				}
				if len(copies) > 0 && r.Float64() < share {
					i := r.IntN(len(copies))
					doubled = append(doubled, copies[i])
					copies = slices.Delete(copies, i, i+1)
				}
			}
		})
		return feeder(ctx, board, append(doubled, copies...))
	}
}

// Shuffled returns a feeder that submits results in a random order. A result comes at most window
// places earlier than in the given order.
func Shuffled(feeder Feeder, window int, seed uint64) Feeder {
	random := lockedRand(seed)
	return func(ctx context.Context, board string, results []Result) error {
		type placed struct {
			place  int
			result Result
		}
		order := make([]placed, len(results))
		random(func(r *rand.Rand) {
			for i, result := range results {
				order[i] = placed{i + r.IntN(window+1), result}
			}
		})
		slices.SortStableFunc(order, func(x, y placed) int { return x.place - y.place })
		shuffled := make([]Result, len(order))
		for i := range order {
			shuffled[i] = order[i].result
		}
		return feeder(ctx, board, shuffled)
	}
}

func lockedRand(seed uint64) func(func(*rand.Rand)) {
	var mu sync.Mutex
	r := newRand(seed)
	return func(use func(*rand.Rand)) {
		mu.Lock()
		defer mu.Unlock()
		use(r)
	}
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

func forEach(ctx context.Context, n int, f func(context.Context, int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readers)
	for i := range n {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error { return f(ctx, i) })
	}
	return g.Wait()
}
