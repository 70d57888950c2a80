package ranking_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/embedded"
)

// week returns a query of a window of the board "week", which ends that many days after
// start.
func week(days int) ranking.Query {
	return ranking.Query{Board: "week", Season: leaderboard.SeasonID(start.AddDate(0, 0, days).Format("20060102"))}
}

// weekBoard creates a source, and a board of seven days that is linked to it.
func weekBoard(f *fixture, retention time.Duration) *linkedFixture {
	f.t.Helper()
	source := f.create(leaderboard.Board{ID: "laps", Policy: leaderboard.Sum, Matches: true})
	f.create(leaderboard.Board{ID: "week", Policy: leaderboard.Sum, Retention: retention, Source: &leaderboard.Source{Board: "laps"},
		Season: leaderboard.Schedule{Kind: leaderboard.Rolling, Days: 7, Grace: time.Hour}})
	l := &linkedFixture{f, &source, nil}
	l.fill()
	return l
}

func (f *linkedFixture) fill() {
	f.t.Helper()
	if err := f.FillLinked(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
}

func openLinked(t *testing.T, wrap func(leaderboard.Store) leaderboard.Store) *fixture {
	t.Helper()
	store, index := embedded.Open(t)
	c := &clock{t: start}
	wrapped := wrap(store)
	return &fixture{ranking.New(wrapped, index, ranking.Options{Now: c.now, BoardTTL: time.Millisecond, LinkTTL: 30 * time.Millisecond}), t, wrapped, index, c}
}

func plain(s leaderboard.Store) leaderboard.Store { return s }

func TestCurrentSeasonOfARollingBoardIsTodaysWindow(t *testing.T) {
	f := weekBoard(openLinked(t, plain), 30*24*time.Hour)
	f.submit("laps", at(points("ann", "m1", 7), 0, start.AddDate(0, 0, -6)))
	f.submit("laps", at(points("ann", "m2", 5), 0, start))
	f.submit("laps", at(points("bob", "m1", 8), 0, start.AddDate(0, 0, -7)))
	f.wantList(ranking.Query{Board: "week"}, "ann 12 1")
	f.wantList(ranking.Query{Board: "week", Season: leaderboard.SeasonLatest}, "ann 12 1")
	f.wantList(week(-1), "bob 8 1", "ann 7 2")
	f.wantList(week(1), "ann 5 1")
	f.wantList(week(2))

	phases := func() map[leaderboard.SeasonID]ranking.SeasonInfo {
		t.Helper()
		list, err := f.Seasons(t.Context(), f.board("week"))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.IsSortedFunc(list, func(x, y ranking.SeasonInfo) int { return y.End.Compare(x.End) }) {
			t.Errorf("seasons %+v, want the newest first", list)
		}
		infos := map[leaderboard.SeasonID]ranking.SeasonInfo{}
		for _, s := range list {
			infos[s.ID] = s
		}
		return infos
	}
	for q, want := range map[ranking.Query]ranking.SeasonPhase{week(1): ranking.Upcoming, week(0): ranking.Open, week(-1): ranking.Closed} {
		if got := phases()[q.Season]; got.Phase != want && want != ranking.Closed {
			t.Errorf("window %s is %s, want %s", q.Season, got.Phase, want)
		}
	}

	// Days pass without any process. Until the windows are filled, answers say so.
	f.clock.set(start.AddDate(0, 0, 3))
	page, err := f.Page(t.Context(), ranking.PageQuery{Query: ranking.Query{Board: "week"}, Limit: 1})
	if err != nil || page.Season.ID != week(3).Season || !page.Filling {
		t.Errorf("current season %q, filling %v, error %v; want %s, which is filling", page.Season.ID, page.Filling, err, week(3).Season)
	}
	f.fill()
	f.wantList(ranking.Query{Board: "week"}, "ann 5 1")
	if page, err := f.Page(t.Context(), ranking.PageQuery{Query: week(3), Limit: 1}); err != nil || page.Filling {
		t.Errorf("filled window: filling %v, error %v; want false", page.Filling, err)
	}
	if err := f.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	for q, want := range map[ranking.Query]ranking.SeasonPhase{week(4): ranking.Upcoming, week(3): ranking.Open, week(2): ranking.Sealed, week(0): ranking.Sealed} {
		if got := phases()[q.Season]; got.Phase != want || got.Filling {
			t.Errorf("window %s is %s, filling %v; want %s", q.Season, got.Phase, got.Filling, want)
		}
	}
	// A correction that moves a result, and a retraction, amend sealed windows.
	f.submit("laps", at(points("ann", "m2", 6), 1, start.AddDate(0, 0, 2)))
	f.wantList(week(0), "ann 7 1")
	f.wantList(week(3), "ann 6 1")
	_, err = f.AmendBoard(t.Context(), "week", func(b *leaderboard.Board) error { b.Retention = 0; return nil })
	wantField(t, err, "retention")
	if _, err := f.EndSeason(t.Context(), "week", leaderboard.EarlyEnd{ID: week(3).Season, At: f.clock.now()}); err == nil {
		t.Error("a window was ended early, want an error")
	}
}

// A new rolling board has no windows that are past their retention.
func TestNewRollingBoardHasRecentWindowsOnly(t *testing.T) {
	f := openLinked(t, plain)
	f.create(leaderboard.Board{ID: "laps", Policy: leaderboard.Sum})
	f.submit("laps", at(points("ann", "m", 7), 0, start.AddDate(0, 0, -9)))
	f.create(leaderboard.Board{ID: "week", Policy: leaderboard.Sum, Retention: 4 * 24 * time.Hour, Source: &leaderboard.Source{Board: "laps"},
		Season: leaderboard.Schedule{Kind: leaderboard.Rolling, Days: 7}})
	if err := f.FillLinked(t.Context()); err != nil {
		t.Fatal(err)
	}
	seasons, err := f.store.Seasons(t.Context(), "week")
	if err != nil || len(seasons) != 2 || seasons[0].Season != week(-4).Season || seasons[1].Season != week(-3).Season {
		t.Errorf("seasons %+v, error %v; want %s and %s", seasons, err, week(-4).Season, week(-3).Season)
	}
}

// The last filled window outlives its retention until the next one is filled from it.
func TestWindowIsKeptUntilTheNextIsFilled(t *testing.T) {
	f := weekBoard(openLinked(t, plain), time.Hour)
	f.submit("laps", at(points("ann", "m", 7), 0, start))
	for _, d := range []time.Duration{4 * 24 * time.Hour, 2 * time.Hour, 2 * time.Hour} {
		f.clock.set(f.clock.now().Add(d))
		if err := f.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	f.fill()
	f.wantList(ranking.Query{Board: "week"}, "ann 7 1")
	f.clock.set(f.clock.now().Add(3 * 24 * time.Hour))
	f.fill()
	for range 3 {
		f.clock.set(f.clock.now().Add(2 * time.Hour))
		if err := f.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	seasons, err := f.store.Seasons(t.Context(), "week")
	if err != nil || len(seasons) != 0 {
		t.Errorf("seasons %+v, error %v; want none after the retention", seasons, err)
	}
}

// blockedStore blocks the Apply calls of one board.
type blockedStore struct {
	leaderboard.Store
	entered, release chan struct{}
}

func (s *blockedStore) Apply(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) (leaderboard.ApplyReport, error) {
	if b.ID == "week" && len(results) > 0 {
		s.entered <- struct{}{}
		<-s.release
	}
	return s.Store.Apply(ctx, b, results)
}

// A window opens and is filled while a writer applies a result. The writer does not know the
// window, and the fill does not find the result.
func TestWriterNoticesThatAWindowWasOpened(t *testing.T) {
	blocked := &blockedStore{entered: make(chan struct{}, 100), release: make(chan struct{})}
	fill := weekBoard(openLinked(t, func(s leaderboard.Store) leaderboard.Store { blocked.Store = s; return s }), 30*24*time.Hour)
	writer := ranking.New(blocked, fill.index, ranking.Options{Now: fill.clock.now, BoardTTL: time.Millisecond, LinkTTL: 30 * time.Millisecond})
	defer writer.Close()
	applied := make(chan error)
	go func() {
		_, err := writer.Submitter.Submit(t.Context(), fill.source, []leaderboard.MatchResult{at(points("ann", "m", 7), 0, start)})
		applied <- err
	}()
	<-blocked.entered
	fill.clock.set(start.AddDate(0, 0, 1))
	fill.fill()
	close(blocked.release)
	if err := <-applied; err != nil {
		t.Fatal(err)
	}
	fill.wantList(week(2), "ann 7 1")
}

// A writer died after it moved a result into the last day of a window. The fill of this
// window does not prevent the retry from removing the result from the window before.
func TestFillLeavesTheFirstPlaceToTheWriter(t *testing.T) {
	f := weekBoard(openLinked(t, plain), 30*24*time.Hour)
	f.submit("laps", at(points("ann", "m", 7), 0, start))
	f.clock.set(start.AddDate(0, 0, 1).Add(-time.Hour))
	moved, err := f.Complete(t.Context(), f.source, at(points("ann", "m", 9), 1, start.AddDate(0, 0, 2).Add(-11*time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.store.Apply(t.Context(), f.source, []leaderboard.MatchResult{moved}); err != nil {
		t.Fatal(err)
	}
	f.clock.set(start.AddDate(0, 0, 1))
	f.fill()
	if err := f.apply([]leaderboard.MatchResult{moved}); err != nil {
		t.Fatal(err)
	}
	f.wantList(week(1))
	f.wantList(week(2), "ann 9 1")
}

// A void match counts in no window, and after its end in all windows again, also in those that
// opened meanwhile.
func TestVoidMatchInRollingWindows(t *testing.T) {
	f := weekBoard(openLinked(t, plain), 30*24*time.Hour)
	f.submit("laps", at(points("ann", "m", 7), 0, start))
	match := leaderboard.MatchState{MatchKey: leaderboard.MatchKey{SeasonKey: leaderboard.SeasonKey{Board: "laps", Season: leaderboard.SeasonAll}, Match: "m"}}
	set := func(void bool) {
		t.Helper()
		if _, err := f.SetVoid(t.Context(), f.source, match, void); err != nil {
			t.Fatal(err)
		}
	}
	set(true)
	f.wantList(week(0))
	f.wantList(week(1))
	f.clock.set(start.AddDate(0, 0, 1))
	f.fill()
	f.wantList(week(2))
	set(false)
	for day := range 3 {
		f.wantList(week(day), "ann 7 1")
	}
}

// Two corrections arrive at a time, after windows closed that no process had filled. Both are
// late there, so the first revision counts, although one of them replaces it in the window
// before.
func TestLateCorrectionsKeepAnOlderRevisionForTheFill(t *testing.T) {
	f := weekBoard(openLinked(t, plain), 30*24*time.Hour)
	f.submit("laps", at(points("ann", "m", 7), 0, start.Add(22*time.Hour)))
	f.clock.set(start.AddDate(0, 0, 4))
	var batch []leaderboard.MatchResult
	for _, r := range []leaderboard.MatchResult{at(points("ann", "m", 5), 3, start), at(points("ann", "m", 9), 1, start.AddDate(0, 0, 2))} {
		r, err := f.Complete(t.Context(), f.source, r)
		if err != nil {
			t.Fatal(err)
		}
		batch = append(batch, r)
	}
	if err := f.apply(batch); err != nil {
		t.Fatal(err)
	}
	f.fill()
	f.wantList(week(1)) // the second correction does not count there, and no other one is late
	f.wantList(week(2), "ann 7 1")
	f.wantList(week(3), "ann 7 1")
	f.wantList(week(4), "ann 5 1")
}
