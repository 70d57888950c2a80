package ranking_test

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/embedded"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

type sweepCalls struct {
	leaderboard.Store
	mu    sync.Mutex
	calls map[string]int
	seal  func() // runs at the start of each Seal, unless it is nil
}

func (s *sweepCalls) count(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[name]++
}

func (s *sweepCalls) takeCalls() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := s.calls
	s.calls = map[string]int{}
	return counts
}

func (s *sweepCalls) Boards(ctx context.Context) ([]leaderboard.Board, error) {
	s.count("Boards")
	return s.Store.Boards(ctx)
}

func (s *sweepCalls) Board(ctx context.Context, id leaderboard.BoardID) (leaderboard.Board, error) {
	s.count("Board")
	return s.Store.Board(ctx, id)
}

func (s *sweepCalls) Seasons(ctx context.Context, id leaderboard.BoardID) ([]leaderboard.SeasonRecord, error) {
	s.count("Seasons")
	return s.Store.Seasons(ctx, id)
}

func (s *sweepCalls) SeasonIDs(ctx context.Context, id leaderboard.BoardID) ([]leaderboard.SeasonID, error) {
	s.count("SeasonIDs")
	return s.Store.SeasonIDs(ctx, id)
}

func (s *sweepCalls) Season(ctx context.Context, key leaderboard.SeasonKey) (leaderboard.SeasonRecord, error) {
	s.count("Season")
	return s.Store.Season(ctx, key)
}

func (s *sweepCalls) HasUsers(ctx context.Context, key leaderboard.SeasonKey) (bool, error) {
	s.count("HasUsers")
	return s.Store.HasUsers(ctx, key)
}

func (s *sweepCalls) Scan(ctx context.Context, key leaderboard.SeasonKey, part leaderboard.Part) iter.Seq2[leaderboard.Entry, error] {
	s.count("Scan")
	return s.Store.Scan(ctx, key, part)
}

func (s *sweepCalls) Matches(ctx context.Context, key leaderboard.SeasonKey) iter.Seq2[leaderboard.MatchState, error] {
	s.count("Matches")
	return s.Store.Matches(ctx, key)
}

func (s *sweepCalls) Reserve(ctx context.Context, r leaderboard.Reservation) (bool, error) {
	s.count("Reserve")
	return s.Store.Reserve(ctx, r)
}

func (s *sweepCalls) AppendAct(ctx context.Context, act leaderboard.Act) error {
	s.count("AppendAct")
	return s.Store.AppendAct(ctx, act)
}

func (s *sweepCalls) Seal(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, at time.Time) (leaderboard.SeasonRecord, error) {
	s.count("Seal")
	if s.seal != nil {
		s.seal()
	}
	return s.Store.Seal(ctx, b, season, at)
}

func (s *sweepCalls) DeleteSeason(ctx context.Context, key leaderboard.SeasonKey, at time.Time) error {
	s.count("DeleteSeason")
	return s.Store.DeleteSeason(ctx, key, at)
}

// serviceWithDailyResults returns a service whose boards have one result on each of the given
// number of days, up to start. change changes the settings of each new board.
func serviceWithDailyResults(t *testing.T, boards, days int, change func(*leaderboard.Board)) (*fixture, *sweepCalls) {
	t.Helper()
	store, index := embedded.Open(t)
	calls := &sweepCalls{Store: store, calls: map[string]int{}}
	f := serviceOver(t, calls, index)
	f.clock.set(start.AddDate(0, 0, 1-days))
	for i := range boards {
		b := dailyBoard
		b.ID = leaderboard.BoardID(fmt.Sprint("b", i))
		change(&b)
		f.create(b)
	}
	for d := range days {
		f.clock.set(start.AddDate(0, 0, 1-days+d))
		for i := range boards {
			f.submit(leaderboard.BoardID(fmt.Sprint("b", i)), points("ann", fmt.Sprint("day", d), 5))
		}
	}
	return f, calls
}

func (f *fixture) sweep() {
	f.t.Helper()
	if err := f.Sweep(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
}

func TestSweepReadsOnlyDueSeasons(t *testing.T) {
	needs.NoRace(t, "one call follows another")
	f, calls := serviceWithDailyResults(t, 20, 30, func(*leaderboard.Board) {})
	wantCalls := func(what string, want map[string]int) {
		t.Helper()
		if d := gocmp.Diff(want, calls.takeCalls()); d != "" {
			t.Errorf("calls of a sweep %s (-want +got):\n%s", what, d)
		}
	}
	f.sweep()
	if n := calls.takeCalls()["Seal"]; n != 20*29 {
		t.Fatalf("the sweep called Seal %d times, want %d", n, 20*29)
	}
	f.clock.set(f.clock.now().Add(time.Minute))
	f.sweep()
	calls.takeCalls()
	for range 5 {
		f.clock.set(f.clock.now().Add(time.Minute))
		f.sweep()
		wantCalls("if no board is due", map[string]int{"Boards": 1})
	}
	if _, err := f.store.AmendBoard(t.Context(), "b7", func(b *leaderboard.Board) error { b.Retention = 10 * 24 * time.Hour; return nil }); err != nil {
		t.Fatal(err)
	}
	f.sweep()
	wantCalls("after a change of a setting", map[string]int{"Boards": 1, "Board": 1, "SeasonIDs": 1})
	f.clock.set(f.clock.now().Add(listInterval))
	f.sweep()
	wantCalls("an hour later", map[string]int{"Boards": 1, "Board": 20, "SeasonIDs": 20})
	f.clock.set(start.AddDate(0, 0, 1))
	f.sweep()
	wantCalls("after the last day", map[string]int{
		"Boards": 1, "Board": 20 + 20, "SeasonIDs": 20, "Season": 20 + 20, "Scan": 20, "Reserve": 20 + 20, "AppendAct": 20, "Seal": 20,
	})
	f.sweep()
	wantCalls("after the seals", map[string]int{"Boards": 1, "Board": 20, "SeasonIDs": 20, "Season": 20})
	f.sweep()
	wantCalls("after the sweep that follows the seals", map[string]int{"Boards": 1})
	f.clock.set(start.AddDate(0, 0, 10).Add(2 * time.Minute))
	f.sweep()
	if got := calls.takeCalls(); got["DeleteSeason"] != 29 || got["Season"] > 3*29 {
		t.Errorf("calls of a sweep after the retention: %v, want 29 of DeleteSeason and at most 87 of Season", got)
	}
}

const listInterval = time.Hour

// Once an hour, a sweep looks for unfinished voids in all seasons.
func TestASweepLooksForVoidsInOpenSeasons(t *testing.T) {
	f, calls := serviceWithDailyResults(t, 1, 30, func(b *leaderboard.Board) { b.Matches = true })
	f.sweep()
	f.sweep()
	calls.takeCalls()
	f.sweep()
	if d := gocmp.Diff(map[string]int{"Boards": 1, "Board": 1, "SeasonIDs": 1, "Matches": 1}, calls.takeCalls()); d != "" {
		t.Errorf("calls of a sweep (-want +got):\n%s", d)
	}
	f.clock.set(f.clock.now().Add(listInterval))
	f.sweep()
	if n := calls.takeCalls()["Matches"]; n != 30 {
		t.Errorf("an hour later, a sweep called Matches %d times, want 30", n)
	}
}

func TestOneProcessSealsASeason(t *testing.T) {
	const processes, days = 4, 6
	f, calls := serviceWithDailyResults(t, 3, days, func(*leaderboard.Board) {})
	index := make([]leaderboard.Index, processes)
	fixtures := make([]*fixture, processes)
	for i := range fixtures {
		_, index[i] = embedded.Open(t) // each process has its own index, like processes in different regions
		fixtures[i] = serviceOver(t, calls, index[i])
		fixtures[i].clock.set(f.clock.now())
		if err := fixtures[i].Load(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	calls.takeCalls()
	sweepAll := func(now time.Time) {
		t.Helper()
		var wg sync.WaitGroup
		for i, process := range fixtures {
			process.clock.set(now.Add(time.Duration(i) * time.Second))
			wg.Go(func() {
				if err := process.Sweep(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	calls.seal = func() { time.Sleep(time.Millisecond) }
	sweepAll(start.AddDate(0, 0, 1))
	sweepAll(start.AddDate(0, 0, 1).Add(time.Minute))
	if n := calls.takeCalls()["Seal"]; n != 3*days {
		t.Errorf("%d processes called Seal %d times, want once for each of %d seasons", processes, n, 3*days)
	}
	for i := range 3 {
		records, err := f.store.Seasons(t.Context(), leaderboard.BoardID(fmt.Sprint("b", i)))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			if r.SealedAt.IsZero() || len(r.Amendments) > 0 {
				t.Errorf("season %+v, want it sealed without amendments", r)
			}
			for p := range index {
				if loaded, err := index[p].Loaded(t.Context(), r.SeasonKey); loaded || err != nil {
					t.Errorf("the index of process %d has the sealed season %s/%s (error %v), want it dropped", p, r.Board, r.Season, err)
				}
			}
		}
	}
}

// The season starts after a sweep has read the board.
func TestAShortSeasonIsSealedInTime(t *testing.T) {
	f := open(t)
	begins := start.Add(20 * time.Minute)
	f.create(leaderboard.Board{ID: "cup", Policy: leaderboard.Sum, Order: leaderboard.HigherFirst, Season: leaderboard.Schedule{
		Kind: leaderboard.Explicit, Windows: []leaderboard.Season{{ID: "final", Start: begins, End: begins.Add(10 * time.Minute)}},
	}})
	for range 5 { // while no season has results, the process lists the seasons less and less often
		f.sweep()
		f.clock.set(f.clock.now().Add(time.Minute))
	}
	f.clock.set(begins)
	f.submit("cup", points("ann", "m", 5))
	for range 12 {
		f.clock.set(f.clock.now().Add(time.Minute))
		f.sweep()
	}
	record, err := f.store.Season(t.Context(), leaderboard.SeasonKey{Board: "cup", Season: "final"})
	if want := begins.Add(11 * time.Minute); err != nil || !record.SealedAt.Equal(want) {
		t.Errorf("the season is %+v, error %v; want it sealed at %v", record, err, want)
	}
}

// A process sleeps in Seal and loses its lease. Another process seals the season.
func TestASealThatSleepsChangesNothing(t *testing.T) {
	f, calls := serviceWithDailyResults(t, 1, 1, func(*leaderboard.Board) {})
	f.clock.set(start.AddDate(0, 0, 1))
	other := serviceOver(t, f.store, f.index)
	asleep := false
	calls.seal = func() {
		if asleep {
			return
		}
		asleep = true
		for _, later := range []time.Duration{time.Second, time.Minute} {
			other.clock.set(f.clock.now().Add(later))
			other.sweep()
			record, err := f.store.Season(t.Context(), leaderboard.SeasonKey{Board: "b0", Season: day})
			if err != nil || record.SealedAt.IsZero() != (later == time.Second) {
				t.Errorf("%v after the first process took the lease: season %+v, error %v; want sealed: %v", later, record, err, later == time.Minute)
			}
		}
	}
	f.sweep()
	f.clock.set(other.clock.now().Add(time.Minute))
	f.sweep()
	record, err := f.store.Season(t.Context(), leaderboard.SeasonKey{Board: "b0", Season: day})
	if err != nil || !record.SealedAt.Equal(start.AddDate(0, 0, 1).Add(time.Minute)) || len(record.Amendments) > 0 {
		t.Errorf("the season is %+v, %v; want it sealed by the other process, without amendments", record, err)
	}
	f.wantList(ranking.Query{Board: "b0", Season: day}, "ann 5 1")
}

// The sweeps have listed the seasons before the first result arrives.
func TestASeasonWithAFirstResultInItsGraceIsSealedInTime(t *testing.T) {
	const grace = 90 * time.Minute
	midnight := start.Truncate(24*time.Hour).AddDate(0, 0, 1)
	for _, tt := range []struct {
		name     string
		endEarly bool
		close    time.Time
	}{
		{"the season ends", false, midnight.Add(grace)},
		{"an administrator ends the season", true, midnight.Add(-time.Hour + grace)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := open(t)
			b := dailyBoard
			b.Season.Grace = grace
			f.create(b)
			f.clock.set(tt.close.Add(-grace))
			if tt.endEarly {
				if _, err := f.EndSeason(t.Context(), b.ID, leaderboard.EarlyEnd{ID: day}); err != nil {
					t.Fatal(err)
				}
			}
			for f.clock.now().Before(tt.close.Add(-20 * time.Minute)) {
				f.sweep()
				f.clock.set(f.clock.now().Add(time.Minute))
			}
			r := points("ann", "m", 5)
			r.AchievedAt = start
			f.submit(b.ID, r)
			for range 25 {
				f.clock.set(f.clock.now().Add(time.Minute))
				f.sweep()
			}
			record, err := f.store.Season(t.Context(), leaderboard.SeasonKey{Board: b.ID, Season: day})
			if want := tt.close.Add(time.Minute); err != nil || !record.SealedAt.Equal(want) {
				t.Errorf("the season is %+v, error %v; want it sealed at %v", record, err, want)
			}
		})
	}
}

func TestASeasonReopenedAfterItsDeletionIsSealedAgain(t *testing.T) {
	for _, sweeper := range []string{"deleted the season", "only knows of the seal"} {
		t.Run("the process that "+sweeper, func(t *testing.T) {
			f := open(t)
			b := dailyBoard
			b.Retention = 24 * time.Hour
			f.create(b)
			f.submit(b.ID, points("ann", "m", 5))
			f.afterDay()
			f.sweep()
			f.sweep() // learns that the season is sealed
			other := serviceOver(t, f.store, f.index)
			other.clock.set(f.clock.now().Add(26 * time.Hour))
			other.sweep()
			if _, err := f.AmendBoard(t.Context(), b.ID, func(b *leaderboard.Board) error {
				b.Season.Grace, b.Retention = 10*24*time.Hour, 0
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			f.clock.set(other.clock.now().Add(time.Second))
			r := points("bob", "m", 3)
			r.AchievedAt = start
			f.submit(b.ID, r)
			process := map[string]*fixture{"deleted the season": other, "only knows of the seal": f}[sweeper]
			process.clock.set(start.AddDate(0, 0, 11))
			process.sweep()
			record, err := f.store.Season(t.Context(), leaderboard.SeasonKey{Board: b.ID, Season: day})
			if err != nil || record.SealedAt.IsZero() {
				t.Errorf("the season is %+v, error %v; want it sealed again", record, err)
			}
			process.wantList(dayQuery, "bob 3 1")
		})
	}
}
