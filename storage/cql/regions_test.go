package cql

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/open-leaderboard/leaderboard"
)

// A region is a session in one of two data centers. Its writes reach the other data
// center later, in any order.
type region struct {
	*model
	sea *sea
	far int // the index of the other data center
}

// A sea is the network between two data centers.
type sea struct {
	mu     sync.Mutex
	rng    *rand.Rand
	shores [2]*model
	afloat []func()
}

func newSea(rng *rand.Rand) *sea {
	return &sea{rng: rng, shores: [2]*model{newModel(rand.New(rand.NewPCG(rng.Uint64(), 0))), newModel(rand.New(rand.NewPCG(rng.Uint64(), 0)))}}
}

func (s *sea) region(i int) region { return region{s.shores[i], s, 1 - i} }

func (r region) write(ctx context.Context, ops ...op) error {
	if err := r.model.write(ctx, ops...); err != nil {
		return err
	}
	r.sea.ship(r.far, ops)
	return nil
}

// ship sends ops to the other data center, and lets a random part of the sent writes
// arrive.
func (s *sea) ship(to int, ops []op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.afloat = append(s.afloat, func() {
		m := s.shores[to]
		m.mu.Lock()
		defer m.mu.Unlock()
		m.apply(ops, 0)
	})
	for len(s.afloat) > 0 && s.rng.IntN(5) == 0 {
		s.land()
	}
}

func (s *sea) land() {
	i, end := s.rng.IntN(len(s.afloat)), len(s.afloat)-1
	s.afloat[i]()
	s.afloat[i], s.afloat = s.afloat[end], s.afloat[:end]
}

// Two regions receive the same results, in different orders, and some results twice. Each
// region has two processes, which may change the same user concurrently. When all
// processes have ended and all writes have arrived, the entry in both regions follows
// from all results. The index of each region has the same entry, although each index
// receives updates only from the processes of its region.
func TestModelOfTwoRegions(t *testing.T) {
	seed := stepsSeed(t)
	for i := range uint64(envInt("LEADERBOARD_STEPS_RUNS", 150)) {
		if err := twoRegions(t, rand.New(rand.NewPCG(seed, i))); err != nil {
			t.Fatalf("run %d: %v", i, err)
		}
	}
}

func twoRegions(t *testing.T, rng *rand.Rand) error {
	ctx := t.Context()
	policy := []leaderboard.Policy{leaderboard.Best, leaderboard.Sum, leaderboard.Latest}[rng.IntN(3)]
	s := newSea(rng)
	var regions [2]*writers
	for i := range regions {
		regions[i] = newWriters(t, func() conn { return s.region(i) }, stepsBoard(policy), "u")
	}
	var results []leaderboard.MatchResult
	for range 1 + rng.IntN(5) {
		text := fmt.Sprintf("m%d %d r%d %s", rng.IntN(3), 1+rng.IntN(3), rng.IntN(3), []string{"red", "blue", ""}[rng.IntN(3)])
		if rng.IntN(4) == 0 {
			text += " retracted"
		}
		results = append(results, regions[0].result(text))
	}
	type process struct {
		next func(int) bool
		err  error
	}
	var running []*process
	for i, w := range regions {
		// In each region, one process applies the region's results, and the other one
		// applies the results that are mirrored from the other region. So both may change
		// one user concurrently.
		var parts [2][]leaderboard.MatchResult
		for _, at := range rng.Perm(len(results)) {
			for times := 1 + rng.IntN(5)/4; times > 0; times-- {
				part := rng.IntN(2)
				parts[part] = append(parts[part], results[at])
			}
		}
		for _, todo := range parts {
			p := &process{}
			steps := newSteps(s.region(i))
			store := open(steps, Options{DataCenter: fmt.Sprintf("dc%d", i+1), Buckets: 2, CacheUsers: 10})
			store.parallel = 1
			p.next, _ = steps.walk(func() {
				for _, r := range todo {
					if p.err = w.send(ctx, store, []leaderboard.MatchResult{r}); p.err != nil {
						return
					}
				}
			})
			running = append(running, p)
		}
	}
	for len(running) > 0 {
		i := rng.IntN(len(running))
		if !running[i].next(1 + rng.IntN(8)) {
			if running[i].err != nil {
				return running[i].err
			}
			running = append(running[:i], running[i+1:]...)
		}
	}
	for len(s.afloat) > 0 {
		s.land()
	}
	for i, w := range regions {
		if err := errors.Join(w.check(ctx), w.checkIndex(ctx)); err != nil {
			return fmt.Errorf("region %d of results %v: %w", i, results, err)
		}
	}
	return nil
}
