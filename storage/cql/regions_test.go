package cql

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

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
	for _, matches := range []bool{false, true} {
		t.Run(fmt.Sprintf("voids=%v", matches), func(t *testing.T) {
			seed := stepsSeed(t)
			for i := range uint64(envInt("LEADERBOARD_STEPS_RUNS", 150)) {
				if err := twoRegions(t, rand.New(rand.NewPCG(seed, i)), matches); err != nil {
					t.Fatalf("run %d: %v", i, err)
				}
			}
		})
	}
}

// twoRegions plays one run. If matches is true, one region voids and restores a match
// meanwhile. The other region applies this in its sweeps, one of which runs at the end.
func twoRegions(t *testing.T, rng *rand.Rand, matches bool) error {
	ctx := t.Context()
	b := stepsBoard([]leaderboard.Policy{leaderboard.Best, leaderboard.Sum, leaderboard.Latest}[rng.IntN(3)])
	b.Matches = matches
	s := newSea(rng)
	var regions [2]*writers
	for i := range regions {
		regions[i] = newWriters(t, func() conn { return s.region(i) }, b, "u")
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
	var stores [2][]*Store // of each region
	start := func(i int, calls ...func(*Store) error) {
		p := &process{}
		steps := newSteps(s.region(i))
		store := open(steps, Options{DataCenter: fmt.Sprintf("dc%d", i+1), Buckets: 2, CacheUsers: 10})
		store.parallel = 1
		p.next, _ = steps.walk(func() {
			for _, call := range calls {
				if p.err = call(store); p.err != nil {
					return
				}
			}
		})
		running, stores[i] = append(running, p), append(stores[i], store)
	}
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
			var calls []func(*Store) error
			for _, r := range todo {
				calls = append(calls, func(store *Store) error { return w.send(ctx, store, []leaderboard.MatchResult{r}) })
			}
			start(i, calls...)
		}
	}
	if matches {
		i := rng.IntN(2)
		var calls []func(*Store) error
		for voids := range int64(1 + rng.IntN(2)) {
			calls = append(calls, func(store *Store) error { return void("m0", voids+1)(ctx, regions[i], store) })
		}
		start(i, calls...)
		start(1-i, func(store *Store) error { return finishVoids(ctx, regions[1-i], store) })
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
	for i, w := range regions { // the next sweep of each region
		if err := finishVoids(ctx, w, stores[i][len(stores[i])-1]); err != nil {
			return err
		}
	}
	if err := checkRegions(ctx, s, regions); err != nil {
		return fmt.Errorf("results %v: %w", results, err)
	}
	later := []leaderboard.MatchResult{regions[0].result("later 7 red")}
	for i, w := range regions {
		if err := w.send(ctx, stores[i][rng.IntN(2)], later); err != nil {
			return err
		}
	}
	if err := checkRegions(ctx, s, regions); err != nil {
		return fmt.Errorf("a later result after the results %v: %w", results, err)
	}
	return nil
}

// checkRegions checks both regions after all writes have arrived.
func checkRegions(ctx context.Context, s *sea, regions [2]*writers) error {
	for len(s.afloat) > 0 {
		s.land()
	}
	for i, w := range regions {
		if err := errors.Join(w.check(ctx), w.checkIndex(ctx)); err != nil {
			return fmt.Errorf("region %d: %w", i, err)
		}
	}
	return nil
}

// Two regions receive the same results of a board with a floor, in different orders, so one
// region may refuse what the other accepts. When all writes have arrived, both regions have
// the same results: all that one of them accepted. Their sum may be below the floor. The
// entry is the same in both regions, but may lack results until both recount it.
func TestModelOfAFloorInTwoRegions(t *testing.T) {
	seed := stepsSeed(t)
	var n floorCounts
	for i := range uint64(envInt("LEADERBOARD_STEPS_RUNS", 150)) {
		if err := twoRegionsWithAFloor(t, rand.New(rand.NewPCG(seed, i)), &n); err != nil {
			t.Fatalf("run %d: %v", i, err)
		}
	}
	t.Logf("%+v", n)
	if n.differed == 0 || n.below == 0 || n.lacking == 0 {
		t.Error("one of these numbers is 0, want at least 1, because a region knows only the results that it has applied")
	}
}

type floorCounts struct {
	differed int // results that one region accepted and the other one refused
	below    int // sums below the floor
	lacking  int // entries that lacked results before they were recounted
}

func twoRegionsWithAFloor(t *testing.T, rng *rand.Rand, n *floorCounts) error {
	ctx := t.Context()
	s := newSea(rng)
	b := stepsBoard(leaderboard.Sum)
	b.Floor = new(leaderboard.Score)
	var regions [2]*writers
	for i := range regions {
		regions[i] = newWriters(t, func() conn { return s.region(i) }, b, "u")
	}
	var results []leaderboard.MatchResult
	for i := range 2 + rng.IntN(5) {
		r := regions[0].result(fmt.Sprintf("m%d", i))
		r.Score = leaderboard.Score(rng.IntN(13) - 6)
		results = append(results, r)
	}
	want, err := applyInTwoRegions(ctx, rng, regions, results, n)
	if err != nil {
		return err
	}
	for len(s.afloat) > 0 {
		s.land()
	}
	if want < *b.Floor {
		n.below++
	}
	key := leaderboard.SeasonKey{Board: b.ID, Season: leaderboard.SeasonAll}
	var entries [2]leaderboard.Entry
	for i, w := range regions {
		tally, err := b.Count(w.third.Results(ctx, key, "u"))
		if err != nil {
			return err
		}
		if e := b.Entry(&tally, key.Season, "u"); e.Key != "" && b.ScoreOf(e.Key, stepsEpoch) != want || e.Key == "" && want != 0 {
			return fmt.Errorf("the results of region %d follow from other results than those that a region accepted, of %v", i, results)
		}
		if entries[i], err = w.third.Entry(ctx, key, "u"); err != nil && !errors.Is(err, leaderboard.ErrEntryNotFound) {
			return err
		}
		if w.check(ctx) != nil {
			n.lacking++
		}
	}
	if d := cmp.Diff(entries[0], entries[1], cmpopts.EquateEmpty()); d != "" {
		return fmt.Errorf("the regions have different entries of results %v (-first +second):\n%s", results, d)
	}
	for _, w := range regions {
		if _, err := w.stores[0].Recount(ctx, &b, key.Season, "u"); err != nil {
			return err
		}
	}
	for len(s.afloat) > 0 {
		s.land()
	}
	return errors.Join(regions[0].check(ctx), regions[1].check(ctx))
}

// applyInTwoRegions applies each result once in each region. It returns the sum of the
// results that a region accepted.
func applyInTwoRegions(ctx context.Context, rng *rand.Rand, regions [2]*writers, results []leaderboard.MatchResult, n *floorCounts) (leaderboard.Score, error) {
	todo := [2][]int{rng.Perm(len(results)), rng.Perm(len(results))}
	accepted := make([]int, len(results)) // by how many regions
	for len(todo[0])+len(todo[1]) > 0 {
		i := rng.IntN(2)
		if len(todo[i]) == 0 {
			i = 1 - i
		}
		at := todo[i][0]
		todo[i] = todo[i][1:]
		report, err := regions[i].stores[0].Apply(ctx, regions[i].board, results[at:at+1])
		if err != nil {
			return 0, err
		}
		if report.Outcomes[0].Status != leaderboard.Rejected {
			accepted[at]++
		}
	}
	sum := leaderboard.Score(0)
	for i := range results {
		if accepted[i] == 1 {
			n.differed++
		}
		if accepted[i] > 0 {
			sum += results[i].Score
		}
	}
	return sum, nil
}
