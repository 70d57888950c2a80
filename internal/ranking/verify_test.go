package ranking_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/cache/memory"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/embedded"
)

// verify runs Verify and returns the differences as "kind user".
func (f *fixture) verify(repair bool) []string {
	f.t.Helper()
	differences := []string{}
	_, err := f.Verify(f.t.Context(), ranking.Selection{}, repair, nil, func(d ranking.Difference) error {
		differences = append(differences, fmt.Sprintf("%s %s", d.Kind, d.User))
		return nil
	})
	if err != nil {
		f.t.Fatal(err)
	}
	slices.Sort(differences)
	return slices.Compact(differences)
}

func TestVerifyRepairsTheIndex(t *testing.T) {
	f := open(t)
	f.create(sumBoard)
	for i := range 10 {
		f.submit("b", points(fmt.Sprint("u", i), "m", int64(i)))
	}
	if got := f.verify(false); len(got) != 0 {
		t.Fatalf("differences of an intact board: %v, want none", got)
	}
	want := f.list(ranking.Query{Board: "b"}, 10)
	seasonKey := leaderboard.SeasonKey{Board: "b", Season: leaderboard.SeasonAll}
	corrupt := func(user leaderboard.UserID, change func(*leaderboard.Entry)) {
		e, err := f.store.Entry(t.Context(), seasonKey, user)
		if err != nil {
			t.Fatal(err)
		}
		e.Version += 100
		change(&e)
		if err := f.index.Update(t.Context(), seasonKey, start, []leaderboard.Entry{e}); err != nil {
			t.Fatal(err)
		}
	}
	corrupt("u3", func(e *leaderboard.Entry) { e.AchievedAt = e.AchievedAt.Add(time.Hour) })
	corrupt("u4", func(e *leaderboard.Entry) { e.Hidden = true })
	corrupt("u5", func(e *leaderboard.Entry) { e.User = "extra1" })
	corrupt("u6", func(e *leaderboard.Entry) { e.User = "extra2" })
	if diff := gocmp.Diff([]string{"INDEX_SIZE ", "INDEX_WRONG u3", "INDEX_WRONG u4"}, f.verify(false)); diff != "" {
		t.Errorf("differences (-want +got):\n%s", diff)
	}
	f.verify(true)
	if got := f.verify(false); len(got) != 0 {
		t.Errorf("differences after the repair: %v, want none", got)
	}
	if diff := gocmp.Diff(want, f.list(ranking.Query{Board: "b"}, 10)); diff != "" {
		t.Errorf("the ladder after the repair (-want +got):\n%s", diff)
	}
	users, err := f.Rebuild(t.Context(), ranking.Selection{Board: "b"}, nil)
	if err != nil || users != 10 {
		t.Errorf("Rebuild = %d users, %v; want 10", users, err)
	}
	if diff := gocmp.Diff(want, f.list(ranking.Query{Board: "b"}, 10)); diff != "" {
		t.Errorf("the ladder after the rebuild (-want +got):\n%s", diff)
	}
}

// corruptStore is a store that changes entries and ladder rows by these functions. If row
// returns false, the store omits the row.
type corruptStore struct {
	leaderboard.Store
	entry map[leaderboard.UserID]func(*leaderboard.Entry)
	row   func(leaderboard.Entry) (leaderboard.Entry, bool)
}

func (s *corruptStore) Entry(ctx context.Context, seasonKey leaderboard.SeasonKey, user leaderboard.UserID) (leaderboard.Entry, error) {
	e, err := s.Store.Entry(ctx, seasonKey, user)
	if change, ok := s.entry[user]; ok {
		change(&e)
	}
	return e, err
}

func (s *corruptStore) Entries(ctx context.Context, l leaderboard.Ladder, after leaderboard.SortKey) iter.Seq2[leaderboard.Entry, error] {
	return func(yield func(leaderboard.Entry, error) bool) {
		for e, err := range s.Store.Entries(ctx, l, "") {
			if s.row != nil && err == nil {
				var ok bool
				if e, ok = s.row(e); !ok {
					continue
				}
			}
			if err == nil && e.SortKey() <= after {
				continue
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

func TestVerifyReportsWrongEntriesAndRows(t *testing.T) {
	f := open(t)
	corrupt := &corruptStore{Store: f.store}
	f = serviceOver(t, corrupt, memory.New())
	b := f.create(sumBoard)
	for i := range 5 {
		f.submit("b", points(fmt.Sprint("u", i), "m", int64(i)))
	}
	corrupt.entry = map[leaderboard.UserID]func(*leaderboard.Entry){
		"u1": func(e *leaderboard.Entry) { e.Key = b.ScorePrefix(77, start) },
	}
	if got := f.verify(false); !slices.Contains(got, "ENTRY_WRONG u1") {
		t.Errorf("differences with a wrong score: %v, want ENTRY_WRONG u1", got)
	}
	corrupt.entry = nil
	corrupt.row = func(e leaderboard.Entry) (leaderboard.Entry, bool) { return e, e.User != "u2" && e.User != "u4" }
	want := []string{"ROW_MISSING u2", "ROW_MISSING u4"}
	if diff := gocmp.Diff(want, f.verify(false)); diff != "" {
		t.Errorf("differences with missing rows (-want +got):\n%s", diff)
	}
	ranking.SetMaxUsersInPass(t, 2)
	if diff := gocmp.Diff(want, f.verify(false)); diff != "" {
		t.Errorf("differences with missing rows, in several passes (-want +got):\n%s", diff)
	}
	corrupt.row = func(e leaderboard.Entry) (leaderboard.Entry, bool) {
		if e.User == "u3" {
			e.AchievedAt = e.AchievedAt.Add(time.Hour)
		}
		return e, true
	}
	if got := f.verify(false); !slices.Contains(got, "ROW_GHOST u3") {
		t.Errorf("differences with an orphan row: %v, want ROW_GHOST u3", got)
	}
}

type unreadableEntry struct{ leaderboard.Store }

func (s unreadableEntry) Entry(ctx context.Context, key leaderboard.SeasonKey, user leaderboard.UserID) (leaderboard.Entry, error) {
	if user == "bad" {
		return leaderboard.Entry{}, errDamaged
	}
	return s.Store.Entry(ctx, key, user)
}

// Two users have no row, and the entry of one of them cannot be read.
func TestVerifyFindsMissingRowsDespiteADamagedEntry(t *testing.T) {
	f := open(t)
	f.create(sumBoard)
	for i, user := range []string{"ann", "bob", "bad"} {
		f.submit("b", points(user, "m", int64(i)))
	}
	rows := func(e leaderboard.Entry) (leaderboard.Entry, bool) { return e, e.User == "ann" }
	f = serviceOver(t, unreadableEntry{&corruptStore{Store: f.store, row: rows}}, f.index)
	if diff := gocmp.Diff([]string{"DATA_DAMAGED bad", "ROW_MISSING bob"}, f.verify(false)); diff != "" {
		t.Errorf("differences (-want +got):\n%s", diff)
	}
}

// orphanOfDamaged is a store whose OrphanRows yields the row of the user "bad", and whose
// Recount fails for this user.
type orphanOfDamaged struct{ leaderboard.Store }

func (s orphanOfDamaged) OrphanRows(ctx context.Context, key leaderboard.SeasonKey) iter.Seq2[leaderboard.OrphanRow, error] {
	return func(yield func(leaderboard.OrphanRow, error) bool) {
		e, err := s.Store.Entry(ctx, key, "bad")
		yield(leaderboard.OrphanRow{User: e.User, Key: e.SortKey()}, err)
	}
}

func (s orphanOfDamaged) Recount(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, user leaderboard.UserID) (leaderboard.Change, error) {
	if user == "bad" {
		return leaderboard.Change{}, errDamaged
	}
	return s.Store.Recount(ctx, b, season, user)
}

func TestVerifyRepairsOtherUsersDespiteAnOrphanRowOfADamagedUser(t *testing.T) {
	f := open(t)
	f.create(sumBoard)
	for i, user := range []string{"ann", "bad"} {
		f.submit("b", points(user, "m", int64(i)))
	}
	e, err := f.store.Entry(t.Context(), leaderboard.SeasonKey{Board: "b", Season: leaderboard.SeasonAll}, "ann")
	if err != nil {
		t.Fatal(err)
	}
	e.Version, e.Hidden = e.Version+100, true
	if err := f.index.Update(t.Context(), e.SeasonKey, start, []leaderboard.Entry{e}); err != nil {
		t.Fatal(err)
	}
	f = serviceOver(t, orphanOfDamaged{f.store}, f.index)
	want := []string{"INDEX_SIZE b  repaired:true", "INDEX_WRONG b ann repaired:true", "ROW_GHOST b bad repaired:false"}
	if diff := gocmp.Diff(want, f.differences(ranking.Selection{}, true)); diff != "" {
		t.Errorf("differences (-want +got):\n%s", diff)
	}
}

// busyStore is a store that calls these functions during reads, unless they are nil.
type busyStore struct {
	leaderboard.Store
	atRow       map[int]func() // at the row with this number in a scan of a ladder
	afterLadder func()         // after a scan of a ladder
	beforeRead  func()         // before a read of a ladder that begins after a sort key

	afterScan func() // after Scan has yielded all entries
}

func (s *busyStore) Scan(ctx context.Context, seasonKey leaderboard.SeasonKey, part leaderboard.Part) iter.Seq2[leaderboard.Entry, error] {
	return func(yield func(leaderboard.Entry, error) bool) {
		s.Store.Scan(ctx, seasonKey, part)(yield)
		if s.afterScan != nil {
			s.afterScan()
		}
	}
}

func (s *busyStore) Entries(ctx context.Context, l leaderboard.Ladder, after leaderboard.SortKey) iter.Seq2[leaderboard.Entry, error] {
	if after != "" {
		if s.beforeRead != nil {
			s.beforeRead()
		}
		return s.Store.Entries(ctx, l, after)
	}
	return func(yield func(leaderboard.Entry, error) bool) {
		var last leaderboard.SortKey
		for n, more := 0, true; more; n++ { // read each row separately, so that the scan sees every change
			more = false
			for e, err := range s.Store.Entries(ctx, l, last) {
				if change := s.atRow[n]; change != nil {
					change()
				}
				if !yield(e, err) {
					return
				}
				last, more = e.SortKey(), true
				break
			}
		}
		if s.afterLadder != nil {
			s.afterLadder()
		}
	}
}

// While Verify runs, users join, or move past the position of a scan.
func TestVerifyIgnoresConcurrentWrites(t *testing.T) {
	for name, changes := range map[string]func(*fixture, *busyStore){
		"a user moves up": func(f *fixture, s *busyStore) {
			s.atRow = map[int]func(){5: sync.OnceFunc(func() { f.submit("b", points("u9", "up", 200)) })}
		},
		"a user moves down": func(f *fixture, s *busyStore) {
			s.atRow = map[int]func(){5: sync.OnceFunc(func() { f.submit("b", points("u2", "down", -75)) })}
		},
		"a user moves while its row is read": func(f *fixture, s *busyStore) {
			s.atRow = map[int]func(){0: sync.OnceFunc(func() { f.submit("b", points("u0", "down", -1)) })}
		},
		"a user moves, and moves back before the check of its row": func(f *fixture, s *busyStore) {
			move := sync.OnceFunc(func() { f.submit("b", points("u0", "down", -1)) })
			s.atRow = map[int]func(){0: move}
			s.beforeRead = func() {
				down := leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Board: "b"}, User: "u0", Match: "down"}
				if _, err := f.Retract(f.t.Context(), f.board("b"), down, nil); err != nil {
					f.t.Error(err)
				}
			}
		},
		"a user moves past every scan": func(f *fixture, s *busyStore) {
			n := 0
			jump := func(by int64) func() {
				return func() {
					n++
					f.submit("b", points("u9", fmt.Sprint("jump", n), by))
				}
			}
			s.atRow, s.afterLadder = map[int]func(){5: jump(1000)}, jump(-1000)
		},
		"new users join": func(f *fixture, s *busyStore) {
			n := 0
			s.afterScan = func() {
				n++
				f.submit("b", points(fmt.Sprint("new", n), "m", 1))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t)
			busy := &busyStore{Store: f.store}
			f = serviceOver(t, busy, memory.New())
			f.create(sumBoard)
			for i := range 10 {
				f.submit("b", points(fmt.Sprint("u", i), "m", int64(100-10*i)))
			}
			changes(f, busy)
			if got := f.verify(false); len(got) != 0 {
				t.Errorf("differences: %v, want none", got)
			}
		})
	}
}

// The Voids of results, and of copies on linked boards, are less than those of their match.
func TestVerifyRepairsVoids(t *testing.T) {
	f := open(t)
	monthly := leaderboard.Schedule{Kind: leaderboard.Monthly}
	source := f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Sum, Season: monthly, Matches: true})
	f.create(leaderboard.Board{ID: "best", Policy: leaderboard.Best, Source: &leaderboard.Source{Board: "b"}})
	if err := f.FillLinked(t.Context()); err != nil {
		t.Fatal(err)
	}
	season := leaderboard.SeasonID("202611")
	for user, n := range map[string]int64{"ann": 1, "bob": 2} {
		f.submit("b", points(user, "m", 10*n))
		f.submit("b", points(user, "other", n))
	}
	key := leaderboard.MatchKey{SeasonKey: leaderboard.SeasonKey{Board: "b", Season: season}, Match: "m"}
	voidsWrong := func(repair bool) []string {
		t.Helper()
		results := []string{}
		if _, err := f.Verify(t.Context(), ranking.Selection{}, repair, nil, func(d ranking.Difference) error {
			if d.Kind == ranking.VoidsWrong {
				results = append(results, fmt.Sprintf("%s %s %v", d.Ladder.Board, d.User, d.Repaired))
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		slices.Sort(results)
		return results
	}
	setVoids := func(voids int64) {
		t.Helper()
		if _, err := f.store.SetMatch(t.Context(), &source, leaderboard.MatchState{MatchKey: key, Voids: voids, Applied: voids}); err != nil {
			t.Fatal(err)
		}
	}
	check := func(what string, repair bool, want ...string) {
		t.Helper()
		if diff := gocmp.Diff(append([]string{}, want...), voidsWrong(repair)); diff != "" {
			t.Errorf("%s: results with wrong Voids (-want +got):\n%s", what, diff)
		}
	}
	check("before a void", false)

	setVoids(1)
	check("the results lack the void", false, "b ann false", "b bob false", "best ann false", "best bob false")
	check("during the repair", true, "b ann true", "b bob true") // repairs the copies too
	check("after the repair", false)
	f.wantList(ranking.Query{Board: "b", Season: season}, "bob 2 1", "ann 1 2")
	f.wantList(ranking.Query{Board: "best"}, "bob 2 1", "ann 1 2")

	setVoids(2) // restores the match
	r := leaderboard.MatchResult{ResultKey: leaderboard.ResultKey{SeasonKey: key.SeasonKey, User: "ann", Match: "m"}, VoidOnly: true}
	bob := r
	bob.User = "bob"
	if _, err := f.store.Apply(t.Context(), &source, []leaderboard.MatchResult{r, bob}); err != nil {
		t.Fatal(err)
	}
	check("the copies on the linked board are still void", false, "best ann false", "best bob false")
	check("during the repair of the copies", true, "best ann true", "best bob true")
	check("after the repair of the copies", false)
	f.wantList(ranking.Query{Board: "b", Season: season}, "bob 22 1", "ann 11 2")
	f.wantList(ranking.Query{Board: "best"}, "bob 20 1", "ann 10 2")
	if got := f.verify(false); len(got) > 0 {
		t.Errorf("differences after the repairs: %v, want none", got)
	}
}

type usersHook struct {
	leaderboard.Store
	hook func()
}

func (s *usersHook) Users(ctx context.Context, key leaderboard.SeasonKey) iter.Seq2[leaderboard.UserID, error] {
	s.hook()
	return s.Store.Users(ctx, key)
}

func TestVerifyIgnoresConcurrentChangesOfTheBoard(t *testing.T) {
	for name, change := range map[string]func(*fixture){
		"an early end": func(f *fixture) { f.end("b", day, start.Add(-time.Minute)) },
		"divisions": func(f *fixture) {
			f.amendDivisions("b", "club", "gender")
			if err := f.FillDivisions(f.t.Context()); err != nil {
				f.t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t)
			f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Sum, Season: dailyBoard.Season, Divisions: []string{"gender"}})
			for i := range 10 {
				f.submit("b", attributedResult(i))
				f.submit("b", withTime(points(fmt.Sprint("u", i), "early", 5), start.Add(-time.Hour)))
			}
			v := serviceOver(t, &usersHook{f.store, sync.OnceFunc(func() { change(f) })}, f.index)
			if got := v.verify(false); len(got) > 0 {
				t.Errorf("differences: %v, want none", got)
			}
		})
	}
}

// interruptedBans is a store whose SetBan stores the ban, but fails before it changes entries.
// A later Recount of the user changes the user's entry.
type interruptedBans struct {
	leaderboard.Store
	ban leaderboard.Ban
}

func (s *interruptedBans) SetBan(_ context.Context, b leaderboard.Ban) ([]leaderboard.Change, error) {
	s.ban, _ = leaderboard.MergeBan(nil, b, time.Time{})
	return nil, errDied
}

func (s *interruptedBans) UserBans(_ context.Context, user leaderboard.UserID) ([]leaderboard.Ban, error) {
	if user != s.ban.User {
		return nil, nil
	}
	return []leaderboard.Ban{s.ban}, nil
}

func (s *interruptedBans) Bans(context.Context, leaderboard.BanKey) iter.Seq2[leaderboard.Ban, error] {
	return func(yield func(leaderboard.Ban, error) bool) { yield(s.ban, nil) }
}

func (s *interruptedBans) Recount(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, user leaderboard.UserID) (leaderboard.Change, error) {
	if user == s.ban.User {
		if _, err := s.Store.SetBan(ctx, s.ban); err != nil {
			return leaderboard.Change{}, err
		}
	}
	return s.Store.Recount(ctx, b, season, user)
}

func TestVerifyCompletesInterruptedBans(t *testing.T) {
	for _, rebuild := range []bool{false, true} {
		store, index := embedded.Open(t)
		interrupted := &interruptedBans{Store: store}
		f := serviceOver(t, interrupted, index)
		f.create(sumBoard)
		f.submit("b", points("ann", "m", 5))
		f.submit("b", points("bob", "m", 3))
		for _, banned := range []bool{true, false} {
			f.clock.set(f.clock.now().Add(time.Hour))
			if _, err := f.SetBan(t.Context(), leaderboard.Ban{User: "ann", Banned: banned}); !errors.Is(err, errDied) {
				t.Fatalf("SetBan: %v, want %v", err, errDied)
			}
			if got := f.verify(false); !slices.Contains(got, "ENTRY_WRONG ann") {
				t.Errorf("differences after an interrupted SetBan with Banned %v: %v, want ENTRY_WRONG ann", banned, got)
			}
			if rebuild {
				if _, err := f.Rebuild(t.Context(), ranking.Selection{}, nil); err != nil {
					t.Fatal(err)
				}
			} else {
				f.verify(true)
			}
			if got := f.verify(false); len(got) != 0 {
				t.Errorf("differences after the repair: %v, want none", got)
			}
			want := []string{"bob 3 1"}
			if !banned {
				want = []string{"ann 5 1", "bob 3 2"}
			}
			f.wantList(ranking.Query{Board: "b"}, want...)
		}
	}
}
