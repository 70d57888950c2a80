package storagetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// If the store returns an unexpected error, most methods of fixture end the test.
type fixture struct {
	*testing.T
	leaderboard.Store
	limits Limits
	sizes  Sizes
	ctx    context.Context
	clock  time.Time // the time of the latest result
}

func (f *fixture) rows(n int) int { return max(n/f.sizes.RowsDivisor, min(n, 30)) }

func (f *fixture) rounds(n int) int { return max(n/f.sizes.RoundsDivisor, 2) }

func (f *fixture) ok(subject string, err error) {
	f.Helper()
	if err != nil {
		f.Fatalf("%s: %v", subject, err)
	}
}

func (f *fixture) wantErr(subject string, err, want error) {
	f.Helper()
	if !errors.Is(err, want) {
		f.Errorf("%s: error %v, want %v", subject, err, want)
	}
}

func (f *fixture) equal(subject string, want, got any) {
	f.Helper()
	if err := diff(subject, want, got); err != nil {
		f.Fatal(err)
	}
}

func replaceBy(board leaderboard.Board) func(*leaderboard.Board) error {
	return func(b *leaderboard.Board) error {
		*b = board
		return nil
	}
}

func sumBoard(id leaderboard.BoardID) leaderboard.Board {
	return leaderboard.Board{ID: id, Policy: leaderboard.Sum, CreatedAt: epoch}
}

func bestBoard(id leaderboard.BoardID) leaderboard.Board {
	return leaderboard.Board{ID: id, Policy: leaderboard.Best, CreatedAt: epoch, Divisions: []string{"gender", "country"},
		Season: leaderboard.Schedule{Kind: leaderboard.Explicit, Grace: grace, Windows: []leaderboard.Season{
			{ID: "s1", Start: epoch, End: epoch.AddDate(0, 0, 10)},
			{ID: "s2", Start: epoch.AddDate(0, 0, 10), End: epoch.AddDate(0, 0, 20)},
		}}}
}

func firstSeason(b *leaderboard.Board) leaderboard.SeasonKey {
	if len(b.Season.Windows) > 0 {
		return leaderboard.SeasonKey{Board: b.ID, Season: b.Season.Windows[0].ID}
	}
	return leaderboard.SeasonKey{Board: b.ID, Season: leaderboard.SeasonAll}
}

func secondSeason(b *leaderboard.Board) leaderboard.SeasonKey {
	return leaderboard.SeasonKey{Board: b.ID, Season: b.Season.Windows[1].ID}
}

func (f *fixture) create(b leaderboard.Board) *leaderboard.Board {
	f.Helper()
	f.ok("CreateBoard", f.CreateBoard(f.ctx, b))
	b, err := f.Board(f.ctx, b.ID)
	f.ok("Board", err)
	return &b
}

// result advances f.clock by one second, and returns a result of this time in the first season.
func (f *fixture) result(b *leaderboard.Board, user leaderboard.UserID, match leaderboard.MatchID, revision int64, score leaderboard.Score) leaderboard.MatchResult {
	f.clock = f.clock.Add(time.Second)
	r := leaderboard.MatchResult{Revision: revision, Score: score, AchievedAt: f.clock, ReceivedAt: f.clock}
	r.Board, r.Season, r.User, r.Match = b.ID, leaderboard.SeasonAll, user, match
	if len(b.Season.Windows) > 0 {
		r.Season = b.Season.Windows[0].ID
	}
	return r
}

func (f *fixture) retraction(b *leaderboard.Board, user leaderboard.UserID, match leaderboard.MatchID, revision int64) leaderboard.MatchResult {
	r := f.result(b, user, match, revision, 0)
	r.Retracted = true
	return r
}

func withAttributes(r leaderboard.MatchResult, attributes ...string) leaderboard.MatchResult {
	r.Attributes = map[string]string{}
	for i := 0; i < len(attributes); i += 2 {
		r.Attributes[attributes[i]] = attributes[i+1]
	}
	return r
}

func inSeason(season leaderboard.SeasonID, r leaderboard.MatchResult) leaderboard.MatchResult {
	r.Season = season
	return r
}

// inSecondSeason moves the event time of r into the second season, but keeps r.Season.
func inSecondSeason(r leaderboard.MatchResult) leaderboard.MatchResult {
	r.AchievedAt = epoch.AddDate(0, 0, 12)
	return r
}

func (f *fixture) apply(b *leaderboard.Board, results ...leaderboard.MatchResult) leaderboard.ApplyReport {
	f.Helper()
	report, err := f.Apply(f.ctx, b, results)
	f.ok("Apply", err)
	if len(report.Outcomes) != len(results) {
		f.Fatalf("Apply of %d results returned %d outcomes, want one for each result", len(results), len(report.Outcomes))
	}
	for i, o := range report.Outcomes {
		f.ok(fmt.Sprintf("Apply, outcome %d", i), o.Err)
	}
	return report
}

func (f *fixture) setBanned(user leaderboard.UserID, banned bool) []leaderboard.Change {
	f.Helper()
	changes, err := f.SetBan(f.ctx, leaderboard.Ban{User: user, Banned: banned, Reason: "cheats", At: f.clock})
	f.ok("SetBan", err)
	slices.SortFunc(changes, func(x, y leaderboard.Change) int { return compareSeasonKeys(x.After.SeasonKey, y.After.SeasonKey) })
	return changes
}

// An empty board means a ban on all boards. If the store has no such ban, Banned is false.
func (f *fixture) banOn(user leaderboard.UserID, board leaderboard.BoardID) leaderboard.Ban {
	f.Helper()
	bans, err := f.UserBans(f.ctx, user)
	f.ok("UserBans", err)
	for _, b := range bans {
		if b.Board == board {
			return b
		}
	}
	return leaderboard.Ban{User: user, Board: board}
}

func (f *fixture) setBan(ban leaderboard.Ban) []leaderboard.Change {
	f.Helper()
	changes, err := f.SetBan(f.ctx, ban)
	f.ok("SetBan", err)
	return changes
}

func (f *fixture) erase(user leaderboard.UserID, at time.Time) []leaderboard.Change {
	f.Helper()
	changes, err := f.Erase(f.ctx, user, at)
	f.ok("Erase", err)
	slices.SortFunc(changes, func(x, y leaderboard.Change) int { return compareSeasonKeys(x.After.SeasonKey, y.After.SeasonKey) })
	return changes
}

// populate applies two results and a result that arrives too late, and seals the first season.
func (f *fixture) populate(b *leaderboard.Board) {
	f.Helper()
	late := f.result(b, "u", "late", 0, 1)
	late.ReceivedAt = epoch.AddDate(1, 0, 0)
	f.apply(b, withAttributes(f.result(b, "u", "m", 0, 5), "gender", "F"), withAttributes(f.result(b, "v", "m", 0, 7), "gender", "F"), late)
	_, err := f.Seal(f.ctx, b, firstSeason(b).Season, f.clock)
	f.ok("Seal", err)
}

func (f *fixture) finalStanding(l leaderboard.Ladder, user leaderboard.UserID) (leaderboard.Standing, error) {
	return finalStanding(f.ctx, f.Store, l, user)
}

func (f *fixture) entry(s leaderboard.SeasonKey, user leaderboard.UserID) leaderboard.Entry {
	f.Helper()
	e, err := f.Entry(f.ctx, s, user)
	if errors.Is(err, leaderboard.ErrEntryNotFound) {
		return leaderboard.Entry{SeasonKey: s, User: user}
	}
	f.ok("Entry", err)
	return e
}

func (f *fixture) score(b *leaderboard.Board, s leaderboard.SeasonKey, user leaderboard.UserID) string {
	f.Helper()
	e := f.entry(s, user)
	if e.Key == "" {
		return "-"
	}
	return fmt.Sprint(b.ScoreOf(e.Key, epoch))
}

func (f *fixture) ladder(s leaderboard.SeasonKey, division string) []leaderboard.UserID {
	f.Helper()
	d, err := leaderboard.ParseDivision(division)
	f.ok("ParseDivision", err)
	entries, err := collect(f.Entries(f.ctx, leaderboard.Ladder{SeasonKey: s, Division: d}, ""))
	f.ok("Entries", err)
	users := make([]leaderboard.UserID, len(entries))
	for i, e := range entries {
		users[i] = e.User
	}
	return users
}

func users(ids ...leaderboard.UserID) []leaderboard.UserID { return ids }

// checkNoData checks that no data of populate remains.
func (f *fixture) checkNoData(b leaderboard.Board) {
	f.Helper()
	s := firstSeason(&b)
	f.equal("ladder", users(), f.ladder(s, ""))
	f.equal("division", users(), f.ladder(s, "gender:F"))
	entries, err := collect(f.Scan(f.ctx, s, leaderboard.Part{}))
	f.ok("Scan", err)
	f.equal("Scan", 0, len(entries))
	ids, err := collect(f.Users(f.ctx, s))
	f.ok("Users", err)
	f.equal("Users", 0, len(ids))
	results, err := collect(f.Results(f.ctx, s, "u"))
	f.ok("Results", err)
	f.equal("Results", 0, len(results))
	_, err = f.Result(f.ctx, leaderboard.ResultKey{SeasonKey: s, User: "u", Match: "m"})
	f.wantErr("Result", err, leaderboard.ErrResultNotFound)
	_, err = f.Entry(f.ctx, s, "u")
	f.wantErr("Entry", err, leaderboard.ErrEntryNotFound)
	_, _, err = f.FinalStandings(f.ctx, leaderboard.Ladder{SeasonKey: s}, 1, 1)
	f.wantErr("FinalStandings", err, leaderboard.ErrNotSealed)
	_, err = f.finalStanding(leaderboard.Ladder{SeasonKey: s}, "u")
	f.wantErr("final standing", err, leaderboard.ErrNotSealed)
	seasons, err := f.Seasons(f.ctx, b.ID)
	f.ok("Seasons", err)
	for _, r := range seasons {
		if r.SeasonKey == s {
			f.Errorf("Seasons returned %v, want only other seasons", s)
		}
	}
	keys, err := f.UserSeasons(f.ctx, "u")
	f.ok("UserSeasons", err)
	for _, key := range keys {
		if key == s {
			f.Errorf("UserSeasons returned %v, want only other seasons", s)
		}
	}
}
