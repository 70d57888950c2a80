package ranking_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/embedded"
	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

const century = 100 * 365 * 24 * time.Hour

func lapBoards(sourceSchedule leaderboard.ScheduleKind) (source leaderboard.Board, linked []leaderboard.Board) {
	ties := []leaderboard.TieBreaker{{Name: "wins"}, {Name: "faults", Order: leaderboard.LowerFirst}}
	schedule := func(k leaderboard.ScheduleKind) leaderboard.Schedule {
		return leaderboard.Schedule{Kind: k, TimeZone: "UTC", Grace: century}
	}
	sourceOf := func(match map[string]string) *leaderboard.Source {
		return &leaderboard.Source{Board: "laps", Match: match}
	}
	source = leaderboard.Board{ID: "laps", Policy: leaderboard.Sum, TieBreakers: ties, Unit: "pt", Decimals: 1, Season: schedule(sourceSchedule), Matches: true}
	linked = []leaderboard.Board{
		{ID: "all", Policy: leaderboard.Sum, Season: schedule(leaderboard.None), Source: sourceOf(nil)},
		{ID: "month", Policy: leaderboard.Sum, Season: schedule(leaderboard.Monthly), Source: sourceOf(nil),
			TieBreakers: []leaderboard.TieBreaker{{Name: "faults"}, {Name: "wins", Order: leaderboard.LowerFirst}}},
		{ID: "year", Policy: leaderboard.Sum, Season: leaderboard.Schedule{Kind: leaderboard.Yearly, YearStart: 90, Grace: century}, Source: sourceOf(nil)},
		{ID: "shift", Policy: leaderboard.Sum, Source: sourceOf(nil), Season: leaderboard.Schedule{Kind: leaderboard.Every, Every: 9 * time.Hour,
			From: time.Date(2020, 1, 1, 4, 0, 0, 0, time.UTC), Grace: century}},
		{ID: "day", Policy: leaderboard.Best, Order: leaderboard.LowerFirst, Season: schedule(leaderboard.Daily), Source: sourceOf(nil)},
		{ID: "ranked", Policy: leaderboard.Sum, Season: schedule(leaderboard.None), Source: sourceOf(map[string]string{"mode": "ranked"})},
		{ID: "last", Policy: leaderboard.Latest, Season: schedule(leaderboard.Daily), Source: sourceOf(map[string]string{"mode": "ranked", "team": "red"}),
			TieBreakers: []leaderboard.TieBreaker{{Name: "wins"}}},
	}
	return source, linked
}

var lapAttributes = map[string][]string{"mode": {"ranked", "ranked", "casual"}, "team": {"red", "blue"}}

// lap returns a random result. Few users and matches give many revisions of one match.
func lap(rng *rand.Rand) leaderboard.MatchResult {
	r := points(fmt.Sprintf("u%d", rng.IntN(6)), fmt.Sprintf("m%d", rng.IntN(8)), int64(rng.IntN(20)-4))
	r.Revision = max(0, int64(rng.IntN(6)-2))
	r.TieBreakers = []int64{int64(rng.IntN(3)), int64(rng.IntN(3))}[:rng.IntN(3)]
	r.AchievedAt = start.Add(-time.Duration(rng.IntN(5)) * 11 * 24 * time.Hour).Add(time.Duration(rng.IntN(3)) * time.Hour)
	if rng.IntN(4) == 0 {
		r.AchievedAt = r.AchievedAt.AddDate(-1, 0, 0)
	}
	r.Retracted = rng.IntN(6) == 0
	r.Attributes = map[string]string{}
	for _, name := range []string{"mode", "team"} {
		values := lapAttributes[name]
		if rng.IntN(5) > 0 {
			r.Attributes[name] = values[rng.IntN(len(values))]
		}
	}
	r.ReceivedAt = start
	return r
}

type linkedFixture struct {
	*fixture
	source *leaderboard.Board
	banned map[leaderboard.BanKey]bool // set by the test, for the recount
}

func (f *linkedFixture) apply(results []leaderboard.MatchResult) error {
	ctx := f.t.Context()
	complete := slices.Clone(results)
	for i := range complete {
		var err error
		if complete[i], err = f.Complete(ctx, f.source, complete[i]); err != nil {
			return err
		}
	}
	return applyUntilDone(ctx, f.Service, f.source, complete)
}

func (f *linkedFixture) check(b *leaderboard.Board) {
	f.t.Helper()
	var standing []leaderboard.MatchResult
	if err := f.Export(f.t.Context(), ranking.Selection{Board: "laps"}, false, func(r leaderboard.MatchResult) error {
		standing = append(standing, r)
		return nil
	}); err != nil {
		f.t.Fatal(err)
	}
	want := recount(f.source, b, standing, func(r *leaderboard.MatchResult) bool {
		user := r.User
		return f.isVoid(r) || f.banned[leaderboard.BanKey{User: user}] || f.banned[leaderboard.BanKey{User: user, Board: "laps"}] || f.banned[leaderboard.BanKey{User: user, Board: b.ID}]
	})
	got := map[leaderboard.Ladder][]string{}
	for _, s := range f.seasons(b.ID) {
		for _, d := range divisionsOf(b) {
			if lines := f.list(ranking.Query{Board: b.ID, Season: s.ID, Division: d}, 4); len(lines) > 0 {
				slices.Sort(lines)
				got[leaderboard.Ladder{SeasonKey: leaderboard.SeasonKey{Board: b.ID, Season: s.ID}, Division: d}] = lines
			}
		}
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		f.t.Errorf("board %q (-recount +service):\n%s", b.ID, diff)
	}
}

func (f *linkedFixture) isVoid(r *leaderboard.MatchResult) bool {
	f.t.Helper()
	state, err := f.store.Match(f.t.Context(), leaderboard.MatchKey{SeasonKey: r.SeasonKey, Match: r.Match})
	if err != nil {
		f.t.Fatal(err)
	}
	if state.Applied != state.Voids {
		f.t.Errorf("the state of match %q is %+v, want it applied", r.Match, state)
	}
	return state.IsVoid()
}

// setRandomVoid voids or restores a random match. If SetVoid fails, setRandomVoid repeats the
// call, or leaves the match to finishVoids.
func (f *linkedFixture) setRandomVoid(rng *rand.Rand) {
	r := lap(rng)
	r.Season = naiveSeason(f.source.Season, r.AchievedAt)
	key := leaderboard.MatchKey{SeasonKey: leaderboard.SeasonKey{Board: f.source.ID, Season: r.Season}, Match: r.Match}
	void := rng.IntN(3) > 0
	for {
		_, err := f.SetVoid(f.t.Context(), f.source, leaderboard.MatchState{MatchKey: key}, void)
		if err == nil || errors.Is(err, errDied) && rng.IntN(4) == 0 {
			return
		}
		if !errors.Is(err, errDied) {
			f.t.Error(err)
			return
		}
	}
}

// faultyStore is a store that fails some calls. Each call has two steps, one before and one
// after its effect.
type faultyStore struct {
	leaderboard.Store
	mu        sync.Mutex
	rng       *rand.Rand
	maxCalls  int // the largest number of steps from one fault to the next; 0 means no faults
	remaining int // steps until the next fault
}

// fails counts a step, and reports whether the step must fail.
func (s *faultyStore) fails() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.maxCalls == 0 {
		return false
	}
	if s.remaining--; s.remaining > 0 {
		return false
	}
	s.remaining = 1 + s.rng.IntN(s.maxCalls)
	return true
}

func (s *faultyStore) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.maxCalls = 0
}

func faulty[T any](s *faultyStore, call func() (T, error)) (T, error) {
	var zero T
	if s.fails() {
		return zero, errDied
	}
	v, err := call()
	if err == nil && s.fails() {
		return zero, errDied
	}
	return v, err
}

func (s *faultyStore) Apply(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) (leaderboard.ApplyReport, error) {
	return faulty(s, func() (leaderboard.ApplyReport, error) { return s.Store.Apply(ctx, b, results) })
}

func (s *faultyStore) SetMatch(ctx context.Context, b *leaderboard.Board, m leaderboard.MatchState) (leaderboard.MatchState, error) {
	return faulty(s, func() (leaderboard.MatchState, error) { return s.Store.SetMatch(ctx, b, m) })
}

func (s *faultyStore) Result(ctx context.Context, key leaderboard.ResultKey) (leaderboard.Record, error) {
	return faulty(s, func() (leaderboard.Record, error) { return s.Store.Result(ctx, key) })
}

// In random histories, every ladder of the source and of its linked boards equals a recount of
// the source's results. The histories contain:
//   - duplicates, retractions, and revisions in any order, some of them in another season
//   - voids, restored matches, bans and erasures
//   - concurrent writers, and store calls that fail
//   - creations and fills of linked boards
//   - divisions, some of them crossed, that are added, removed and filled
func TestLinkedBoardsEqualARecount(t *testing.T) {
	testHistories(t, needs.More(t, 3), linkedHistory)
}

func testHistories(t *testing.T, count int, history func(*testing.T, *rand.Rand)) {
	runSeed := seed.New(t)
	for n := range uint64(count) {
		history(t, rand.New(rand.NewPCG(runSeed, n)))
		if t.Failed() {
			t.Fatalf("history %d failed", n)
		}
	}
}

func linkedHistory(t *testing.T, rng *rand.Rand) {
	inner, index := embedded.Open(t)
	store := &faultyStore{Store: inner, rng: rand.New(rand.NewPCG(rng.Uint64(), 0)), maxCalls: []int{0, 1000, 5000}[rng.IntN(3)]}
	c := &clock{t: start}
	service := ranking.New(store, index, ranking.Options{Now: c.now, BoardTTL: time.Millisecond, LinkTTL: 2 * time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	var background sync.WaitGroup
	defer func() { cancel(); background.Wait(); service.Close() }()
	f := &linkedFixture{&fixture{service, t, store, index, c}, nil, map[leaderboard.BanKey]bool{}}
	source, linked := lapBoards([]leaderboard.ScheduleKind{leaderboard.None, leaderboard.Monthly}[rng.IntN(2)])
	source.Divisions = randomDivisions(rng)
	source = f.create(source)
	f.source = &source
	background.Go(func() { service.FillBoards(ctx, 5*time.Millisecond) })

	boards := slices.Clone(linked)
	rng.Shuffle(len(boards), func(i, j int) { boards[i], boards[j] = boards[j], boards[i] })
	var sent []leaderboard.MatchResult
	for len(boards) > 0 || rng.IntN(8) > 0 {
		if len(boards) > 0 && rng.IntN(3) == 0 {
			boards[0].Divisions = randomDivisions(rng)
			f.create(boards[0])
			boards = boards[1:]
		}
		var writers sync.WaitGroup
		for range 1 + rng.IntN(3) {
			var batch []leaderboard.MatchResult
			for range 1 + rng.IntN(12) {
				r := lap(rng)
				if len(sent) > 0 && rng.IntN(5) == 0 {
					r = sent[rng.IntN(len(sent))]
				}
				batch = append(batch, r)
			}
			sent = append(sent, batch...)
			writers.Go(func() {
				if err := f.apply(batch); err != nil {
					t.Error(err)
				}
			})
		}
		if rng.IntN(2) == 0 {
			voids := rand.New(rand.NewPCG(rng.Uint64(), 1))
			writers.Go(func() { f.setRandomVoid(voids) })
		}
		if rng.IntN(4) == 0 {
			id, divisions := append(linked, source)[rng.IntN(len(linked)+1)].ID, randomDivisions(rng)
			writers.Go(func() { f.divide(id, divisions) })
		}
		writers.Wait()
		f.administer(rng, linked)
	}
	store.stop()
	if err := f.FinishVoids(ctx); err != nil {
		t.Error(err)
	}
	for _, b := range append(linked, source) {
		f.waitFilled(b.ID)
		f.check(f.board(b.ID))
	}
}

func (f *linkedFixture) divide(id leaderboard.BoardID, divisions []string) {
	_, err := f.AmendBoard(f.t.Context(), id, func(b *leaderboard.Board) error { b.Divisions = divisions; return nil })
	if err != nil && !errors.Is(err, leaderboard.ErrBoardNotFound) {
		f.t.Error(err)
	}
}

func (f *linkedFixture) administer(rng *rand.Rand, linked []leaderboard.Board) {
	f.t.Helper()
	user := leaderboard.UserID(fmt.Sprintf("u%d", rng.IntN(6)))
	switch rng.IntN(6) {
	case 0, 1:
		key := leaderboard.BanKey{User: user, Board: []leaderboard.BoardID{"", "laps", linked[rng.IntN(len(linked))].ID}[rng.IntN(3)]}
		banned := rng.IntN(2) == 0
		_, err := f.SetBan(f.t.Context(), leaderboard.Ban{User: user, Board: key.Board, Banned: banned})
		switch {
		case err == nil:
			f.banned[key] = banned
		case !errors.Is(err, leaderboard.ErrBoardNotFound):
			f.t.Error(err)
		}
	case 2:
		f.clock.set(f.clock.now().Add(time.Second))
		if err := f.Erase(f.t.Context(), user); err != nil {
			f.t.Error(err)
		}
		maps.DeleteFunc(f.banned, func(key leaderboard.BanKey, _ bool) bool { return key.User == user })
	}
}

func (f *fixture) waitFilled(id leaderboard.BoardID) {
	f.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		b, err := f.store.Board(f.t.Context(), id)
		if err != nil {
			f.t.Fatal(err)
		}
		if !b.Filling() && b.RecountDue.IsZero() {
			return
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("board %q is not filled after a minute", id)
		}
		f.clock.set(f.clock.now().Add(time.Minute)) // ends the lease of a fill that failed
		time.Sleep(5 * time.Millisecond)
	}
}

func linkedPair(t *testing.T) *linkedFixture {
	t.Helper()
	store, index := embedded.Open(t)
	c := &clock{t: start}
	service := ranking.New(store, index, ranking.Options{Now: c.now, BoardTTL: time.Millisecond, LinkTTL: time.Millisecond})
	f := &linkedFixture{&fixture{service, t, store, index, c}, nil, nil}
	source := f.create(leaderboard.Board{ID: "laps", Policy: leaderboard.Sum, TieBreakers: []leaderboard.TieBreaker{{Name: "wins"}}, Unit: "pt", Decimals: 2})
	f.source = &source
	f.create(leaderboard.Board{ID: "month", Policy: leaderboard.Sum, Source: &leaderboard.Source{Board: "laps"},
		Season: leaderboard.Schedule{Kind: leaderboard.Monthly, TimeZone: "UTC", Grace: time.Hour}})
	if err := f.FillLinked(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f
}

var (
	november = ranking.Query{Board: "month", Season: "202611"}
	october  = ranking.Query{Board: "month", Season: "202610"}
)

func withRevision(r leaderboard.MatchResult, revision int64, t time.Time) leaderboard.MatchResult {
	r.Revision, r.AchievedAt = revision, t
	return r
}

func TestOlderRevisionThatArrivesLastDoesNotCountInItsSeason(t *testing.T) {
	f := linkedPair(t)
	f.submit("laps", withRevision(points("ann", "m", 7), 2, start))
	if got := f.trySubmit("laps", withRevision(points("ann", "m", 5), 1, start.AddDate(0, -1, 0))); got.Status != leaderboard.Superseded {
		t.Errorf("status %v, want SUPERSEDED", got.Status)
	}
	f.wantList(november, "ann 7 1")
	f.wantList(october)
	f.submit("laps", withRevision(points("ann", "m", 4), 3, start.AddDate(0, -1, 0)))
	f.wantList(november)
	f.wantList(october, "ann 4 1")
	r := points("ann", "m", 0)
	r.Retracted, r.Revision = true, 4
	f.submit("laps", r)
	f.wantList(october)
}

func TestResultThatIsLateForALinkedSeasonIsSkippedThere(t *testing.T) {
	f := linkedPair(t)
	f.clock.set(time.Date(2026, 12, 1, 0, 30, 0, 0, time.UTC)) // in the grace of November
	f.submit("laps", withRevision(points("ann", "m1", 7), 0, start))
	f.clock.set(time.Date(2026, 12, 1, 1, 0, 0, 0, time.UTC))
	f.submit("laps", withRevision(points("ann", "m2", 5), 0, start))
	f.submit("laps", withRevision(points("ann", "m1", 9), 1, start))
	f.wantList(november, "ann 7 1")
	f.wantList(ranking.Query{Board: "laps"}, "ann 14 1")
	refusals, err := f.store.RecentRefusals(t.Context(), f.board("month"), leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Board: "month", Season: "202611"}, User: "ann", Match: "m2"})
	if err != nil || len(refusals) != 1 || refusals[0].Reason != leaderboard.ReasonClosed {
		t.Errorf("refusals %+v, error %v, want one with the reason SEASON_CLOSED", refusals, err)
	}
	f.sealNovember(t, "month")
	r := points("ann", "m1", 0)
	r.Retracted, r.Revision = true, 2
	f.submit("laps", r)
	f.wantList(november)
}

// A linked board's changes have messages of their own, so only these change its AsOf. Otherwise, a
// consumer that reads all messages again could change it.
func TestReindexOfASourceKeepsTheAsOfOfLinkedBoards(t *testing.T) {
	f := linkedPair(t)
	f.submit("laps", withRevision(points("ann", "m", 7), 0, start))
	f.wantList(november, "ann 7 1") // fills the index
	f.wantList(ranking.Query{Board: "laps"}, "ann 7 1")
	source := leaderboard.SeasonKey{Board: "laps", Season: leaderboard.SeasonAll}
	linked := leaderboard.SeasonKey{Board: november.Board, Season: november.Season}
	asOf := func(key leaderboard.SeasonKey) time.Time {
		t.Helper()
		_, view, err := f.index.Page(t.Context(), leaderboard.Ladder{SeasonKey: key}, 1, 1)
		if err != nil {
			t.Fatal(err)
		}
		return view.AsOf
	}
	want, later := asOf(linked), start.Add(time.Hour)
	if err := f.Reindex(t.Context(), source, []leaderboard.UserID{"ann"}, later); err != nil {
		t.Fatal(err)
	}
	if got := asOf(source); !got.Equal(later) {
		t.Errorf("AsOf of the source is %v, want %v", got, later)
	}
	if got := asOf(linked); !got.Equal(want) {
		t.Errorf("AsOf of the linked board is %v, want still %v", got, want)
	}
	if err := f.Reindex(t.Context(), linked, []leaderboard.UserID{"ann"}, later); err != nil {
		t.Fatal(err)
	}
	if got := asOf(linked); !got.Equal(later) {
		t.Errorf("AsOf of the linked board after its own message is %v, want %v", got, later)
	}
}

// sealNovember moves the clock by an hour, and seals the closed seasons of all boards. One of
// them must be November on the given board.
func (f *fixture) sealNovember(t *testing.T, id leaderboard.BoardID) {
	t.Helper()
	f.clock.set(f.clock.now().Add(time.Hour))
	if err := f.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	record, err := f.store.Season(t.Context(), leaderboard.SeasonKey{Board: id, Season: "202611"})
	if err != nil || record.SealedAt.IsZero() {
		t.Fatalf("season %+v, error %v, want a sealed season", record, err)
	}
}

// The linked season is closed or sealed. Correct copies a correction. Refresh copies a correction
// that a dead process has applied only to the source.
func TestCorrectionOfAClosedSeasonReachesClosedLinkedSeasons(t *testing.T) {
	for _, sealed := range []bool{false, true} {
		t.Run(fmt.Sprintf("the linked season is sealed: %v", sealed), func(t *testing.T) {
			store, index := embedded.Open(t)
			c := &clock{t: start}
			service := ranking.New(store, index, ranking.Options{Now: c.now, LinkTTL: time.Millisecond})
			f := &fixture{service, t, store, index, c}
			monthly := leaderboard.Schedule{Kind: leaderboard.Monthly, TimeZone: "UTC", Grace: time.Hour}
			f.create(leaderboard.Board{ID: "laps", Policy: leaderboard.Sum, Season: monthly})
			f.create(leaderboard.Board{ID: "month", Policy: leaderboard.Sum, Season: monthly, Source: &leaderboard.Source{Board: "laps"}})
			if err := f.FillLinked(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.submit("laps", withRevision(points("ann", "m", 7), 0, start))
			f.wantList(november, "ann 7 1")
			f.clock.set(time.Date(2026, 12, 1, 1, 0, 0, 0, time.UTC))
			if sealed {
				f.sealNovember(t, "month")
			}
			key := leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Board: "laps", Season: "202611"}, User: "ann", Match: "m"}
			score := leaderboard.Score(4)
			_, got, err := f.Correct(t.Context(), f.board("laps"), key, ranking.Correction{Score: &score, Amends: true})
			if err != nil || got.Status != leaderboard.Applied {
				t.Fatalf("correction %+v, error %v, want APPLIED", got, err)
			}
			f.wantList(november, "ann 4 1")
			correction := withRevision(points("ann", "m", 3), 2, start)
			correction.SeasonKey, correction.ReceivedAt, correction.Amends = key.SeasonKey, c.now(), true
			report, err := store.Apply(t.Context(), f.board("laps"), []leaderboard.MatchResult{correction})
			if err != nil || report.Outcomes[0].Status != leaderboard.Applied {
				t.Fatalf("report %+v, error %v, want APPLIED", report, err)
			}
			if _, err := f.Refresh(t.Context(), f.board("laps"), "202611", "ann"); err != nil {
				t.Fatal(err)
			}
			if err := f.AmendMarked(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.wantList(november, "ann 3 1")
		})
	}
}

func TestSettingsOfLinkedBoards(t *testing.T) {
	f := linkedPair(t)
	ctx := t.Context()
	if b := f.board("month"); b.Unit != "pt" || b.Decimals != 2 {
		t.Errorf("the linked board has unit %q and %d decimals, want those of its source", b.Unit, b.Decimals)
	}
	low := leaderboard.Score(0)
	sourceOf := func(id leaderboard.BoardID) *leaderboard.Source { return &leaderboard.Source{Board: id} }
	for _, tt := range []struct {
		board leaderboard.Board
		field string
	}{
		{leaderboard.Board{ID: "x", Source: sourceOf("month")}, "source.board_id"},
		{leaderboard.Board{ID: "x", Source: sourceOf("nothing")}, "source.board_id"},
		{leaderboard.Board{ID: "x", Source: sourceOf("x")}, "source.board_id"},
		{leaderboard.Board{ID: "x", Source: sourceOf("laps"), MinScore: &low}, "min_score"},
		{leaderboard.Board{ID: "x", Retention: time.Hour, Season: leaderboard.Schedule{Kind: leaderboard.Rolling, Days: 7}}, "source"},
		{leaderboard.Board{ID: "x", Source: sourceOf("laps"), Season: leaderboard.Schedule{Kind: leaderboard.Rolling, Days: 7}}, "retention"},
		{leaderboard.Board{ID: "x", Policy: leaderboard.Sum, Source: sourceOf("laps"), Floor: &low}, "floor"},
		{leaderboard.Board{ID: "x", Source: sourceOf("laps"), TieBreakers: []leaderboard.TieBreaker{{Name: "goals"}}}, "tie_breakers[0].name"},
		{leaderboard.Board{ID: "x", Source: &leaderboard.Source{Board: "laps", Match: map[string]string{"": "y"}}}, "source.match"},
	} {
		_, err := f.CreateBoard(ctx, tt.board)
		wantField(t, err, tt.field)
	}
	otherBoard := leaderboard.Board{ID: "month", Policy: leaderboard.Best, Source: sourceOf("laps")}
	if _, err := f.CreateBoard(ctx, otherBoard); !errors.Is(err, leaderboard.ErrBoardExists) {
		t.Errorf("CreateBoard of a different board with the same id: %v, want ErrBoardExists", err)
	}

	_, err := f.Submit(ctx, f.board("month"), []leaderboard.MatchResult{points("ann", "m", 1)})
	wantField(t, err, "board_id")
	_, err = f.Retract(ctx, f.board("month"), leaderboard.ResultKey{User: "ann", Match: "m"}, nil)
	wantField(t, err, "board_id")
	wantField(t, f.DeleteBoard(ctx, "laps"), "board")

	for i := 1; i < leaderboard.MaxLinks; i++ {
		f.create(leaderboard.Board{ID: leaderboard.BoardID(fmt.Sprintf("link%d", i)), Source: sourceOf("laps")})
	}
	_, err = f.CreateBoard(ctx, leaderboard.Board{ID: "more", Source: sourceOf("laps")})
	wantField(t, err, "source.board_id")
	if err := f.DeleteBoard(ctx, "link1"); err != nil {
		t.Fatal(err)
	}
	f.create(leaderboard.Board{ID: "more", Source: sourceOf("laps")})
	for _, id := range f.board("laps").Links {
		if err := f.DeleteBoard(ctx, id); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.DeleteBoard(ctx, "laps"); err != nil {
		t.Errorf("DeleteBoard of a source whose linked boards are deleted: %v, want no error", err)
	}
}

func wantField(t *testing.T, err error, field string) {
	t.Helper()
	var fault *leaderboard.FieldError
	if !errors.As(err, &fault) || fault.Field != field {
		t.Errorf("error %v, want an error for field %s", err, field)
	}
}

func TestLinkedBoardCreatedAgainIsFilled(t *testing.T) {
	f := linkedPair(t)
	f.submit("laps", withRevision(points("ann", "m1", 7), 0, start))
	b := *f.board("month")
	f.clock.set(start.Add(time.Minute))
	if err := f.DeleteBoard(t.Context(), "month"); err != nil {
		t.Fatal(err)
	}
	f.submit("laps", withRevision(points("ann", "m2", 5), 0, start))
	f.create(b)
	if !f.board("month").Filling() {
		t.Error("the new board is not filling, want a fill in progress")
	}
	if err := f.FillLinked(t.Context()); err != nil {
		t.Fatal(err)
	}
	if f.board("month").Filling() {
		t.Error("the new board is still filling, want it filled")
	}
	f.wantList(november, "ann 12 1")
}

// The source accepts the attributes that its deleted linked board declared. CreateBoard of the
// source with the original settings still succeeds.
func TestSourceIsCreatedAgainAfterALinkIsDeleted(t *testing.T) {
	f := open(t)
	rules := leaderboard.Board{ID: "src", Policy: leaderboard.Sum, StrictSubmits: true, AcceptedAttributes: []string{"mode"}}
	f.create(rules)
	f.create(leaderboard.Board{ID: "copy", Policy: leaderboard.Sum, Source: &leaderboard.Source{Board: "src", Match: map[string]string{"kind": "final"}}})
	if err := f.DeleteBoard(t.Context(), "copy"); err != nil {
		t.Fatal(err)
	}
	b := f.create(rules)
	if !slices.Equal(b.AcceptedAttributes, []string{"mode", "kind"}) {
		t.Errorf("the source accepts %q, want mode and kind", b.AcceptedAttributes)
	}
}

// The source has a result in the new window before the window is added.
func TestWindowAddedToALinkedBoardIsFilled(t *testing.T) {
	f := linkedPair(t)
	window := func(month time.Month) leaderboard.Season {
		first := time.Date(2026, month, 1, 0, 0, 0, 0, time.UTC)
		return leaderboard.Season{ID: leaderboard.SeasonID(first.Format("200601")), Start: first, End: first.AddDate(0, 1, 0)}
	}
	f.create(leaderboard.Board{ID: "cups", Policy: leaderboard.Sum, Source: &leaderboard.Source{Board: "laps"},
		Season: leaderboard.Schedule{Kind: leaderboard.Explicit, Grace: time.Hour, Windows: []leaderboard.Season{window(10)}}})
	if err := f.FillLinked(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.submit("laps", withRevision(points("ann", "m", 7), 0, start))
	amend := func(change func(*leaderboard.Board), filling bool) {
		t.Helper()
		b, err := f.AmendBoard(t.Context(), "cups", func(b *leaderboard.Board) error { change(b); return nil })
		if err != nil || b.Filling() != filling {
			t.Fatalf("AmendBoard: filling %v, error %v; want filling %v", b.Filling(), err, filling)
		}
	}
	amend(func(b *leaderboard.Board) { b.Title = "Cups" }, false)
	amend(func(b *leaderboard.Board) { b.Season.Windows = append(b.Season.Windows, window(11)) }, true)
	if err := f.FillLinked(t.Context()); err != nil {
		t.Fatal(err)
	}
	if f.board("cups").Filling() {
		t.Error("the board is still filling, want it filled")
	}
	f.wantList(ranking.Query{Board: "cups", Season: "202611"}, "ann 7 1")
}

// A process died after it applied a result to the source. A repair or rebuild of the linked
// board copies the result.
func TestRepairFillsLinkedBoards(t *testing.T) {
	f := linkedPair(t)
	ctx := t.Context()
	verify := func(sel ranking.Selection, repair bool) error {
		_, err := f.Verify(ctx, sel, repair, nil, func(ranking.Difference) error { return nil })
		return err
	}
	total := 0
	for _, tt := range []struct {
		name  string
		call  func() error
		fills bool
	}{
		{"verify", func() error { return verify(ranking.Selection{}, false) }, false},
		{"verify and repair the source", func() error { return verify(ranking.Selection{Board: "laps"}, true) }, false},
		{"verify and repair", func() error { return verify(ranking.Selection{}, true) }, true},
		{"rebuild", func() error { _, err := f.Rebuild(ctx, ranking.Selection{Board: "month"}, nil); return err }, true},
	} {
		total++
		r := leaderboard.MatchResult{
			ResultKey: leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Board: "laps", Season: leaderboard.SeasonAll}, User: "ann", Match: leaderboard.MatchID(tt.name)},
			Score:     1, AchievedAt: start, ReceivedAt: start,
		}
		if _, err := f.store.Apply(ctx, f.board("laps"), []leaderboard.MatchResult{r}); err != nil {
			t.Fatal(err)
		}
		if err := tt.call(); err != nil {
			t.Fatal(err)
		}
		b, err := f.store.Board(ctx, "month")
		if err != nil || b.Filling() != tt.fills {
			t.Fatalf("%s: filling %v, error %v; want filling %v", tt.name, b.Filling(), err, tt.fills)
		}
		if !tt.fills {
			continue
		}
		if err := f.FillLinked(ctx); err != nil {
			t.Fatal(err)
		}
		f.wantList(november, fmt.Sprintf("ann %d 1", total))
	}
}

// meetingStore is a store whose first call of UserSeasons returns only after a second call has
// begun.
type meetingStore struct {
	leaderboard.Store
	running atomic.Int64
	met     chan struct{}
}

func (s *meetingStore) UserSeasons(ctx context.Context, user leaderboard.UserID) ([]leaderboard.SeasonKey, error) {
	if s.running.Add(1) == 2 {
		close(s.met)
	}
	select {
	case <-s.met:
	case <-time.After(30 * time.Second):
		return nil, errors.New("no second call of UserSeasons within 30 s")
	}
	return s.Store.UserSeasons(ctx, user)
}

// UserSeasons returns the places (see links.go) of a user.
func TestPlacesOfUsersAreReadConcurrently(t *testing.T) {
	store, index := embedded.Open(t)
	f := serviceOver(t, store, index)
	b := f.create(leaderboard.Board{ID: "src", Policy: leaderboard.Sum})
	f.create(leaderboard.Board{ID: "copy", Policy: leaderboard.Sum, Source: &leaderboard.Source{Board: "src"}})
	f.submit("src", points("ann", "m", 1))
	f.submit("src", points("bob", "m", 2))
	meeting := &meetingStore{Store: store, met: make(chan struct{})}
	second := serviceOver(t, meeting, index)
	corrections := []leaderboard.MatchResult{points("ann", "m", 3), points("bob", "m", 4)}
	for i := range corrections {
		corrections[i].Revision = 1
	}
	receipts, err := second.Submit(t.Context(), &b, corrections)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range receipts {
		if r.Status != leaderboard.Applied {
			t.Errorf("receipt %+v, want status APPLIED", r)
		}
	}
}
