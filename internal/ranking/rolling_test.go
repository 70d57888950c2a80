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

// week returns a query of the window of board "week" whose last day is the given number of
// days after start. Comments call it window n, where n is this number.
func week(days int) ranking.Query {
	return ranking.Query{Board: "week", Season: leaderboard.SeasonID(start.AddDate(0, 0, days).Format("20060102"))}
}

// weekBoard creates a source with a linked rolling board, whose windows have seven days.
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

func unwrapped(s leaderboard.Store) leaderboard.Store { return s }

func TestCurrentSeasonOfARollingBoardIsTodaysWindow(t *testing.T) {
	f := weekBoard(openLinked(t, unwrapped), 30*24*time.Hour)
	f.submit("laps", withRevision(points("ann", "m1", 7), 0, start.AddDate(0, 0, -6)))
	f.submit("laps", withRevision(points("ann", "m2", 5), 0, start))
	f.submit("laps", withRevision(points("bob", "m1", 8), 0, start.AddDate(0, 0, -7)))
	f.wantList(ranking.Query{Board: "week"}, "ann 12 1")
	f.wantList(ranking.Query{Board: "week", Season: leaderboard.SeasonLatest}, "ann 12 1")
	f.wantList(week(-1), "bob 8 1", "ann 7 2")
	f.wantList(week(1), "ann 5 1")
	f.wantList(week(2))

	phases := func() map[leaderboard.SeasonID]ranking.SeasonInfo {
		t.Helper()
		list := f.seasons("week")
		if !slices.IsSortedFunc(list, func(x, y ranking.SeasonInfo) int { return y.End.Compare(x.End) }) {
			t.Errorf("seasons %+v, want the newest first", list)
		}
		infos := map[leaderboard.SeasonID]ranking.SeasonInfo{}
		for _, s := range list {
			infos[s.ID] = s
		}
		return infos
	}
	for q, want := range map[ranking.Query]ranking.SeasonPhase{week(1): ranking.Upcoming, week(0): ranking.Open, week(-1): ranking.Grace} {
		if got := phases()[q.Season]; got.Phase != want {
			t.Errorf("window %s is %s, want %s", q.Season, got.Phase, want)
		}
	}

	// After days without any process, answers report that the windows are not filled yet.
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
	// A correction that moves a result amends sealed windows.
	f.submit("laps", withRevision(points("ann", "m2", 6), 1, start.AddDate(0, 0, 2)))
	f.wantList(week(0), "ann 7 1")
	f.wantList(week(3), "ann 6 1")
	_, err = f.AmendBoard(t.Context(), "week", func(b *leaderboard.Board) error { b.Retention = 0; return nil })
	wantField(t, err, "retention")
	if _, err := f.EndSeason(t.Context(), "week", leaderboard.EarlyEnd{ID: week(3).Season, At: f.clock.now()}); err == nil {
		t.Error("a window was ended early, want an error")
	}
}

func TestNewRollingBoardHasRecentWindowsOnly(t *testing.T) {
	f := openLinked(t, unwrapped)
	f.create(leaderboard.Board{ID: "laps", Policy: leaderboard.Sum})
	f.submit("laps", withRevision(points("ann", "m", 7), 0, start.AddDate(0, 0, -9)))
	b := f.create(leaderboard.Board{ID: "week", Policy: leaderboard.Sum, Retention: 4 * 24 * time.Hour, Source: &leaderboard.Source{Board: "laps"},
		Season: leaderboard.Schedule{Kind: leaderboard.Rolling, Days: 7}})
	if err := f.FillLinked(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The windows within the retention are closed, so they refuse the result.
	refused, err := f.store.RecentRefusals(t.Context(), &b, leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Board: "week"}, User: "ann", Match: "m"})
	if err != nil || len(refused) != 2 || refused[0].Season != week(-4).Season || refused[1].Season != week(-3).Season {
		t.Errorf("refusals %+v, error %v; want those of %s and %s", refused, err, week(-4).Season, week(-3).Season)
	}
	if seasons, err := f.store.Seasons(t.Context(), "week"); err != nil || len(seasons) > 0 {
		t.Errorf("seasons %+v, error %v; want none", seasons, err)
	}
}

func TestWindowIsKeptUntilTheNextIsFilled(t *testing.T) {
	f := weekBoard(openLinked(t, unwrapped), time.Hour)
	f.submit("laps", withRevision(points("ann", "m", 7), 0, start))
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

// blockedStore is a store that blocks each Apply to the board "week" until release is closed.
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

// openWindow fills the next window while the first blocked call waits. Then it releases all
// calls, and waits for the writer.
func (s *blockedStore) openWindow(t *testing.T, filler *linkedFixture, applied <-chan error) {
	t.Helper()
	<-s.entered
	filler.clock.set(start.AddDate(0, 0, 1))
	filler.fill()
	close(s.release)
	if err := <-applied; err != nil {
		t.Fatal(err)
	}
}

// A window opens while a writer copies a result, and the fill of the window does not find the
// result. The writer must copy the result to the window too.
func TestWriterNoticesThatAWindowWasOpened(t *testing.T) {
	blocked := &blockedStore{entered: make(chan struct{}, 100), release: make(chan struct{})}
	filler := weekBoard(openLinked(t, func(s leaderboard.Store) leaderboard.Store { blocked.Store = s; return s }), 30*24*time.Hour)
	writer := ranking.New(blocked, filler.index, ranking.Options{Now: filler.clock.now, BoardTTL: time.Millisecond, LinkTTL: 30 * time.Millisecond})
	defer writer.Close()
	applied := make(chan error)
	go func() {
		_, err := writer.Submitter.Submit(t.Context(), filler.source, []leaderboard.MatchResult{withRevision(points("ann", "m", 7), 0, start)})
		applied <- err
	}()
	blocked.openWindow(t, filler, applied)
	filler.wantList(week(2), "ann 7 1")
}

// The second result belongs to the window that opens after the copy of the first result.
func TestWriterNoticesThatAWindowWasOpenedBetweenTwoResults(t *testing.T) {
	blocked := &blockedStore{entered: make(chan struct{}, 100), release: make(chan struct{})}
	filler := weekBoard(openLinked(t, func(s leaderboard.Store) leaderboard.Store { blocked.Store = s; return s }), 30*24*time.Hour)
	writer := ranking.New(blocked, filler.index, ranking.Options{Now: filler.clock.now, BoardTTL: time.Millisecond, LinkTTL: 30 * time.Millisecond})
	defer writer.Close()
	batch := []leaderboard.MatchResult{withRevision(points("ann", "m1", 7), 0, start), withRevision(points("bob", "m1", 5), 1, start.Add(40*time.Hour))}
	for i := range batch {
		batch[i].ReceivedAt = start.AddDate(0, 0, i)
		var err error
		if batch[i], err = writer.Complete(t.Context(), filler.source, batch[i]); err != nil {
			t.Fatal(err)
		}
	}
	applied := make(chan error)
	go func() {
		_, err := writer.Apply(t.Context(), filler.source, batch)
		applied <- err
	}()
	blocked.openWindow(t, filler, applied)
	filler.wantList(week(2), "ann 7 1", "bob 5 2")
}

// A writer corrected the time of a result on the source, and died before it changed the windows. The
// new time is on the last day of window 2, so window 2 is the first window that contains it. Then
// window 2 is filled. The repeated correction must still remove the result from window 1.
func TestFillLeavesTheFirstWindowToTheWriter(t *testing.T) {
	f := weekBoard(openLinked(t, unwrapped), 30*24*time.Hour)
	f.submit("laps", withRevision(points("ann", "m", 7), 0, start))
	f.clock.set(start.AddDate(0, 0, 1).Add(-time.Hour))
	moved, err := f.Complete(t.Context(), f.source, withRevision(points("ann", "m", 9), 1, start.AddDate(0, 0, 2).Add(-11*time.Hour)))
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

// A restored match counts in all its windows, even in those that opened meanwhile.
func TestVoidMatchInRollingWindows(t *testing.T) {
	f := weekBoard(openLinked(t, unwrapped), 30*24*time.Hour)
	f.submit("laps", withRevision(points("ann", "m", 7), 0, start))
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

// Windows 2 and 3 closed before they were filled. Then revisions 1 and 3 arrive together, too late
// for windows 2 and 3. So revision 0 must count there. But revision 1 replaces revision 0 in window 1,
// from which the fill copies to window 2.
func TestLateCorrectionsKeepAnOlderRevisionForTheFill(t *testing.T) {
	f := weekBoard(openLinked(t, unwrapped), 30*24*time.Hour)
	f.submit("laps", withRevision(points("ann", "m", 7), 0, start.Add(22*time.Hour)))
	f.clock.set(start.AddDate(0, 0, 4))
	var batch []leaderboard.MatchResult
	for _, r := range []leaderboard.MatchResult{withRevision(points("ann", "m", 5), 3, start), withRevision(points("ann", "m", 9), 1, start.AddDate(0, 0, 2))} {
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
	f.wantList(week(1)) // here revision 1 replaces revision 0, but does not count: its time is after window 1
	f.wantList(week(2), "ann 7 1")
	f.wantList(week(3), "ann 7 1")
	f.wantList(week(4), "ann 5 1")
}

// Window 7 closed before it was filled. It contains the times of revisions 0 and 2, but not of
// revision 1. Revision 1 arrives too late for every window that contains its time, but must replace
// revision 0 in window 7 too. Revision 2 arrives too late for window 7. So no revision counts there.
func TestLateCorrectionCoversWindowsThatAreNotFilled(t *testing.T) {
	f := weekBoard(openLinked(t, unwrapped), 30*24*time.Hour)
	f.submit("laps", withRevision(points("ann", "m", 7), 0, start.Add(22*time.Hour)))
	f.clock.set(start.AddDate(0, 0, 9))
	for _, r := range []leaderboard.MatchResult{withRevision(points("ann", "m", 9), 1, start), withRevision(points("ann", "m", 5), 2, start.AddDate(0, 0, 7))} {
		r, err := f.Complete(t.Context(), f.source, r)
		if err == nil {
			err = f.apply([]leaderboard.MatchResult{r})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	f.fill()
	for day := 1; day <= 8; day++ {
		f.wantList(week(day))
	}
	f.wantList(week(9), "ann 5 1")
}

// wantNoSealedWindowIn checks that an index has no sealed season of a board. It returns the
// number of sealed seasons.
func (f *fixture) wantNoSealedWindowIn(index leaderboard.Index, id leaderboard.BoardID) (sealed int) {
	f.t.Helper()
	seasons, err := f.store.Seasons(f.t.Context(), id)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, s := range seasons {
		if s.SealedAt.IsZero() {
			continue
		}
		sealed++
		if loaded, err := index.Loaded(f.t.Context(), s.SeasonKey); loaded || err != nil {
			f.t.Errorf("the index has the sealed season %s: %v, error %v; want false", s.Season, loaded, err)
		}
	}
	return sealed
}

func TestSealedWindowsAreNotInTheIndex(t *testing.T) {
	f := weekBoard(openLinked(t, unwrapped), 30*24*time.Hour)
	ctx := t.Context()
	all := ranking.Selection{}
	set := func(void bool) error {
		match := leaderboard.MatchState{MatchKey: leaderboard.MatchKey{SeasonKey: leaderboard.SeasonKey{Board: "laps", Season: leaderboard.SeasonAll}, Match: "m2"}}
		_, err := f.SetVoid(ctx, f.source, match, void)
		return err
	}
	f.submit("laps", withRevision(points("ann", "m1", 7), 0, start))
	f.submit("laps", withRevision(points("ann", "m2", 5), 0, start))
	f.submit("laps", withRevision(points("bob", "m1", 8), 0, start))
	f.wantList(week(0), "ann 12 1", "bob 8 2")
	f.clock.set(start.AddDate(0, 0, 3))
	for _, step := range []struct {
		name   string
		call   func() error
		sealed int
	}{
		{"fill", func() error { return f.FillLinked(ctx) }, 0},
		{"sweep", func() error { return f.Sweep(ctx) }, 3},
		{"load", func() error { return f.Load(ctx, nil) }, 3},
		{"read", func() error {
			f.wantList(week(1), "ann 12 1", "bob 8 2")
			_, err := f.User(ctx, week(2), "ann", 3, true)
			return err
		}, 3},
		{"void", func() error { return set(true) }, 3},
		{"restore", func() error { return set(false) }, 3},
		{"correction", func() error {
			f.submit("laps", withRevision(points("ann", "m2", 4), 1, start.AddDate(0, 0, 3)))
			return nil
		}, 3},
		{"ban", func() error { _, err := f.SetBan(ctx, leaderboard.Ban{User: "bob", Banned: true}); return err }, 3},
		{"division", func() error { f.amendDivisions("week", "team"); return f.FillDivisions(ctx) }, 3},
		{"verify", func() error {
			_, err := f.Verify(ctx, all, true, nil, func(ranking.Difference) error { return nil })
			return err
		}, 3},
		{"rebuild", func() error { _, err := f.Rebuild(ctx, all, nil); return err }, 3},
		{"fill after the rebuild", func() error { return f.FillLinked(ctx) }, 3},
		{"fill of the next day", func() error { f.clock.set(start.AddDate(0, 0, 4)); return f.FillLinked(ctx) }, 3},
		{"sweep of the next day", func() error { return f.Sweep(ctx) }, 4},
		{"load of the next day", func() error { return f.Load(ctx, nil) }, 4},
	} {
		if err := step.call(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if sealed := f.wantNoSealedWindowIn(f.index, "week"); sealed != step.sealed || t.Failed() {
			t.Fatalf("%s: %d windows are sealed, want %d and none in the index", step.name, sealed, step.sealed)
		}
	}
	_, index := embedded.Open(t)
	restarted := serviceOver(t, f.store, index)
	restarted.clock.set(f.clock.now())
	if err := restarted.Load(ctx, nil); err != nil {
		t.Fatal(err)
	}
	for name, process := range map[string]*fixture{"the process": f.fixture, "a restarted process": restarted} {
		process.wantNoSealedWindowIn(process.index, "week")
		for day := 4; day <= 5; day++ {
			key := leaderboard.SeasonKey{Board: "week", Season: week(day).Season}
			if loaded, err := process.index.Loaded(ctx, key); !loaded || err != nil {
				t.Errorf("%s has window %s in its index: %v, error %v; want true", name, key.Season, loaded, err)
			}
		}
	}
	f.wantList(week(0), "ann 7 1")
	f.wantList(week(4), "ann 11 1")
}
