// Package storagetest holds the contract of [leaderboard.Store] as tests, and
// random histories that compare a store with a naive model.
package storagetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	leaderboard "github.com/open-leaderboard/leaderboard"
)

// Limits says which sentences of the contract a store does not keep. One that has
// to break a sentence gets a field here, with the reason beside it, and its tests
// go by that field alone.
type Limits struct {
	// EntriesFollow: results may be seen before the entry that follows from
	// them, and after a crash until they are applied again or recounted. In a
	// distributed store they are in partitions of different nodes, which no write
	// covers. The results of one Apply of a user still come together, and the
	// entry and its row in the overall ladder.
	EntriesFollow bool
	// Few: tests of many rows make a tenth of them. It is for stores whose every
	// write takes milliseconds, opened with pages as much smaller.
	Few bool
}

// Run tests that the stores that open returns, each of them empty, keep the
// contract of [leaderboard.Store]: a test a sentence, by method.
func Run(t *testing.T, open func(testing.TB) leaderboard.Store, lim Limits) {
	for _, group := range []struct {
		method string
		tests  []test
	}{
		{"Store", storeTests},
		{"Boards", boardTests},
		{"Apply", applyTests},
		{"Results", resultTests},
		{"Entries", entryTests},
		{"Recount", recountTests},
		{"Users", userTests},
		{"Seasons", seasonTests},
		{"APIKeys", apiKeyTests},
	} {
		t.Run(group.method, func(t *testing.T) {
			for _, test := range group.tests {
				t.Run(test.sentence, func(t *testing.T) {
					store := open(t)
					t.Cleanup(func() {
						if err := store.Close(); err != nil {
							t.Errorf("Close: %v", err)
						}
					})
					test.run(&fixture{T: t, Store: store, lim: lim, ctx: t.Context(), clock: epoch.Add(time.Hour)})
				})
			}
		})
	}
}

// test is one sentence of the contract.
type test struct {
	sentence string
	run      func(*fixture)
}

// fixture is a test with its store. Its methods end the test where the store
// errs.
type fixture struct {
	*testing.T
	leaderboard.Store
	lim   Limits
	ctx   context.Context
	clock time.Time
}

// rows returns n, or what is enough of it for a slow store.
func (f *fixture) rows(n int) int {
	if f.lim.Few {
		return max(n/10, min(n, 30))
	}
	return n
}

// rounds returns n, or what is enough of it for a slow store, of rounds in which
// calls meet by chance.
func (f *fixture) rounds(n int) int {
	if f.lim.Few {
		return max(n/5, 2)
	}
	return n
}

func (f *fixture) ok(what string, err error) {
	f.Helper()
	if err != nil {
		f.Fatalf("%s: %v", what, err)
	}
}

func (f *fixture) is(what string, err, want error) {
	f.Helper()
	if !errors.Is(err, want) {
		f.Errorf("%s: error %v, want %v", what, err, want)
	}
}

func (f *fixture) equal(what string, want, got any) {
	f.Helper()
	if err := diff(what, want, got); err != nil {
		f.Error(err)
	}
}

// become changes any board into next.
func become(next leaderboard.Board) func(*leaderboard.Board) error {
	return func(b *leaderboard.Board) error {
		*b = next
		return nil
	}
}

// sumBoard is a board that adds up, without seasons.
func sumBoard(id leaderboard.BoardID) leaderboard.Board {
	return leaderboard.Board{ID: id, Policy: leaderboard.Sum, CreatedAt: epoch}
}

// bestBoard is a board of best scores with two seasons and two divisions.
func bestBoard(id leaderboard.BoardID) leaderboard.Board {
	return leaderboard.Board{ID: id, Policy: leaderboard.Best, CreatedAt: epoch, Divisions: []string{"gender", "country"},
		Season: leaderboard.Schedule{Kind: leaderboard.Explicit, Grace: grace, Windows: []leaderboard.Season{
			{ID: "s1", Start: epoch, End: epoch.AddDate(0, 0, 10)},
			{ID: "s2", Start: epoch.AddDate(0, 0, 10), End: epoch.AddDate(0, 0, 20)},
		}}}
}

// create makes a board and returns it as the store has it.
func (f *fixture) create(b leaderboard.Board) *leaderboard.Board {
	f.Helper()
	f.ok("CreateBoard", f.CreateBoard(f.ctx, b))
	b, err := f.Board(f.ctx, b.ID)
	f.ok("Board", err)
	return &b
}

// result makes up a result, received a second after the one before. Its season
// is the first.
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

func with(r leaderboard.MatchResult, attributes ...string) leaderboard.MatchResult {
	r.Attributes = map[string]string{}
	for i := 0; i < len(attributes); i += 2 {
		r.Attributes[attributes[i]] = attributes[i+1]
	}
	return r
}

func in(season leaderboard.SeasonID, r leaderboard.MatchResult) leaderboard.MatchResult {
	r.Season = season
	return r
}

// apply applies results, each of which has to be applicable.
func (f *fixture) apply(b *leaderboard.Board, results ...leaderboard.MatchResult) leaderboard.ApplyReport {
	f.Helper()
	report, err := f.Apply(f.ctx, b, results)
	f.ok("Apply", err)
	if len(report.Outcomes) != len(results) {
		f.Fatalf("Apply of %d results: %d outcomes", len(results), len(report.Outcomes))
	}
	for i, o := range report.Outcomes {
		f.ok(fmt.Sprintf("Apply, outcome %d", i), o.Err)
	}
	return report
}

// entry returns a user's entry; one without a key if there is none.
func (f *fixture) entry(s leaderboard.Scope, user leaderboard.UserID) leaderboard.Entry {
	f.Helper()
	e, err := f.Entry(f.ctx, s, user)
	if errors.Is(err, leaderboard.ErrEntryNotFound) {
		return leaderboard.Entry{Scope: s, User: user}
	}
	f.ok("Entry", err)
	return e
}

// score returns a user's score as text, "-" without an entry.
func (f *fixture) score(b *leaderboard.Board, s leaderboard.Scope, user leaderboard.UserID) string {
	f.Helper()
	e := f.entry(s, user)
	if e.Key == "" {
		return "-"
	}
	return fmt.Sprint(b.ScoreOf(e.Key, epoch))
}

// ladder returns the users of a ladder, in order.
func (f *fixture) ladder(s leaderboard.Scope, division string) []leaderboard.UserID {
	f.Helper()
	d, err := leaderboard.ParseDivision(division)
	f.ok("ParseDivision", err)
	entries, err := collect(f.Entries(f.ctx, leaderboard.Ladder{Scope: s, Division: d}, ""))
	f.ok("Entries", err)
	users := make([]leaderboard.UserID, len(entries))
	for i, e := range entries {
		users[i] = e.User
	}
	return users
}

func users(ids ...leaderboard.UserID) []leaderboard.UserID { return ids }

// scopeOf is b's first season.
func scopeOf(b *leaderboard.Board) leaderboard.Scope {
	if len(b.Season.Windows) > 0 {
		return leaderboard.Scope{Board: b.ID, Season: b.Season.Windows[0].ID}
	}
	return leaderboard.Scope{Board: b.ID, Season: leaderboard.SeasonAll}
}

// second is b's second season.
func second(b *leaderboard.Board) leaderboard.Scope {
	return leaderboard.Scope{Board: b.ID, Season: b.Season.Windows[1].ID}
}
