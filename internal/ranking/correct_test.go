package ranking_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

func TestLinkedBoardsRefuseCorrections(t *testing.T) {
	f := linkedPair(t)
	f.submit("laps", withRevision(points("ann", "m", 7), 0, start))
	key := leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Board: "month", Season: "202611"}, User: "ann", Match: "m"}
	score := leaderboard.Score(9)
	if _, _, err := f.Correct(t.Context(), f.board("month"), key, ranking.Correction{Score: &score}); !errors.Is(err, leaderboard.ErrInvalid) {
		t.Errorf("Correct on a linked board: %v, want ErrInvalid", err)
	}
	if _, _, err := f.ResultSeason(t.Context(), f.board("month"), key); !errors.Is(err, leaderboard.ErrInvalid) {
		t.Errorf("ResultSeason on a linked board: %v, want ErrInvalid", err)
	}
	f.wantList(november, "ann 7 1")
}

// The retry arrives just after the season's end, without a timestamp.
func TestRetryOfACorrectedResultCountsOnce(t *testing.T) {
	end := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	score, achieved := leaderboard.Score(9), end.Add(-time.Hour)
	for name, c := range map[string]ranking.Correction{"the score": {Score: &score}, "the time": {AchievedAt: &achieved}} {
		t.Run("a correction of "+name, func(t *testing.T) {
			f := open(t)
			f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Sum, Season: leaderboard.Schedule{Kind: leaderboard.Monthly, Grace: time.Hour}})
			f.clock.set(end.Add(-time.Second))
			f.submit("b", points("u", "m", 5))
			key := leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Board: "b", Season: "202611"}, User: "u", Match: "m"}
			if _, r, err := f.Correct(t.Context(), f.board("b"), key, c); err != nil || r.Status != leaderboard.Applied {
				t.Fatalf("the correction: %+v, %v, want APPLIED", r, err)
			}
			f.clock.set(end.Add(time.Second))
			if got := f.trySubmit("b", points("u", "m", 5)); got.Status != leaderboard.Superseded || got.Season != "202611" {
				t.Errorf("the retry: %+v, want SUPERSEDED in season 202611", got)
			}
			f.wantList(ranking.Query{Board: "b", Season: "202612"})
		})
	}
}

func TestMatchIsSoughtInTheNewestSeasons(t *testing.T) {
	f := open(t)
	f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Sum, Season: leaderboard.Schedule{Kind: leaderboard.Daily, Grace: century}})
	for day := range 33 {
		f.submit("b", withRevision(points("u", fmt.Sprint("m", day), 5), 0, start.AddDate(0, 0, -1-day)))
	}
	find := func(match leaderboard.MatchID) (leaderboard.SeasonID, error) {
		return f.SeasonOfMatch(t.Context(), f.board("b"), "u", match)
	}
	if season, err := find("m31"); err != nil || season != naiveSeason(leaderboard.Schedule{Kind: leaderboard.Daily}, start.AddDate(0, 0, -32)) {
		t.Errorf("the match of 32 days ago: season %q, %v; want the season of that day", season, err)
	}
	var field *leaderboard.FieldError
	if season, err := find("m32"); !errors.As(err, &field) || field.Field != "season" {
		t.Errorf("the match of 33 days ago: season %q, %v; want an error that asks for the season", season, err)
	}
}
