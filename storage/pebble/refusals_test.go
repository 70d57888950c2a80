package pebble

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	leaderboard "github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/storage/storagetest"
)

// A reopened store counts the stored seasons.
func TestSeasonLimit(t *testing.T) {
	fs := vfs.NewMem()
	s := mustOpen(t, "data", Options{FS: fs})
	s.maxSeasons = 4
	storagetest.RunSeasonLimit(t, s.engineStore, s.maxSeasons)
	b, err := s.Board(t.Context(), "daily")
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	s = mustOpen(t, "data", Options{FS: fs})
	defer mustClose(t, s)
	s.maxSeasons = 4
	r := leaderboard.MatchResult{ResultKey: leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Board: "daily", Season: "20251201"}, User: "x", Match: "m"}}
	r.AchievedAt = b.CreatedAt.AddDate(0, 0, -90)
	r.ReceivedAt = b.CreatedAt
	report, err := s.Apply(t.Context(), &b, []leaderboard.MatchResult{r})
	if err != nil || report.Outcomes[0].Reason != leaderboard.ReasonSeasons {
		t.Errorf("outcome %+v, error %v; want a rejection with SEASON_LIMIT", report.Outcomes, err)
	}
}
