package cql

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

// A region is a session in one of two data centers. Its writes reach the other data center
// later, in any order.
type region struct {
	*model
	link   *link
	remote int // the index of the other data center
}

type link struct {
	mu      sync.Mutex
	rng     *rand.Rand
	models  [2]*model // one for each data center
	pending []func()  // the writes that have not arrived in the other data center
}

func newLink(rng *rand.Rand) *link {
	return &link{rng: rng, models: [2]*model{newModel(rand.New(rand.NewPCG(rng.Uint64(), 0))), newModel(rand.New(rand.NewPCG(rng.Uint64(), 0)))}}
}

func (s *link) region(i int) region { return region{s.models[i], s, 1 - i} }

func (r region) write(ctx context.Context, ops ...op) error {
	if err := r.model.write(ctx, ops...); err != nil {
		return err
	}
	r.link.send(r.remote, ops)
	return nil
}

// send adds a pending write to a data center, and delivers some random pending writes.
func (s *link) send(dataCenter int, ops []op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending = append(s.pending, func() {
		m := s.models[dataCenter]
		m.mu.Lock()
		defer m.mu.Unlock()
		m.apply(ops, 0)
	})
	for len(s.pending) > 0 && s.rng.IntN(5) == 0 {
		s.deliver()
	}
}

func (s *link) deliverAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.pending) > 0 {
		s.deliver()
	}
}

func (s *link) deliver() {
	i, end := s.rng.IntN(len(s.pending)), len(s.pending)-1
	s.pending[i]()
	s.pending[i], s.pending = s.pending[end], s.pending[:end]
}

// Both regions receive the same results of a user, some twice. In each region, two processes apply
// them concurrently. In the end, the entry and the index of both regions must follow from all
// results, and RemoveOrphanRows must have removed all orphan rows.
func TestModelOfTwoRegions(t *testing.T) {
	orphans := 0
	for _, scenario := range []string{"results", "voids", "accounts", "divisions"} {
		for _, lost := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/lost=%v", scenario, lost), func(t *testing.T) {
				seed := stepsSeed(t)
				for i := range uint64(needs.More(t, 15)) {
					n, err := twoRegions(t, rand.New(rand.NewPCG(seed, i)), scenario, lost)
					if err != nil {
						t.Fatalf("run %d: %v", i, err)
					}
					orphans += n
				}
			})
		}
	}
	seed := stepsSeed(t)
	for i := uint64(0); orphans == 0 && i < 1000; i++ { // more runs until one has orphan rows
		n, err := twoRegions(t, rand.New(rand.NewPCG(seed, i)), "accounts", true)
		if err != nil {
			t.Fatalf("further run %d: %v", i, err)
		}
		orphans += n
	}
	t.Logf("RemoveOrphanRows removed %d rows after all writes had arrived", orphans)
	if orphans == 0 {
		t.Error("no run had orphan rows, want some")
	}
}

// removeOrphans returns the number of orphan rows that it has removed.
func removeOrphans(ctx context.Context, s *testStore) (int64, error) {
	end, err := s.RemoveOrphanRows(ctx, time.Hour) // from a random ladder to the last one
	if err != nil {
		return end, err
	}
	start, err := s.RemoveOrphanRows(ctx, time.Hour)
	return end + start, err
}

// checkOrphans removes rows that OrphanRows yields. A write of a dead process may have reached one of
// three replicas, so one read finds its row, and another does not.
func (w *writers) checkOrphans(ctx context.Context) error {
	var found error
	for range 20 {
		found = nil
		for row, err := range w.third.OrphanRows(ctx, leaderboard.SeasonKey{Board: w.board.ID, Season: leaderboard.SeasonAll}) {
			found = fmt.Errorf("OrphanRows yields %v, error %v; want no rows", row, err)
		}
		if found == nil {
			return nil
		}
		if _, err := removeOrphans(ctx, w.third); err != nil {
			return err
		}
	}
	return found
}

// In the scenario "voids", one region voids a match, and may restore it. In "divisions", one
// region changes the divisions. In "accounts", both regions may ban, unban and erase the user.
// Each region repeats the changes of the other region, as the service's sweeps do.
//
// If lost is true, all processes of one region die at some time. The writes during which they die
// may reach one or both regions. The other region continues. Later, new processes repeat the calls
// of the dead ones.
func twoRegions(t *testing.T, rng *rand.Rand, scenario string, lost bool) (orphans int, err error) {
	matches, few := scenario == "voids", rng.IntN(2) == 0
	ctx := t.Context()
	b := stepsBoard([]leaderboard.Policy{leaderboard.Best, leaderboard.Sum, leaderboard.Latest}[rng.IntN(3)])
	b.Matches = matches
	s := newLink(rng)
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
		region int
		calls  []func(*testStore) error
		step   func(int) bool
		die    func()
		err    error
	}
	var running []*process
	var stores [2][]*testStore
	start := func(i int, calls ...func(*testStore) error) {
		p := &process{region: i, calls: calls}
		steps := newSteps(s.region(i))
		steps.tear = func(ops []op) {
			if rng.IntN(2) == 0 {
				s.models[i].tear(ops)
			}
			if rng.IntN(2) == 0 {
				s.send(1-i, ops)
			}
		}
		store := openWith(steps, fmt.Sprintf("dc%d", i+1), few, rng.IntN(2) == 0)
		store.dataCenters = func(context.Context) ([]string, error) { return []string{"dc1", "dc2"}, nil }
		p.step, p.die = steps.walk(func() {
			for _, call := range calls {
				// A call fails if the deletions of an erasure have arrived before the erasure.
				for p.err = call(store); errors.Is(p.err, leaderboard.ErrUnavailable); p.err = call(store) {
					s.deliverAll()
				}
				if p.err != nil {
					return
				}
			}
		})
		running, stores[i] = append(running, p), append(stores[i], store)
	}
	for i, w := range regions {
		start(i, func(store *testStore) error { _, err := removeOrphans(ctx, store); return err })
		// One process applies the region's own results, and the other process the results
		// that are mirrored from the other region.
		var parts [2][]leaderboard.MatchResult
		for _, index := range rng.Perm(len(results)) {
			for copies := 1 + rng.IntN(5)/4; copies > 0; copies-- {
				part := rng.IntN(2)
				parts[part] = append(parts[part], results[index])
			}
		}
		for _, todo := range parts {
			var calls []func(*testStore) error
			for _, r := range todo {
				calls = append(calls, func(store *testStore) error { return w.send(ctx, store, []leaderboard.MatchResult{r}) })
			}
			start(i, calls...)
		}
	}
	if matches {
		i := rng.IntN(2)
		var calls []func(*testStore) error
		for voids := range int64(1 + rng.IntN(2)) {
			calls = append(calls, func(store *testStore) error { return void("m0", voids+1)(ctx, regions[i], store) })
		}
		start(i, calls...)
		start(1-i, func(store *testStore) error { return finishVoids(ctx, regions[1-i], store) })
	}
	if scenario == "accounts" {
		for i, w := range regions {
			start(i, accountCalls(ctx, rng, w)...)
			start(i, func(store *testStore) error { return finishChanges(ctx, w, store) })
		}
	}
	if scenario == "divisions" {
		i := rng.IntN(2)
		divisions := [][]string{{"club"}, {"club", "team"}, {}}[rng.IntN(3)]
		start(i, func(store *testStore) error { return divide(divisions...)(ctx, regions[i], store) })
		start(1-i, func(store *testStore) error {
			// AmendBoard uses swap, which does not reach the other data center in this test.
			_, err := store.AmendBoard(ctx, b.ID, func(b *leaderboard.Board) error { b.Divisions = divisions; return nil })
			return errors.Join(err, finishChanges(ctx, regions[1-i], store))
		})
	}
	deadRegion, deathAfter := rng.IntN(2), 1000
	if lost {
		deathAfter = rng.IntN(60)
	}
	var dead []*process
	run := func() error {
		for turn := 0; len(running) > 0; turn++ {
			if turn == deathAfter {
				running = slices.DeleteFunc(running, func(p *process) bool {
					if p.region == deadRegion {
						p.die()
						dead = append(dead, p)
					}
					return p.region == deadRegion
				})
				continue
			}
			i := rng.IntN(len(running))
			if !running[i].step(1 + rng.IntN(8)) {
				if running[i].err != nil {
					return running[i].err
				}
				running = append(running[:i], running[i+1:]...)
			}
		}
		s.deliverAll()
		return nil
	}
	if err := run(); err != nil {
		return 0, err
	}
	if len(dead) > 0 {
		survivor := regions[1-deadRegion]
		n, err := removeOrphans(ctx, survivor.third)
		orphans += int(n)
		// In other scenarios, the sweeps below complete the calls of dead processes. If two payloads
		// of one revision conflict, the one of a dead process may have replaced the other without a
		// new entry. A repair finds it.
		if err == nil && scenario == "results" {
			if conflict(results) {
				err = survivor.recountAll(ctx, survivor.third)
			}
			err = errors.Join(err, survivor.check(ctx), survivor.checkIndex(ctx), survivor.checkOrphans(ctx))
		}
		if err != nil {
			return orphans, fmt.Errorf("results %v, region %d is dead: %w", results, deadRegion, err)
		}
		for _, p := range dead {
			start(p.region, p.calls...)
		}
		deathAfter = 1000
		if err := run(); err != nil {
			return orphans, err
		}
	}
	for range 2 { // the next two sweeps; the first may find more seasons of the user
		for i, w := range regions {
			store := stores[i][len(stores[i])-1]
			if err := errors.Join(finishVoids(ctx, w, store), finishChanges(ctx, w, store)); err != nil {
				return orphans, err
			}
			s.deliverAll()
		}
	}
	n, err := checkRegions(ctx, s, regions)
	orphans += n
	if err != nil {
		return orphans, fmt.Errorf("results %v: %w", results, err)
	}
	regions[0].clock = stepsEpoch.Add(time.Hour) // after all erasures
	later := []leaderboard.MatchResult{regions[0].result("later 7 red")}
	for i, w := range regions {
		if err := w.send(ctx, stores[i][rng.IntN(2)], later); err != nil {
			return orphans, err
		}
	}
	if _, err := checkRegions(ctx, s, regions); err != nil {
		return orphans, fmt.Errorf("results %v, and one later result: %w", results, err)
	}
	return orphans, nil
}

// conflict reports whether two results have the same match and revision, but different contents.
func conflict(results []leaderboard.MatchResult) bool {
	return slices.ContainsFunc(results, func(x leaderboard.MatchResult) bool {
		return slices.ContainsFunc(results, func(y leaderboard.MatchResult) bool {
			return x.Match == y.Match && x.Revision == y.Revision && x.ContentID() != y.ContentID()
		})
	})
}

func accountCalls(ctx context.Context, rng *rand.Rand, w *writers) (calls []func(*testStore) error) {
	for range 1 + rng.IntN(3) {
		ban := leaderboard.Ban{User: w.user, Banned: rng.IntN(2) == 0, Revision: int64(rng.IntN(4)), At: stepsEpoch.Add(time.Duration(rng.IntN(90)) * time.Second)}
		erase := rng.IntN(6) == 0
		calls = append(calls, func(store *testStore) error {
			var changes []leaderboard.Change
			var err error
			if erase {
				changes, err = store.Erase(ctx, w.user, stepsEpoch.Add(time.Minute))
			} else {
				changes, err = store.SetBan(ctx, ban)
			}
			w.notifyChanges(changes)
			return err
		})
	}
	return calls
}

func finishChanges(ctx context.Context, w *writers, s *testStore) error {
	for c, err := range s.RankChanges(ctx) {
		if err == nil {
			err = s.FinishRankChange(ctx, c, func(entries []leaderboard.Entry) error {
				w.notify(entries...)
				if c.Board != "" {
					return w.recountAll(ctx, s)
				}
				return nil
			})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *writers) recountAll(ctx context.Context, s *testStore) error {
	b, err := s.Board(ctx, w.board.ID)
	if err != nil {
		return err
	}
	for user, err := range s.Users(ctx, leaderboard.SeasonKey{Board: b.ID, Season: leaderboard.SeasonAll}) {
		if err != nil {
			return err
		}
		change, err := s.Recount(ctx, &b, leaderboard.SeasonAll, user)
		if err != nil {
			return err
		}
		w.notify(change.After)
	}
	return nil
}

// checkRegions returns the number of orphan rows that it has removed.
func checkRegions(ctx context.Context, s *link, regions [2]*writers) (orphans int, err error) {
	s.deliverAll()
	for _, w := range regions {
		n, err := removeOrphans(ctx, w.third)
		orphans += int(n)
		if err != nil {
			return orphans, err
		}
		s.deliverAll()
	}
	for i, w := range regions {
		if err := errors.Join(w.check(ctx), w.checkIndex(ctx), w.checkOrphans(ctx)); err != nil {
			return orphans, fmt.Errorf("region %d: %w", i, err)
		}
	}
	return orphans, nil
}

// Each region refuses a result that lowers its sum below the board's Floor. The other region
// may accept this result. In the end, both regions have all accepted results, even if the sum
// is below Floor. The entries may lack results until both regions recount them.
func TestModelOfAFloorInTwoRegions(t *testing.T) {
	seed := stepsSeed(t)
	var n floorCounts
	runs := uint64(needs.More(t, 60))
	for i := uint64(0); i < runs || n.lacks() && i < 1000; i++ { // more runs until each count is above 0
		if err := twoRegionsWithAFloor(t, rand.New(rand.NewPCG(seed, i)), &n); err != nil {
			t.Fatalf("run %d: %v", i, err)
		}
	}
	t.Logf("%+v", n)
	if n.lacks() {
		t.Errorf("the runs have the counts %+v, want each count to be at least 1", n)
	}
}

func (n *floorCounts) lacks() bool { return n.differed == 0 || n.below == 0 || n.lacking == 0 }

type floorCounts struct {
	differed int // results that only one region accepted
	below    int // sums below Floor
	lacking  int // entries that lacked results before they were recounted
}

func twoRegionsWithAFloor(t *testing.T, rng *rand.Rand, n *floorCounts) error {
	ctx := t.Context()
	s := newLink(rng)
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
	for len(s.pending) > 0 {
		s.deliver()
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
			return fmt.Errorf("results %v: the stored results of region %d have the entry %+v, want the score %d of all accepted results", results, i, e, want)
		}
		if entries[i], err = w.third.Entry(ctx, key, "u"); err != nil && !errors.Is(err, leaderboard.ErrEntryNotFound) {
			return err
		}
		if w.check(ctx) != nil {
			n.lacking++
		}
	}
	if d := cmp.Diff(entries[0], entries[1], cmpopts.EquateEmpty()); d != "" {
		return fmt.Errorf("results %v: the regions have different entries (-first region +second region):\n%s", results, d)
	}
	for _, w := range regions {
		if _, err := w.stores[0].Recount(ctx, &b, key.Season, "u"); err != nil {
			return err
		}
	}
	for len(s.pending) > 0 {
		s.deliver()
	}
	return errors.Join(regions[0].check(ctx), regions[1].check(ctx))
}

// applyInTwoRegions returns the sum of the results that at least one region accepted.
func applyInTwoRegions(ctx context.Context, rng *rand.Rand, regions [2]*writers, results []leaderboard.MatchResult, n *floorCounts) (leaderboard.Score, error) {
	todo := [2][]int{rng.Perm(len(results)), rng.Perm(len(results))}
	accepted := make([]int, len(results)) // the number of regions that accepted each result
	for len(todo[0])+len(todo[1]) > 0 {
		i := rng.IntN(2)
		if len(todo[i]) == 0 {
			i = 1 - i
		}
		index := todo[i][0]
		todo[i] = todo[i][1:]
		report, err := regions[i].stores[0].Apply(ctx, regions[i].board, results[index:index+1])
		if err != nil {
			return 0, err
		}
		if report.Outcomes[0].Status != leaderboard.Rejected {
			accepted[index]++
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
