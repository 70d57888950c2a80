package storagetest

import (
	"slices"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// RunSeasonLimit tests that a board of store, which must be empty, has at most limit seasons. limit is at
// least 3, and stands for [leaderboard.MaxBoardSeasons].
func RunSeasonLimit(t *testing.T, store leaderboard.Store, limit int) {
	f := &fixture{T: t, Store: store, ctx: t.Context(), clock: epoch.Add(time.Hour)}
	daily, floor := sumBoard("daily"), leaderboard.Score(0)
	daily.Floor = &floor
	daily.Season = leaderboard.Schedule{Kind: leaderboard.Daily, Grace: 100 * 365 * 24 * time.Hour}
	b := f.create(daily)
	result := func(user leaderboard.UserID, days int, score leaderboard.Score) leaderboard.MatchResult {
		r := f.result(b, user, "m", 0, score)
		r.AchievedAt = epoch.AddDate(0, 0, -days)
		r.Season = leaderboard.SeasonID(r.AchievedAt.Format("20060102"))
		return r
	}
	check := func(what string, want leaderboard.Status, reason leaderboard.Reason, r leaderboard.MatchResult) {
		t.Helper()
		o := f.apply(b, r).Outcomes[0]
		f.equal(what, []any{want, reason, false}, []any{o.Status, o.Reason, o.Repeated})
	}
	for days := range limit {
		check("a result within the limit", leaderboard.Applied, "", result("u", days, 5))
	}
	excess, retraction := result("u", limit, 5), result("w", limit+1, 0)
	retraction.Retracted = true
	for range 2 {
		check("a result in another season", leaderboard.Rejected, leaderboard.ReasonSeasons, excess)
		check("a retraction in another season", leaderboard.Rejected, leaderboard.ReasonSeasons, retraction)
		check("a result below the floor in another season", leaderboard.Rejected, leaderboard.ReasonSeasons, result("v", limit, -1))
		check("a new user in a season that exists", leaderboard.Duplicate, "", f.once(b, result("v", 1, 7)))
	}
	refusals, err := f.RecentRefusals(f.ctx, b, excess.ResultKey)
	f.ok("RecentRefusals", err)
	f.equal("refusals", []leaderboard.RecentRefusal{{Season: excess.Season, Refusal: leaderboard.Refusal{
		Reason: leaderboard.ReasonSeasons, Content: excess.ContentID(), ReceivedAt: excess.ReceivedAt}}}, refusals)
	ids, err := f.SeasonIDs(f.ctx, "daily")
	f.ok("SeasonIDs", err)
	f.equal("number of seasons", limit, len(ids))
	f.ok("DeleteSeason", f.DeleteSeason(f.ctx, leaderboard.SeasonKey{Board: "daily", Season: slices.Min(ids)}, time.Time{}))
	check("the result after a season was deleted", leaderboard.Applied, "", excess)
	check("a result in another season, when the board is full again", leaderboard.Rejected, leaderboard.ReasonSeasons, result("u", limit+2, 5))
	other := f.create(sumBoard("all"))
	f.equal("a result of a board with one season", leaderboard.Applied, f.apply(other, f.result(other, "u", "m", 0, 1)).Outcomes[0].Status)
}

// once applies r, and returns it.
func (f *fixture) once(b *leaderboard.Board, r leaderboard.MatchResult) leaderboard.MatchResult {
	f.Helper()
	f.apply(b, r)
	return r
}
