package ranking_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/embedded"
)

// attributedResult returns result i of a series. The results have attributes, and many have
// equal points.
func attributedResult(i int) leaderboard.MatchResult {
	r := points(fmt.Sprint("u", i%40), fmt.Sprint("m", i/40), int64(i%7))
	r.AchievedAt = start.Add(time.Duration(i%11) * time.Second)
	r.Attributes = map[string]string{"gender": []string{"F", "M"}[i%2], "club": fmt.Sprint("c", i%3)}
	if i%5 > 0 {
		r.Attributes["age"] = fmt.Sprint(30 + i%4)
	}
	return r
}

func (f *fixture) amendDivisions(id leaderboard.BoardID, divisions ...string) leaderboard.Board {
	f.t.Helper()
	b, err := f.AmendBoard(f.t.Context(), id, func(b *leaderboard.Board) error { b.Divisions = divisions; return nil })
	if err != nil {
		f.t.Fatal(err)
	}
	return b
}

func (f *fixture) wantSameLadders(x, y leaderboard.BoardID, season leaderboard.SeasonID) {
	f.t.Helper()
	seen := map[leaderboard.Division]bool{{}: true}
	for e, err := range f.store.Scan(f.t.Context(), leaderboard.SeasonKey{Board: y, Season: season}, leaderboard.Part{}) {
		if err != nil {
			f.t.Fatal(err)
		}
		for _, d := range e.Divisions {
			seen[d] = true
		}
	}
	for d := range seen {
		want, got := f.list(ranking.Query{Board: y, Season: season, Division: d}, 1000), f.list(ranking.Query{Board: x, Season: season, Division: d}, 1000)
		if diff := gocmp.Diff(want, got); diff != "" {
			f.t.Errorf("division %q of %s and %s (-%[2]s +%[3]s):\n%[4]s", d, y, x, diff)
		}
	}
	if len(seen) < 4 {
		f.t.Errorf("the board has the divisions %v, want at least 4", seen)
	}
}

func (f *fixture) wantNoDifferences() {
	f.t.Helper()
	if _, err := f.Verify(f.t.Context(), ranking.Selection{}, false, nil, func(d ranking.Difference) error {
		f.t.Errorf("Verify finds %+v, want no difference", d)
		return nil
	}); err != nil {
		f.t.Error(err)
	}
}

// Two processes apply results during the change. Afterwards, the board has the ladders of a
// board that was created with the new divisions.
func TestDivisionsOfALiveBoardChange(t *testing.T) {
	f := open(t)
	other := ranking.New(f.store, f.index, ranking.Options{Now: f.clock.now, BoardTTL: time.Hour}) // caches the old divisions for an hour
	t.Cleanup(other.Close)
	want := []string{"club", "gender+age", "age"}
	f.create(leaderboard.Board{ID: "live", Policy: leaderboard.Sum, Divisions: []string{"gender", "club"}})
	f.create(leaderboard.Board{ID: "always", Policy: leaderboard.Sum, Divisions: want})
	for i := range 200 {
		f.submit("live", attributedResult(i))
		f.submit("always", attributedResult(i))
	}
	stale, err := other.Board(t.Context(), "live")
	if err != nil {
		t.Fatal(err)
	}
	waiting, amended := sync.WaitGroup{}, make(chan struct{})
	var writers sync.WaitGroup
	for n, service := range []*ranking.Service{f.Service, other} {
		waiting.Add(1)
		writers.Go(func() {
			for i := 200 + n; i < 600; i += 2 {
				if i == 250+n {
					waiting.Done()
					<-amended
				}
				if _, err := service.Submit(t.Context(), &stale, []leaderboard.MatchResult{attributedResult(i)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	waiting.Wait()
	b := f.amendDivisions("live", want...)
	if fmt.Sprint(b.Divisions, b.Unfilled) != "[club gender+age age] [gender+age age]" || b.RecountDue.IsZero() {
		t.Errorf("after the change: divisions %v, unfilled %v, lease %v; want the new divisions, unfilled [gender+age age] and a lease", b.Divisions, b.Unfilled, b.RecountDue)
	}
	age := ranking.PageQuery{Query: ranking.Query{Board: "live", Division: leaderboard.Division{Attribute: "age", Value: "31"}}, Limit: 10}
	if page, err := f.Page(t.Context(), age); err != nil || !page.Filling {
		t.Errorf("a list of the new division: filling %v, error %v; want true", page.Filling, err)
	}
	f.wantNoDifferences()
	close(amended)
	if err := f.FillDivisions(t.Context()); err != nil {
		t.Fatal(err)
	}
	if b := f.board("live"); len(b.Unfilled) > 0 || !b.RecountDue.IsZero() {
		t.Errorf("after the fill: unfilled %v, lease %v; want no unfilled divisions and no lease", b.Unfilled, b.RecountDue)
	}
	if page, err := f.Page(t.Context(), age); err != nil || page.Filling {
		t.Errorf("a list of the filled division: filling %v, error %v; want false", page.Filling, err)
	}
	writers.Wait()
	for i := 200; i < 600; i++ {
		f.submit("always", attributedResult(i))
	}
	f.wantSameLadders("live", "always", leaderboard.SeasonAll)
	f.wantNoDifferences()

	removed := leaderboard.Ladder{SeasonKey: leaderboard.SeasonKey{Board: "live", Season: leaderboard.SeasonAll}, Division: leaderboard.Division{Attribute: "gender", Value: "F"}}
	if standings, _, err := f.index.Page(t.Context(), removed, 1, 10); err != nil || len(standings) > 0 {
		t.Errorf("the index has %d standings of the removed division, error %v; want none", len(standings), err)
	}
	for e, err := range f.store.Entries(t.Context(), removed, "") {
		t.Errorf("the store has %q in the removed division, error %v; want no entry", e.User, err)
	}
	if _, err := f.Page(t.Context(), ranking.PageQuery{Query: ranking.Query{Board: "live", Division: removed.Division}, Limit: 10}); !errors.Is(err, leaderboard.ErrInvalid) {
		t.Errorf("a list of the removed division: error %v, want ErrInvalid", err)
	}
}

func TestSealedSeasonsKeepTheirDivisions(t *testing.T) {
	f := open(t)
	schedule := leaderboard.Schedule{Kind: leaderboard.Daily, Grace: time.Hour}
	f.create(leaderboard.Board{ID: "daily", Policy: leaderboard.Sum, Divisions: []string{"gender"}, Season: schedule})
	for i := range 40 {
		f.submit("daily", attributedResult(i))
	}
	today := leaderboard.SeasonID(start.Format("20060102"))
	f.clock.set(start.AddDate(0, 0, 2))
	if err := f.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	women := ranking.Query{Board: "daily", Season: today, Division: leaderboard.Division{Attribute: "gender", Value: "F"}}
	before := f.list(women, 1000)
	f.amendDivisions("daily", "club")
	if err := f.FillDivisions(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(before, f.list(women, 1000)); diff != "" || len(before) != 20 {
		t.Errorf("the division of a sealed season has %d users, want 20 (-before +after):\n%s", len(before), diff)
	}
	clubs := leaderboard.Division{Attribute: "club", Value: "c1"}
	if _, err := f.Page(t.Context(), ranking.PageQuery{Query: ranking.Query{Board: "daily", Season: today, Division: clubs}, Limit: 10}); !errors.Is(err, leaderboard.ErrInvalid) {
		t.Errorf("a list of the new division in a sealed season: error %v, want ErrInvalid", err)
	}
	late := attributedResult(40) // of u0
	late.SeasonKey, late.Amends, late.ReceivedAt = leaderboard.SeasonKey{Board: "daily", Season: today}, true, f.clock.now()
	fresh := late
	fresh.User = "new"
	if _, err := f.Apply(t.Context(), f.board("daily"), []leaderboard.MatchResult{late, fresh}); err != nil {
		t.Fatal(err)
	}
	if err := f.AmendMarked(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := f.list(women, 1000); len(after) != 21 {
		t.Errorf("after a correction, the sealed division has %d users, want 21: %v", len(after), after)
	}
	f.wantNoDifferences()
	r := attributedResult(41)
	r.AchievedAt = f.clock.now()
	f.submit("daily", r)
	if lines := f.list(ranking.Query{Board: "daily", Division: leaderboard.Division{Attribute: "club", Value: r.Attributes["club"]}}, 10); len(lines) != 1 {
		t.Errorf("the new division of the current season has %v, want one user", lines)
	}
}

// A process dies during a recount, and another process finishes the recount. A later change of
// the divisions starts a new recount.
func TestRecountOfDivisionsIsFinishedByAnotherProcess(t *testing.T) {
	f := open(t)
	f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Sum})
	for i := range 40 {
		f.submit("b", attributedResult(i))
	}
	f.amendDivisions("b", "gender")
	// the process takes the lease, and dies
	lease := leaderboard.Reservation{Key: leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Board: "b"}}, Holder: "dead", At: start, Until: start.Add(time.Minute)}
	if ok, err := f.store.Reserve(t.Context(), lease); !ok || err != nil {
		t.Fatalf("Reserve returned %v, error %v", ok, err)
	}
	fill := func(want string) {
		t.Helper()
		if err := f.FillDivisions(t.Context()); err != nil {
			t.Fatal(err)
		}
		if b, err := f.store.Board(t.Context(), "b"); err != nil || fmt.Sprint(b.Unfilled) != want {
			t.Errorf("unfilled: %v, error %v; want %s", b.Unfilled, err, want)
		}
	}
	fill("[gender]")
	f.clock.set(start.Add(time.Minute))
	fill("[]")
	f.amendDivisions("b", "gender", "club")
	f.amendDivisions("b", "gender+club")
	fill("[]")
	f.wantNoDifferences()
	if lines := f.list(ranking.Query{Board: "b", Division: leaderboard.Division{Attribute: "club+gender", Value: "c0+F"}}, 100); len(lines) != 7 {
		t.Errorf("the crossed division has %v, want 7 users", lines)
	}
}

type amendedDuringRecount struct {
	leaderboard.Store
	amend func()
}

func (s *amendedDuringRecount) StartRecount(ctx context.Context, b *leaderboard.Board) ([]leaderboard.SeasonID, error) {
	seasons, err := s.Store.StartRecount(ctx, b)
	if amend := s.amend; amend != nil {
		s.amend = nil
		amend()
	}
	return seasons, err
}

// The divisions change during a recount, and the clock stands still. The recount must not end the recount that the
// second change needs.
func TestDivisionsChangeDuringARecount(t *testing.T) {
	store, index := embedded.Open(t)
	s := &amendedDuringRecount{Store: store}
	f := serviceOver(t, s, index)
	f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Sum})
	for i := range 40 {
		f.submit("b", attributedResult(i))
	}
	f.amendDivisions("b", "gender")
	s.amend = func() { f.amendDivisions("b", "gender", "club") }
	for _, want := range []string{"[gender club]", "[]"} {
		if err := f.FillDivisions(t.Context()); err != nil {
			t.Fatal(err)
		}
		if b := f.board("b"); fmt.Sprint(b.Unfilled) != want || b.RecountDue.IsZero() != (want == "[]") {
			t.Errorf("unfilled: %v, due: %v; want %s", b.Unfilled, b.RecountDue, want)
		}
	}
	f.wantNoDifferences()
}

// The season loses its only user before the divisions change, and gets a user afterwards.
func TestDivisionsOfASeasonWithoutUsersChange(t *testing.T) {
	f := open(t)
	f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Sum})
	r := attributedResult(0)
	f.submit("b", r)
	f.wantList(ranking.Query{Board: "b"}, "u0 0 1")
	if err := f.Erase(t.Context(), r.User); err != nil {
		t.Fatal(err)
	}
	f.amendDivisions("b", "gender")
	if err := f.FillDivisions(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.clock.set(start.Add(time.Hour))
	f.submit("b", attributedResult(2))
	f.wantList(ranking.Query{Board: "b", Division: leaderboard.Division{Attribute: "gender", Value: "F"}}, "u2 2 1")
}
