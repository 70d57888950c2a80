package ranking_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/embedded"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

const (
	windowGrace     = 6 * time.Hour
	windowRetention = 4 * 24 * time.Hour
	windowZone      = "America/New_York"
	dateLayout      = "20060102"
)

func (f *rollingFixture) windowsOf(t time.Time) (ids []leaderboard.SeasonID) {
	year, month, day := t.In(f.loc).Date()
	for i := range f.rolling.Season.Days {
		ids = append(ids, leaderboard.SeasonID(time.Date(year, month, day+i, 0, 0, 0, 0, time.UTC).Format(dateLayout)))
	}
	return ids
}

func (f *rollingFixture) endOf(id leaderboard.SeasonID) time.Time {
	f.t.Helper()
	day, err := time.Parse(dateLayout, string(id))
	if err != nil {
		f.t.Fatal(err)
	}
	return time.Date(day.Year(), day.Month(), day.Day()+1, 0, 0, 0, 0, f.loc)
}

// closeOf returns when a window stops accepting results. A window that ended before the
// creation of the board closes windowGrace after the creation.
func (f *rollingFixture) closeOf(id leaderboard.SeasonID) time.Time {
	f.t.Helper()
	if end := f.endOf(id); end.After(f.created) {
		return end.Add(windowGrace)
	}
	return f.created.Add(windowGrace)
}

// rollingFixture has a source, its linked rolling board, and two processes over one store.
type rollingFixture struct {
	*linkedFixture
	processes []*ranking.Service
	rolling   leaderboard.Board // as passed to create
	created   time.Time
	loc       *time.Location
	sent      map[leaderboard.ResultKey]map[int64]leaderboard.MatchResult // by revision
}

func openRolling(t *testing.T, rng *rand.Rand, now time.Time) (*rollingFixture, *faultyStore) {
	t.Helper()
	inner, index := embedded.Open(t)
	store := &faultyStore{Store: inner, rng: rand.New(rand.NewPCG(rng.Uint64(), 0))}
	c := &clock{t: now}
	f := &rollingFixture{created: now, sent: map[leaderboard.ResultKey]map[int64]leaderboard.MatchResult{}}
	for range 2 {
		s := ranking.New(store, index, ranking.Options{Now: c.now, BoardTTL: time.Millisecond, LinkTTL: 2 * time.Millisecond})
		f.processes = append(f.processes, s)
	}
	f.linkedFixture = &linkedFixture{&fixture{f.processes[0], t, store, index, c}, nil, map[leaderboard.BanKey]bool{}}
	var err error
	if f.loc, err = time.LoadLocation(windowZone); err != nil {
		t.Fatal(err)
	}
	kind := []leaderboard.ScheduleKind{leaderboard.None, leaderboard.Daily, leaderboard.Yearly}[rng.IntN(3)]
	source := f.create(leaderboard.Board{ID: "laps", Policy: leaderboard.Sum, Season: leaderboard.Schedule{Kind: kind, Grace: century}})
	f.source = &source
	f.rolling = leaderboard.Board{ID: "days", Retention: windowRetention,
		Policy: []leaderboard.Policy{leaderboard.Sum, leaderboard.Best, leaderboard.Latest}[rng.IntN(3)],
		Order:  []leaderboard.Order{leaderboard.HigherFirst, leaderboard.LowerFirst}[rng.IntN(2)],
		Season: leaderboard.Schedule{Kind: leaderboard.Rolling, Days: []int{2, 3, 3, 7, 31}[rng.IntN(5)], TimeZone: windowZone, Grace: windowGrace},
		Source: &leaderboard.Source{Board: "laps", Match: map[string]string{"mode": "ranked"}}}
	return f, store
}

func (f *rollingFixture) createRolling() {
	f.t.Helper()
	f.created = f.clock.now()
	f.create(f.rolling)
}

// closedSince reports whether a window has closed since t.
func (f *rollingFixture) closedSince(t time.Time) bool {
	day := func(t time.Time) string { return t.Add(-windowGrace).In(f.loc).Format(dateLayout) }
	now, first := f.clock.now(), f.created.Add(windowGrace)
	return day(t) != day(now) || t.Before(first) && !now.Before(first)
}

// randomResult returns a new result of any revision, or repeats a sent result.
func (f *rollingFixture) randomResult(rng *rand.Rand) leaderboard.MatchResult {
	f.t.Helper()
	now := f.clock.now()
	r := points(fmt.Sprintf("u%d", rng.IntN(4)), fmt.Sprintf("m%d", rng.IntN(12)), int64(rng.IntN(20)-4))
	r.Revision = max(0, int64(rng.IntN(7)-3))
	r.AchievedAt = now.Add(-time.Duration(rng.IntN(24*(f.rolling.Season.Days+2))) * time.Hour)
	if rng.IntN(5) == 0 {
		r.AchievedAt = now.Add(time.Duration(rng.IntN(23)) * time.Hour)
	}
	r.Retracted = rng.IntN(6) == 0
	r.Attributes = map[string]string{"mode": []string{"ranked", "ranked", "ranked", "casual"}[rng.IntN(4)]}
	r.ReceivedAt = now
	r, err := f.Complete(f.t.Context(), f.source, r)
	if err != nil {
		f.t.Fatal(err)
	}
	if f.sent[r.ResultKey] == nil {
		f.sent[r.ResultKey] = map[int64]leaderboard.MatchResult{}
	}
	if earlier, ok := f.sent[r.ResultKey][r.Revision]; ok {
		if f.closedSince(earlier.ReceivedAt) {
			// A window has closed, and may have refused the newest revision. The service
			// cannot know whether an older one counts there, so repeat the newest.
			earlier = f.sent[r.ResultKey][slices.Max(slices.Collect(maps.Keys(f.sent[r.ResultKey])))]
		}
		return earlier
	}
	f.sent[r.ResultKey][r.Revision] = r
	return r
}

// The results that count in a window, by user.
func (f *rollingFixture) countingResults(window leaderboard.SeasonID) map[leaderboard.UserID][]leaderboard.MatchResult {
	closes := f.closeOf(window)
	all := map[leaderboard.UserID][]leaderboard.MatchResult{}
	for key, revisions := range f.sent {
		hidden := f.banned[leaderboard.BanKey{User: key.User}] || f.banned[leaderboard.BanKey{User: key.User, Board: "laps"}] || f.banned[leaderboard.BanKey{User: key.User, Board: "days"}]
		for _, revision := range slices.Backward(slices.Sorted(maps.Keys(revisions))) {
			r := revisions[revision]
			counts := !r.Retracted && r.Attributes["mode"] == "ranked" && slices.Contains(f.windowsOf(r.AchievedAt), window)
			if counts && !r.ReceivedAt.Before(closes) {
				continue // late: an older revision that came in time may count
			}
			if counts && !hidden {
				all[key.User] = append(all[key.User], r)
			}
			break
		}
	}
	return all
}

// want computes the sorted ladder of a window, in the form of fixture.list.
func (f *rollingFixture) want(window leaderboard.SeasonID) []string {
	users := map[leaderboard.UserID]*naiveEntry{}
	for user, results := range f.countingResults(window) {
		for i := range results {
			users[user] = users[user].add(&f.rolling, &results[i], nil)
		}
	}
	return naiveLines(&f.rolling, users)
}

// checkWindows compares each readable and filled window with a recount. It returns the number
// of windows that are being filled.
func (f *rollingFixture) checkWindows() (filling int) {
	f.t.Helper()
	now := f.clock.now()
	b, err := f.store.Board(f.t.Context(), "days")
	if err != nil {
		f.t.Fatal(err)
	}
	for day := f.created.AddDate(0, 0, -10); day.Before(now.AddDate(0, 0, 3)); day = day.AddDate(0, 0, 1) {
		window := leaderboard.SeasonID(day.Format(dateLayout))
		switch {
		case !f.endOf(window).Add(windowGrace + windowRetention).After(f.created), !f.closeOf(window).Add(windowRetention).After(now), window > b.Rolling.Opened && !b.FillingSeason(window, now):
			continue // past its retention, or not open yet
		case b.FillingSeason(window, now):
			filling++
			continue
		}
		got := f.list(ranking.Query{Board: "days", Season: window}, 3)
		slices.Sort(got)
		if diff := gocmp.Diff(f.want(window), got); diff != "" {
			f.t.Errorf("at %v, window %s (last filled %s, last opened %s), -recount +service:\n%s", now, window, b.Rolling.Filled, b.Rolling.Opened, diff)
		}
	}
	f.wantNoSealedWindowIn(f.index, "days")
	return filling
}

// In random histories of a rolling board, every filled window equals a recount from the event
// times. The histories contain:
//   - late results, and corrections that move a result into a window or out of it
//   - retractions, bans and erasures
//   - two processes that write and fill concurrently, and store calls that fail
//   - days without a running process, sweeps, and a change to or from daylight saving time
func TestRollingBoardEqualsARecount(t *testing.T) {
	testHistories(t, needs.More(t, 4), rollingHistory)
}

func rollingHistory(t *testing.T, rng *rand.Rand) {
	// Clocks in New York go back on 2026-11-01, and forward on 2026-03-08.
	day := []time.Time{time.Date(2026, 10, 28, 7, 0, 0, 0, time.UTC), time.Date(2026, 3, 5, 7, 0, 0, 0, time.UTC)}[rng.IntN(2)]
	f, store := openRolling(t, rng, day)
	defer func() {
		for _, s := range f.processes {
			s.Close()
		}
	}()
	createStep := rng.IntN(4)
	for step := range 14 {
		if step == createStep {
			f.createRolling()
		}
		store.start([]int{0, 300, 2000}[rng.IntN(3)])
		var running sync.WaitGroup
		if rng.IntN(4) > 0 { // else no process fills windows
			for _, s := range f.processes[:1+rng.IntN(2)] {
				running.Go(func() {
					if err := s.FillLinked(t.Context()); err != nil && !errors.Is(err, errDied) {
						t.Error(err)
					}
				})
			}
		}
		for range 1 + rng.IntN(3) {
			s := f.processes[rng.IntN(2)]
			var batch []leaderboard.MatchResult
			for range 1 + rng.IntN(8) {
				batch = append(batch, f.randomResult(rng))
			}
			running.Go(func() {
				if err := applyUntilDone(t.Context(), s, f.source, batch); err != nil {
					t.Error(err)
				}
			})
		}
		running.Wait()
		store.stop()
		if step < createStep {
			f.clock.set(f.clock.now().Add(time.Duration(rng.IntN(20)) * time.Hour))
			continue
		}
		if step == createStep { // fill now: after a window's close, a fill does not find replaced revisions
			for f.board("days").Filling() {
				f.clock.set(f.clock.now().Add(2 * time.Minute)) // ends the lease of a fill that failed
				if err := f.FillLinked(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		f.administerRolling(rng)
		if err := f.AmendMarked(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.checkWindows()
		f.clock.set(f.clock.now().Add(time.Duration([]int{0, 1, 5, 20, 30, 30, 80}[rng.IntN(7)]) * time.Hour))
		if rng.IntN(2) == 0 {
			if err := f.Sweep(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
	for range 3 { // a fill that failed is repeated after its lease has ended
		f.clock.set(f.clock.now().Add(2 * time.Minute))
		if err := errors.Join(f.FillLinked(t.Context()), f.Sweep(t.Context())); err != nil {
			t.Error(err)
		}
	}
	if n := f.checkWindows(); n > 0 {
		t.Errorf("%d windows are still being filled after all fills, want none", n)
	}
}

func (s *faultyStore) start(maxCalls int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.maxCalls = maxCalls
}

func applyUntilDone(ctx context.Context, s *ranking.Service, source *leaderboard.Board, results []leaderboard.MatchResult) error {
	for range 1000 {
		report, err := s.Apply(ctx, source, results)
		if err == nil && !slices.ContainsFunc(report.Outcomes, func(o leaderboard.Outcome) bool { return o.Err != nil }) {
			return nil
		}
		if err != nil && !errors.Is(err, errDied) {
			return err
		}
	}
	return errors.New("each of 1000 calls of Apply failed")
}

func (f *rollingFixture) administerRolling(rng *rand.Rand) {
	f.t.Helper()
	user := leaderboard.UserID(fmt.Sprintf("u%d", rng.IntN(4)))
	switch rng.IntN(6) {
	case 0:
		key := leaderboard.BanKey{User: user, Board: []leaderboard.BoardID{"", "laps", "days"}[rng.IntN(3)]}
		f.banned[key] = !f.banned[key]
		if _, err := f.SetBan(f.t.Context(), leaderboard.Ban{User: user, Board: key.Board, Banned: f.banned[key]}); err != nil {
			f.t.Error(err)
		}
	case 1:
		f.clock.set(f.clock.now().Add(time.Second))
		if err := f.Erase(f.t.Context(), user); err != nil {
			f.t.Error(err)
		}
		maps.DeleteFunc(f.sent, func(key leaderboard.ResultKey, _ map[int64]leaderboard.MatchResult) bool { return key.User == user })
		maps.DeleteFunc(f.banned, func(key leaderboard.BanKey, _ bool) bool { return key.User == user })
		f.clock.set(f.clock.now().Add(time.Second))
	}
}
