package ranking_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/embedded"
)

type brokenMatch struct {
	leaderboard.Store
	match leaderboard.MatchID
}

func (s *brokenMatch) Apply(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) (leaderboard.ApplyReport, error) {
	if slices.ContainsFunc(results, func(r leaderboard.MatchResult) bool { return r.Match == s.match }) {
		return leaderboard.ApplyReport{}, fmt.Errorf("match %q: %w", s.match, leaderboard.ErrUnavailable)
	}
	return s.Store.Apply(ctx, b, results)
}

func TestFinishVoidsGoesOnAfterAnError(t *testing.T) {
	inner, index := embedded.Open(t)
	store := &brokenMatch{Store: inner}
	f := serviceOver(t, store, index)
	b := f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Sum, Matches: true})
	for i, m := range []leaderboard.MatchID{"m1", "m2", "m3"} {
		f.submit(b.ID, points("ann", string(m), []int64{1, 10, 100}[i]))
		key := leaderboard.MatchKey{SeasonKey: leaderboard.SeasonKey{Board: b.ID, Season: leaderboard.SeasonAll}, Match: m}
		// The process that voids the match dies after SetMatch.
		if _, err := inner.SetMatch(t.Context(), &b, leaderboard.MatchState{MatchKey: key, Voids: 1}); err != nil {
			t.Fatal(err)
		}
	}
	f.wantList(ranking.Query{Board: b.ID}, "ann 111 1")
	store.match = "m1"
	if err := f.FinishVoids(t.Context()); !errors.Is(err, leaderboard.ErrUnavailable) {
		t.Errorf("FinishVoids returns %v, want %v, the error of match m1", err, leaderboard.ErrUnavailable)
	}
	f.wantList(ranking.Query{Board: b.ID}, "ann 1 1")
	store.match = ""
	if err := f.FinishVoids(t.Context()); err != nil {
		t.Error(err)
	}
	f.wantList(ranking.Query{Board: b.ID})
}
