package ranking_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/faults"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

var dailyBoard = leaderboard.Board{ID: "b", Policy: leaderboard.Sum, Season: leaderboard.Schedule{Kind: leaderboard.Daily, Grace: time.Hour}}

// day is the season of dailyBoard that start is in.
const day = leaderboard.SeasonID("20261120")

var dayQuery = ranking.Query{Board: "b", Season: day}

// afterDay sets the clock to when the day takes no more results.
func (f *fixture) afterDay() {
	f.clock.set(start.AddDate(0, 0, 1))
}

func (f *fixture) seal() {
	f.t.Helper()
	f.afterDay()
	if err := f.Seal(f.t.Context(), "b", day); err != nil {
		f.t.Fatal(err)
	}
}

// lateRetraction is of a match of the day.
func lateRetraction(user, match string) leaderboard.ResultKey {
	return leaderboard.ResultKey{Scope: leaderboard.Scope{Board: "b", Season: day}, User: leaderboard.UserID(user), Match: leaderboard.MatchID(match)}
}

// looked is a context that calls a function when it is looked at.
type looked struct {
	context.Context
	look func()
}

func (c looked) Err() error {
	c.look()
	return c.Context.Err()
}

// What is changed while a season is being sealed is in its final standings,
// whatever moment of the sealing that is.
func TestChangesWhileASeasonIsSealed(t *testing.T) {
	for at, more := 1, true; more; at += 89 {
		f := open(t)
		f.create(dailyBoard)
		var batch []leaderboard.MatchResult
		for i := range 600 {
			batch = append(batch, points(fmt.Sprintf("u%03d", i), "m", int64(10_000-i)))
		}
		if _, err := f.Submit(t.Context(), "b", batch); err != nil {
			t.Fatal(err)
		}
		f.afterDay()
		var wg sync.WaitGroup
		looks := 0
		look := func() {
			if looks++; looks != at {
				return
			}
			done := make(chan struct{})
			wg.Go(func() {
				defer close(done)
				if _, err := f.SetBan(t.Context(), "u000", true, "cheat"); err != nil {
					t.Error(err)
				}
				if _, err := f.Retract(t.Context(), lateRetraction("u001", "m"), nil); err != nil {
					t.Error(err)
				}
			})
			select {
			case <-done:
			case <-time.After(5 * time.Millisecond): // they wait for the seal
			}
		}
		if err := f.Seal(looked{t.Context(), look}, "b", day); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		more = looks >= at
		if !more {
			break
		}
		page, err := f.Page(t.Context(), ranking.PageQuery{Query: dayQuery, Limit: 2})
		if err != nil || !page.Sealed {
			t.Fatalf("sealed %v, %v", page.Sealed, err)
		}
		if page.Total != 598 || page.Lines[0].User != "u002" {
			t.Errorf("changed at look %d: %d in all, %s first", at, page.Total, page.Lines[0].User)
		}
		f.Close()
	}
}

// Readers of a season see why it was amended, and not for whom: neither who was
// banned, nor anything of a user who was erased.
func TestAmendmentsNameNobody(t *testing.T) {
	f := open(t)
	f.create(dailyBoard)
	for _, user := range []string{"erin", "bob", "cyd"} {
		f.submit("b", points(user, "match-of-"+user, 5))
	}
	f.seal()
	step := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		f.clock.set(f.clock.now().Add(time.Second))
	}
	step(nil)
	_, err := f.Retract(t.Context(), lateRetraction("erin", "match-of-erin"), nil)
	step(err)
	_, err = f.SetBan(t.Context(), "bob", true, "erin said so")
	step(err)
	_, err = f.SetBan(t.Context(), "bob", false, "")
	step(err)
	step(f.Erase(t.Context(), "cyd"))
	seasons, err := f.Seasons(t.Context(), "b")
	step(err)
	sealed := seasons[len(seasons)-1]
	if sealed.ID != day || len(sealed.Amendments) != 4 {
		t.Fatalf("seasons %+v", seasons)
	}
	for _, a := range sealed.Amendments {
		for _, name := range []string{"erin", "bob", "cyd"} {
			if strings.Contains(a.Reason, name) {
				t.Errorf("the reason of an amendment is %q", a.Reason)
			}
		}
	}
}

// What another process does to a season is known a moment later: that it was
// sealed, amended, or deleted with its board.
func TestSealsOfAnotherProcess(t *testing.T) {
	f := open(t)
	other := over(t, f.store, f.index)
	later := func() {
		f.clock.set(f.clock.now().Add(2 * time.Second))
		other.clock.set(f.clock.now())
	}
	b := f.create(dailyBoard)
	f.submit("b", points("ann", "m", 5))
	f.submit("b", points("bob", "m", 3))
	f.afterDay()
	later()
	page := func() ranking.Page {
		t.Helper()
		p, err := other.Page(t.Context(), ranking.PageQuery{Query: dayQuery, Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if p := page(); p.Sealed {
		t.Fatal("sealed by nobody")
	}
	f.seal()
	if p := page(); p.Total != 2 {
		t.Errorf("%d in all, at the moment of the seal", p.Total)
	}
	other.clock.set(f.clock.now())
	later()
	if p := page(); !p.Sealed {
		t.Error("not sealed")
	}
	if _, err := f.SetBan(t.Context(), "ann", true, "cheat"); err != nil {
		t.Fatal(err)
	}
	banned := f.clock.now()
	later()
	if p := page(); !p.AsOf.Equal(banned) || p.Lines[0].User != "bob" {
		t.Errorf("as of %v with %s first, want %v", p.AsOf, p.Lines[0].User, banned)
	}
	if loaded, _ := f.index.Loaded(t.Context(), leaderboard.Scope{Board: "b", Season: day}); loaded {
		t.Error("the index was filled for a season that is sealed")
	}

	if err := f.DeleteBoard(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	f.clock.set(start)
	b.Title = "again"
	f.create(b)
	f.submit("b", points("dan", "m", 1))
	if p := page(); p.Sealed || p.Total != 1 {
		t.Errorf("of a board made again: sealed %v, %d in all", p.Sealed, p.Total)
	}
}

// A season in its grace is told of without the store, from the index.
func TestWithoutTheStoreASeasonInItsGraceIsTold(t *testing.T) {
	f := openShaky(t)
	f.create(leaderboard.Board{ID: "d", Policy: leaderboard.Sum, Season: dailyBoard.Season})
	f.submit("d", points("ann", "m", 5))
	q := ranking.Query{Board: "d", Season: day}
	f.clock.set(start.Add(12*time.Hour + 30*time.Minute))
	f.store.Set(faults.Refuses)
	f.wantList(q, "ann 5 1")
	f.store.Set(faults.Fine)
	f.clock.set(f.clock.now().Add(time.Minute))
	f.wantList(q, "ann 5 1")
	f.store.Set(faults.Refuses)
	f.clock.set(f.clock.now().Add(time.Minute))
	f.wantList(q, "ann 5 1")
}

// slowAmends is a store that takes a while to make final standings again.
type slowAmends struct {
	leaderboard.Store
	calls atomic.Int64
}

func (s *slowAmends) Amend(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, a leaderboard.Amendment) (leaderboard.SeasonRecord, error) {
	s.calls.Add(1)
	time.Sleep(time.Minute)
	return s.Store.Amend(ctx, b, season, a)
}

// Changes of a sealed season that come while it is amended are amended together,
// each on the record.
func TestAmendmentsAreMadeTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openShaky(t)
		f.create(leaderboard.Board{ID: "d", Policy: leaderboard.Sum, Season: dailyBoard.Season})
		const n = 10
		for i := range n {
			f.submit("d", points(fmt.Sprint("u", i), "m", int64(i)))
		}
		f.afterDay()
		if err := f.Seal(t.Context(), "d", day); err != nil {
			t.Fatal(err)
		}
		slow := &slowAmends{Store: f.fixture.store}
		s := over(t, slow, f.index)
		s.clock.set(f.clock.now().Add(time.Minute))
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				if i%2 == 0 {
					if _, err := s.SetBan(t.Context(), leaderboard.UserID(fmt.Sprint("u", i)), true, ""); err != nil {
						t.Error(err)
					}
					return
				}
				key := lateRetraction(fmt.Sprint("u", i), "m")
				key.Board = "d"
				receipt, err := s.Retract(t.Context(), key, nil)
				if err != nil || receipt.Status != leaderboard.Applied {
					t.Errorf("%v, %v", receipt.Status, err)
				}
			})
		}
		wg.Wait()
		if calls := slow.calls.Load(); calls > 2 {
			t.Errorf("%d changes were amended %d times", n, calls)
		}
		page, err := f.Page(t.Context(), ranking.PageQuery{Query: ranking.Query{Board: "d", Season: day}, Limit: 1})
		if err != nil || page.Total != 0 {
			t.Errorf("%d are left, %v", page.Total, err)
		}
		season, err := f.store.Season(t.Context(), leaderboard.Scope{Board: "d", Season: day})
		if err != nil {
			t.Fatal(err)
		}
		record := fmt.Sprint(season.Amendments)
		for _, reason := range []string{"retraction", "ban a user"} {
			if !strings.Contains(record, reason) {
				t.Errorf("%q is not on the record: %s", reason, record)
			}
		}
	})
}
