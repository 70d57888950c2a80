package pebble

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	leaderboard "github.com/open-leaderboard/leaderboard"
)

// A user row knows the matches of few results only, and by 16 bits of each. Each result is applied once,
// whether or not the row knows it, and whether the store was closed meanwhile.
func TestEachMatchIsAppliedOnce(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	s := mustOpen(t, dir, Options{})
	if err := s.CreateBoard(t.Context(), *testBoard()); err != nil {
		t.Fatal(err)
	}
	ids := []leaderboard.MatchID{}
	same := map[uint16]leaderboard.MatchID{}
	for i := 0; len(ids) < 2; i++ { // two ids with one hash
		id := leaderboard.MatchID(fmt.Sprint("twin-", i))
		if twin, ok := same[hashOf(id)]; ok {
			ids = append(ids, twin, id)
		}
		same[hashOf(id)] = id
	}
	for i := range 3 * maxMatches {
		ids = append(ids, leaderboard.MatchID(fmt.Sprint("m", i)))
	}
	order := slices.Concat(ids[:2], ids[:2], ids, ids, ids)
	rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	applied := map[leaderboard.MatchID]bool{}
	for n, id := range order {
		r := testResult("u", id, 1, 2)
		report, err := s.Apply(t.Context(), testBoard(), []leaderboard.MatchResult{r})
		if err != nil {
			t.Fatal(err)
		}
		want := leaderboard.Applied
		if applied[id] {
			want = leaderboard.Duplicate
		}
		if got := report.Outcomes[0].Status; got != want {
			t.Errorf("result %d of match %s: %v, want %v", n, id, got, want)
		}
		applied[id] = true
		if e := mustEntry(t, s, "u"); e.Results != int64(len(applied)) {
			t.Fatalf("the entry has %d results, want %d", e.Results, len(applied))
		}
		if n == len(ids)/2 || n == 2*len(ids) {
			mustClose(t, s)
			s = mustOpen(t, dir, Options{})
		}
	}
	mustClose(t, s)
}

// A refusal is a record too: its repetition must be recognized.
func TestRefusalsOfKnownMatches(t *testing.T) {
	floor := leaderboard.Score(0)
	s, b := openTest(t), &leaderboard.Board{ID: "floor", Policy: leaderboard.Sum, Floor: &floor, CreatedAt: testEpoch}
	if err := s.CreateBoard(t.Context(), *b); err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{false, false, true} {
		r := testResult("u", "m", 1, -5)
		if i == 0 {
			r = testResult("u", "first", 1, 1)
		}
		r.Board, r.Metadata, r.Attributes = b.ID, "", nil
		report, err := s.Apply(t.Context(), b, []leaderboard.MatchResult{r})
		if err != nil {
			t.Fatal(err)
		}
		if got := report.Outcomes[0].Repeated; got != want {
			t.Errorf("result %d: %+v, want repeated %v", i, report.Outcomes[0], want)
		}
	}
}
