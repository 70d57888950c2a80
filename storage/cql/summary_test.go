package cql

import (
	"hash/maphash"
	"testing"

	"github.com/open-leaderboard/leaderboard"
)

// A correction and the result that stands have the same hash of 32 bits (shortHash). The store
// must not take the correction for a repetition.
func TestACorrectionWithTheSameShortHashIsApplied(t *testing.T) {
	s := openTest(newModel(nil), Options{DataCenter: "dc1", Buckets: 1, CacheUsers: 10})
	b := stepsBoard(leaderboard.Best)
	if err := s.CreateBoard(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	result := func(revision int64, score leaderboard.Score) leaderboard.MatchResult {
		r := leaderboard.MatchResult{Revision: revision, Score: score, AchievedAt: stepsEpoch, ReceivedAt: stepsEpoch}
		r.Board, r.Season, r.User, r.Match = b.ID, leaderboard.SeasonAll, "u", "m"
		return r
	}
	shortHash := func(r *leaderboard.MatchResult) uint32 {
		return uint32(maphash.Comparable(matchSeed, struct {
			revision int64
			content  leaderboard.ContentID
		}{r.Revision, r.ContentID()}) >> 32)
	}
	const scores = 300_000 // enough for about twenty corrections with the short hash of an original result
	scoreByHash := map[uint32]leaderboard.Score{}
	for score := range leaderboard.Score(scores) {
		r := result(0, score)
		scoreByHash[shortHash(&r)] = score
	}
	collisions := 0
	for score := range leaderboard.Score(scores) {
		correction := result(1, score)
		originalScore, ok := scoreByHash[shortHash(&correction)]
		if !ok {
			continue
		}
		original := result(0, originalScore)
		user := leaderboard.UserID(rune('a' + collisions))
		for i, r := range []*leaderboard.MatchResult{&original, &correction} {
			r.User = user
			report, err := s.Apply(t.Context(), &b, []leaderboard.MatchResult{*r})
			if err != nil {
				t.Fatal(err)
			}
			if got := report.Outcomes[0].Status; got != leaderboard.Applied {
				t.Errorf("Apply of revision %d with score %d returns status %v, want %v; revision 0 has score %d", i, r.Score, got, leaderboard.Applied, originalScore)
			}
		}
		e, err := s.Entry(t.Context(), original.SeasonKey, user)
		if err != nil {
			t.Fatal(err)
		}
		if got := b.ScoreOf(e.Key, stepsEpoch); got != score {
			t.Errorf("the entry has score %d, want the score %d of the correction", got, score)
		}
		if collisions++; collisions == 3 {
			return
		}
	}
	t.Fatalf("%d corrections out of %d have the short hash of an original result, want 3", collisions, scores)
}
