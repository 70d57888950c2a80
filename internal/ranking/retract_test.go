package ranking_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/embedded"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

// afterRead is a store that calls hook once, after the next read of a result.
type afterRead struct {
	leaderboard.Store
	hook func()
}

func (s *afterRead) Result(ctx context.Context, key leaderboard.ResultKey) (leaderboard.Record, error) {
	record, err := s.Store.Result(ctx, key)
	if hook := s.hook; hook != nil {
		s.hook = nil
		hook()
	}
	return record, err
}

func (f *fixture) correct(key leaderboard.ResultKey, score leaderboard.Score, achieved time.Time) {
	f.t.Helper()
	if _, r, err := f.Correct(f.t.Context(), f.board("b"), key, ranking.Correction{Score: &score, AchievedAt: &achieved}); err != nil || r.Status != leaderboard.Applied {
		f.t.Fatalf("the correction: %+v, %v; want APPLIED", r, err)
	}
}

// Corrections are stored after a retraction has read the result. In the end, the result does not
// count.
func TestRetractionsIncludeCorrectionsThatArriveMeanwhile(t *testing.T) {
	store, index := embedded.Open(t)
	reads := &afterRead{Store: store}
	f := serviceOver(t, reads, index)
	f.create(sumBoard)
	corrections := func(key leaderboard.ResultKey, n int) {
		for i := range n {
			f.correct(key, leaderboard.Score(i), start)
		}
	}
	for n := range 4 {
		submit := func(match string) leaderboard.ResultKey {
			match = fmt.Sprint(match, n)
			f.submit("b", withRevision(points("u", match, 5), 0, start))
			return leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Board: "b", Season: leaderboard.SeasonAll}, User: "u", Match: leaderboard.MatchID(match)}
		}
		one, many, purged := submit("one"), submit("many"), submit("purged")
		b := f.board("b")
		reads.hook = func() { corrections(one, n) }
		if r, err := f.Retract(t.Context(), b, one, nil); err != nil || r.Status == leaderboard.Superseded || r.Score != 10 {
			t.Errorf("Retract during %d corrections: %+v, error %v; want the score 10 of the other two results, and not SUPERSEDED", n, r, err)
		}
		plan, err := f.PlanRetractions(t.Context(), b, []leaderboard.ResultKey{many, many})
		if err != nil {
			t.Fatal(err)
		}
		corrections(many, n)
		if receipts, err := f.RetractAll(t.Context(), b, plan); err != nil || receipts[1].Status != leaderboard.Duplicate || receipts[1].Score != 5 {
			t.Errorf("RetractAll after %d corrections: %+v, %v; want the second receipt, for the same result again, to be DUPLICATE with the score 5 of the remaining result", n, receipts, err)
		}
		if plan, err = f.PlanPurge(t.Context(), b, "u", "", time.Time{}, start.Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		corrections(purged, n)
		if receipts, err := f.RetractAll(t.Context(), b, plan); err != nil || len(receipts) != 1 || receipts[0].HasScore {
			t.Errorf("a purge after %d corrections: %+v, %v; want one receipt without a score", n, receipts, err)
		}
		f.wantList(ranking.Query{Board: "b"})
	}
}

func TestPurgesLeaveResultsThatMoveOutOfTheInterval(t *testing.T) {
	f := open(t)
	f.create(sumBoard)
	f.submit("b", withRevision(points("u", "m", 5), 0, start))
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

func TestPurgesOfManyResultsAreRepeated(t *testing.T) {
	needs.NoRace(t, "smaller purges run under the detector")
	f := open(t)
	f.create(sumBoard)
	const extra = 2
	for first := 0; first < ranking.MaxBatch+extra; first += ranking.MaxBatch {
		var batch []leaderboard.MatchResult
		for i := first; i < min(first+ranking.MaxBatch, ranking.MaxBatch+extra); i++ {
			batch = append(batch, withRevision(points("u", fmt.Sprint("m", i), 1), 0, start))
		}
		if _, err := f.Submit(t.Context(), f.board("b"), batch); err != nil {
			t.Fatal(err)
		}
	}
	for call, want := range []int{ranking.MaxBatch, extra, 0} {
		plan, err := f.PlanPurge(t.Context(), f.board("b"), "u", "", start, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		if len(plan.Keys) != want || plan.More != (call == 0) {
			t.Fatalf("PlanPurge %d finds %d results, More is %v; want %d, and %v", call, len(plan.Keys), plan.More, want, call == 0)
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

// When Apply of a slowRetraction gets a retraction, it closes reached, and waits until resume is
// closed. Meanwhile, the second read of a result calls secondRead.
type slowRetraction struct {
	leaderboard.Store
	reached, resume chan struct{}
	reads           atomic.Int32
	secondRead      func()
}

func (s *slowRetraction) Apply(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) (leaderboard.ApplyReport, error) {
	if results[0].Retracted {
		s.reads.Store(0)
		close(s.reached)
		<-s.resume
	}
	return s.Store.Apply(ctx, b, results)
}

func (s *slowRetraction) Result(ctx context.Context, key leaderboard.ResultKey) (leaderboard.Record, error) {
	record, err := s.Store.Result(ctx, key)
	if s.secondRead != nil && s.reads.Add(1) == 2 {
		s.secondRead()
	}
	return record, err
}

// A refused result has revision 3, so the retraction and the correction both choose revision 4.
// The retraction reserves revision 4 first, so the correction must wait.
func TestCorrectionsAfterARefusalDoNotReplaceARetraction(t *testing.T) {
	embeddedStore, index := embedded.Open(t)
	store := &slowRetraction{Store: embeddedStore, reached: make(chan struct{}), resume: make(chan struct{})}
	f := serviceOver(t, store, index)
	f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Sum, Floor: new(leaderboard.Score)})
	f.submit("b", withRevision(points("u", "m", 5), 0, start))
	if r := f.trySubmit("b", withRevision(points("u", "m", -5), 3, start)); r.Status != leaderboard.Rejected {
		t.Fatalf("a result below the floor: %+v, want REJECTED", r)
	}
	key := leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Board: "b", Season: leaderboard.SeasonAll}, User: "u", Match: "m"}
	b := f.board("b")
	retracted := make(chan error)
	go func() {
		r, err := f.Retract(t.Context(), b, key, nil)
		if err == nil && r.Status != leaderboard.Applied {
			err = fmt.Errorf("the retraction: %+v, want APPLIED", r)
		}
		retracted <- err
	}()
	<-store.reached
	store.secondRead = func() {
		close(store.resume)
		if err := <-retracted; err != nil {
			t.Error(err)
		}
	}
	score := leaderboard.Score(7)
	if _, r, err := f.Correct(t.Context(), b, key, ranking.Correction{Score: &score}); !errors.Is(err, leaderboard.ErrResultNotFound) {
		t.Errorf("the correction: %+v, %v; want ErrResultNotFound", r, err)
	}
	f.wantList(ranking.Query{Board: "b"})
}

func TestPreviewsOfRetractionsSkipRefusedRevisions(t *testing.T) {
	f := open(t)
	f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Sum, Floor: new(leaderboard.Score)})
	f.submit("b", withRevision(points("u", "m", 5), 0, start))
	if r := f.trySubmit("b", withRevision(points("u", "m", -5), 3, start)); r.Status != leaderboard.Rejected {
		t.Fatalf("a result below the floor: %+v, want REJECTED", r)
	}
	b, key := f.board("b"), leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Board: "b"}, User: "u", Match: "m"}
	p, err := f.PreviewRetraction(t.Context(), b, key, nil)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := f.PlanPurge(t.Context(), b, "u", "", time.Time{}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	purged, _, err := f.PreviewRetractions(t.Context(), b, plan)
	if err != nil {
		t.Fatal(err)
	}
	r, err := f.Retract(t.Context(), b, key, nil)
	if err != nil || r.Revision != 4 || p.Revision != r.Revision || purged[0].Revision != r.Revision {
		t.Errorf("the retraction has revision %d, error %v, its preview %d, the preview of a purge %d; want 4", r.Revision, err, p.Revision, purged[0].Revision)
	}
}
