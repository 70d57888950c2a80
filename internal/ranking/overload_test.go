package ranking_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// slowStore is a store whose Apply returns an hour after ctx is done, with the first half of
// the results applied.
type slowStore struct{ leaderboard.Store }

func (s slowStore) Apply(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) (leaderboard.ApplyReport, error) {
	<-ctx.Done()
	time.Sleep(time.Hour)
	n := len(results) / 2
	report, err := s.Store.Apply(context.WithoutCancel(ctx), b, results[:n])
	for range results[n:] {
		report.Outcomes = append(report.Outcomes, leaderboard.Outcome{Err: fmt.Errorf("%w: %w", leaderboard.ErrUnavailable, ctx.Err())})
	}
	return report, err
}

func TestApplyWaitsForTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := open(t)
		b := f.create(sumBoard)
		slow := serviceOver(t, slowStore{f.store}, f.index)
		var results []leaderboard.MatchResult
		for i := range 4 {
			r, err := slow.Complete(t.Context(), &b, points(fmt.Sprint("u", i), "m", int64(9-i)))
			if err != nil {
				t.Fatal(err)
			}
			results = append(results, r)
		}
		f.wantList(boardB)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		startedAt := time.Now()
		report, err := slow.Apply(ctx, &b, results)
		if err != nil || time.Since(startedAt) < time.Hour {
			t.Fatalf("Apply returned %v after %v, want no error after at least an hour", err, time.Since(startedAt))
		}
		for i, o := range report.Outcomes {
			if failed := o.Err != nil; failed != (i >= 2) {
				t.Errorf("outcome %d: %+v, want an error for results 2 and 3 only", i, o)
			}
		}
		f.wantList(boardB, "u0 9 1", "u1 8 2")
	})
}
