package ranking_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/embedded"
)

// afterRead is a store that calls next once, after the next read of a result.
type afterRead struct {
	leaderboard.Store
	next func()
}

func (s *afterRead) Result(ctx context.Context, key leaderboard.ResultKey) (leaderboard.Record, error) {
	record, err := s.Store.Result(ctx, key)
	if next := s.next; next != nil {
		s.next = nil
		next()
	}
	return record, err
}

// correct changes the score of a result of the board b, and its event time.
func (f *fixture) correct(key leaderboard.ResultKey, score leaderboard.Score, achieved time.Time) {
	f.t.Helper()
	if _, r, err := f.Correct(f.t.Context(), f.board("b"), key, ranking.Correction{Score: &score, AchievedAt: &achieved}); err != nil || r.Status != leaderboard.Applied {
		f.t.Fatalf("the correction: %+v, %v; want APPLIED", r, err)
	}
}

// However many corrections arrive between the read and the write of a retraction, the
// result no longer counts afterwards.
func TestRetractionsIncludeCorrectionsThatArriveMeanwhile(t *testing.T) {
	store, index := embedded.Open(t)
	reads := &afterRead{Store: store}
	f := over(t, reads, index)
	f.create(sumBoard)
	corrections := func(key leaderboard.ResultKey, n int) {
		for i := range n {
			f.correct(key, leaderboard.Score(i), start)
		}
	}
	for n := range 4 {
		submit := func(match string) leaderboard.ResultKey {
			match = fmt.Sprint(match, n)
			f.submit("b", at(points("u", match, 5), 0, start))
			return leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Board: "b", Season: leaderboard.SeasonAll}, User: "u", Match: leaderboard.MatchID(match)}
		}
		one, many, purged := submit("one"), submit("many"), submit("purged")
		b := f.board("b")
		reads.next = func() { corrections(one, n) }
		if r, err := f.Retract(t.Context(), b, one, nil); err != nil || r.Status == leaderboard.Superseded || r.Score != 10 {
			t.Errorf("Retract beside %d corrections: %+v, %v; want the score 10 of the other results", n, r, err)
		}
		plan, err := f.PlanRetractions(t.Context(), b, []leaderboard.ResultKey{many, many})
		if err != nil {
			t.Fatal(err)
		}
		corrections(many, n)
		if receipts, err := f.RetractAll(t.Context(), b, plan); err != nil || receipts[1].Status != leaderboard.Duplicate || receipts[1].Score != 5 {
			t.Errorf("RetractAll beside %d corrections: %+v, %v; want DUPLICATE with the score 5 for the second", n, receipts, err)
		}
		if plan, err = f.PlanPurge(t.Context(), b, "u", "", time.Time{}, start.Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		corrections(purged, n)
		if receipts, err := f.RetractAll(t.Context(), b, plan); err != nil || len(receipts) != 1 || receipts[0].HasScore {
			t.Errorf("a purge beside %d corrections: %+v, %v; want one receipt without a score", n, receipts, err)
		}
		f.wantList(ranking.Query{Board: "b"})
	}
}

// A purge leaves alone a result that a correction moves out of its interval meanwhile.
func TestPurgesLeaveResultsThatMoveOutOfTheInterval(t *testing.T) {
	f := open(t)
	f.create(sumBoard)
	f.submit("b", at(points("u", "m", 5), 0, start))
	key := leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Board: "b", Season: leaderboard.SeasonAll}, User: "u", Match: "m"}
	plan, err := f.PlanPurge(t.Context(), f.board("b"), "u", "", start, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		f.correct(key, 7, start.Add(time.Duration(-1-i)*time.Minute))
	}
	if receipts, err := f.RetractAll(t.Context(), f.board("b"), plan); err != nil || receipts[0].Status != leaderboard.Superseded {
		t.Errorf("the purge: %+v, %v; want SUPERSEDED", receipts, err)
	}
	f.wantList(ranking.Query{Board: "b"}, "u 7 1")
}

// A purge of more results than fit in one call reports that more are left.
func TestPurgesOfManyResultsAreRepeated(t *testing.T) {
	f := open(t)
	f.create(sumBoard)
	const rest = 2
	for from := 0; from < ranking.MaxBatch+rest; from += ranking.MaxBatch {
		var batch []leaderboard.MatchResult
		for i := from; i < min(from+ranking.MaxBatch, ranking.MaxBatch+rest); i++ {
			batch = append(batch, at(points("u", fmt.Sprint("m", i), 1), 0, start))
		}
		if _, err := f.Submit(t.Context(), f.board("b"), batch); err != nil {
			t.Fatal(err)
		}
	}
	for call, want := range []int{ranking.MaxBatch, rest, 0} {
		plan, err := f.PlanPurge(t.Context(), f.board("b"), "u", "", start, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		if len(plan.Keys) != want || plan.More != (call == 0) {
			t.Fatalf("purge %d finds %d results, more %v; want %d, more %v", call, len(plan.Keys), plan.More, want, call == 0)
		}
		if want == 0 {
			break
		}
		if _, err := f.RetractAll(t.Context(), f.board("b"), plan); err != nil {
			t.Fatal(err)
		}
	}
	f.wantList(ranking.Query{Board: "b"})
}
