package cql

import (
	"hash/maphash"
	"testing"

	"github.com/open-leaderboard/leaderboard"
)

// The hashes of a correction and of the result that stands agree in 32 bits. The store must
// not regard the correction as a repetition.
func TestACorrectionWithTheSameShortHashIsApplied(t *testing.T) {
	s := open(newModel(nil), Options{DataCenter: "dc1", Buckets: 1, CacheUsers: 10})
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
	const scores = 300_000 // enough for about twenty collisions between the two revisions
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
		user := leaderboard.UserID(rune('a' + collisions)) // one user for each collision
		for i, r := range []*leaderboard.MatchResult{&original, &correction} {
			r.User = user
			report, err := s.Apply(t.Context(), &b, []leaderboard.MatchResult{*r})
			if err != nil {
				t.Fatal(err)
			}
			if got := report.Outcomes[0].Status; got != leaderboard.Applied {
				t.Errorf("Apply of revision %d with score %d after score %d returns status %v, want %v", i, r.Score, originalScore, got, leaderboard.Applied)
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
	t.Fatalf("found %d collisions in %d scores, want 3", collisions, scores)
}
