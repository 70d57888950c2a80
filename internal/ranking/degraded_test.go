package ranking_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/cache/memory"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/embedded"
	"github.com/open-leaderboard/leaderboard/test/faults"
)

// outage is a service whose store and index a test can make unavailable.
type outage struct {
	*fixture
	store *faults.Store
	index *faults.Index
}

// openOutage returns a service with board b: bob and cyd have 7 points, ann has 5, dan has 1.
// bob and dan are in the red team.
func openOutage(t *testing.T) outage {
	t.Helper()
	store, index := embedded.Open(t)
	f := outage{store: &faults.Store{Store: store}, index: &faults.Index{Index: index}}
	f.fixture = serviceOver(t, f.store, f.index)
	t.Cleanup(f.Service.Close) // cleanups run in reverse order, so the service closes before the store
	f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Sum, Divisions: []string{"team"}})
	for user, n := range map[string]int64{"ann": 5, "bob": 7, "cyd": 7, "dan": 1} {
		r := points(user, "m", n)
		r.AchievedAt = start.Add(-time.Hour)
		if user == "bob" || user == "dan" {
			r.Attributes = map[string]string{"team": "red"}
		}
		f.submit("b", r)
	}
	return f
}

var (
	boardB = ranking.Query{Board: "b"}
	red    = ranking.Query{Board: "b", Division: leaderboard.Division{Attribute: "team", Value: "red"}}
)

// checkRanks checks that reads have ranks and are not degraded. lines is the ladder of boardB
// in the form of fixture.list.
func (f outage) checkRanks(lines ...string) {
	f.t.Helper()
	f.wantList(boardB, lines...)
	page, err := f.Page(f.t.Context(), ranking.PageQuery{Query: boardB, Limit: 10})
	if err != nil || page.Degraded || page.AsOf.IsZero() {
		f.t.Errorf("page: %+v, %v, want a page with ranks", page, err)
	}
	user, err := f.User(f.t.Context(), boardB, "ann", 1, false)
	if err != nil || user.Degraded || user.Rank == 0 || len(user.Neighbors) < 2 {
		f.t.Errorf("user: %+v, %v, want a rank and neighbors", user, err)
	}
	stats, err := f.Stats(f.t.Context(), ranking.StatsQuery{Query: boardB, Buckets: 2})
	if err != nil || stats.Total != int64(len(lines)) {
		f.t.Errorf("stats: %+v, %v, want %d users", stats, err, len(lines))
	}
}

// checkDegraded checks answers without the index: scores in standing order, no ranks, no
// total, and Degraded set.
func (f outage) checkDegraded() {
	f.t.Helper()
	check := func(what string, a ranking.About, lines []ranking.Line, want ...string) {
		f.t.Helper()
		got := make([]string, len(lines))
		for i, l := range lines {
			got[i] = fmt.Sprintf("%s %d", l.User, l.Score)
			if l.Rank != 0 {
				f.t.Errorf("%s: %s has rank %d, want none", what, l.User, l.Rank)
			}
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			f.t.Errorf("%s (-want +got):\n%s", what, diff)
		}
		if !a.Degraded || a.Total != 0 || !a.AsOf.Equal(f.clock.now()) || a.Season.ID != leaderboard.SeasonAll {
			f.t.Errorf("%s: %+v, want Degraded, AsOf now, Season.ID %s and no Total", what, a, leaderboard.SeasonAll)
		}
	}
	ctx := f.t.Context()
	pq := ranking.PageQuery{Query: boardB, Limit: 3}
	firstPage, err := f.Page(ctx, pq)
	if err != nil {
		f.t.Fatal(err)
	}
	check("first page", firstPage.About, firstPage.Lines, "bob 7", "cyd 7", "ann 5")
	pq.Token = firstPage.Next
	secondPage, err := f.Page(ctx, pq)
	if err != nil || secondPage.Next != "" {
		f.t.Fatalf("second page: %+v, %v, want the last page", secondPage, err)
	}
	check("second page", secondPage.About, secondPage.Lines, "dan 1")
	lastPage, err := f.Page(ctx, ranking.PageQuery{Query: red, Limit: 2})
	if err != nil || lastPage.Next != "" {
		f.t.Fatalf("a page that ends at the ladder's end: %+v, %v, want no next page", lastPage, err)
	}
	check("a division", lastPage.About, lastPage.Lines, "bob 7", "dan 1")

	user, err := f.User(ctx, red, "dan", 4, false)
	if err != nil || user.Percentile != 0 || user.Neighbors != nil {
		f.t.Errorf("user: %+v, %v, want no percentile and no neighbors", user, err)
	}
	check("user", user.About, []ranking.Line{user.Line}, "dan 1")
	if _, err := f.User(ctx, red, "ann", 4, false); !errors.Is(err, leaderboard.ErrEntryNotFound) {
		f.t.Errorf("a user outside the division: %v, want ErrEntryNotFound", err)
	}
	lookup, err := f.Lookup(ctx, boardB, []leaderboard.UserID{"dan", "eve", "cyd", "bob"})
	if err != nil {
		f.t.Fatal(err)
	}
	check("lookup", lookup.About, lookup.Lines, "bob 7", "cyd 7", "dan 1")
	if diff := gocmp.Diff([]int64{1, 1, 3}, lookup.ListRanks); diff != "" {
		f.t.Errorf("ListRanks (-want +got):\n%s", diff)
	}
	if diff := gocmp.Diff([]leaderboard.UserID{"eve"}, lookup.Missing); diff != "" {
		f.t.Errorf("Missing (-want +got):\n%s", diff)
	}
	everywhere, err := f.UserScores(ctx, "ann", leaderboard.Competition, nil)
	if err != nil || len(everywhere) != 1 {
		f.t.Fatalf("scores of a user: %+v, %v, want one", everywhere, err)
	}
	check("scores of a user", everywhere[0].About, []ranking.Line{everywhere[0].Line}, "ann 5")
	if seasons := f.seasons("b"); len(seasons) != 1 || seasons[0].Total != nil {
		f.t.Errorf("seasons: %+v, want one season without a total", seasons)
	}
	if _, err := f.Stats(ctx, ranking.StatsQuery{Query: boardB}); !errors.Is(err, leaderboard.ErrRankUnavailable) {
		f.t.Errorf("stats: %v, want ErrRankUnavailable", err)
	}
	if _, err := f.Page(ctx, ranking.PageQuery{Query: boardB, Limit: 1, Start: 2}); !errors.Is(err, leaderboard.ErrRankUnavailable) {
		f.t.Errorf("a page from position 2: %v, want ErrRankUnavailable", err)
	}
	if _, err := f.Page(ctx, ranking.PageQuery{Query: red, Limit: 3, Token: firstPage.Next}); !errors.Is(err, leaderboard.ErrInvalid) {
		f.t.Errorf("a token of another ladder: %v, want ErrInvalid", err)
	}
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	var watched *ranking.WatchedPage
	err = f.Watch(watching, ranking.PageQuery{Query: boardB, Limit: 2}, func(p *ranking.WatchedPage) error {
		watched = p
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		f.t.Errorf("Watch = %v, want %v", err, context.Canceled)
	}
	check("watch", watched.About, watched.Lines, "bob 7", "cyd 7")
}

func TestReadsDegradeWithoutTheIndex(t *testing.T) {
	for name, mode := range map[string]faults.Mode{"the server refuses": faults.Refuse, "the server hangs": faults.Hang} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := openOutage(t)
				f.checkRanks("bob 7 1", "cyd 7 1", "ann 5 3", "dan 1 4")
				f.clock.set(start.Add(time.Minute))
				f.index.Set(mode)
				f.checkDegraded()
				// The circuit breaker is open, so reads do not wait for the index.
				startedAt := time.Now()
				if _, err := f.User(t.Context(), boardB, "ann", 4, false); err != nil {
					t.Error(err)
				}
				if elapsed := time.Since(startedAt); elapsed != 0 {
					t.Errorf("a read took %v, want no delay", elapsed)
				}
				f.index.Set(faults.Up)
				time.Sleep(time.Minute)
				f.checkRanks("bob 7 1", "cyd 7 1", "ann 5 3", "dan 1 4")
			})
		})
	}
}

// A result is in the store, but the consumer has not updated the index yet. An answer from the store
// shows the result. Later answers must not show the older score of the index.
func TestAnAnswerWithARankIsNotOlderThanOneWithoutRanks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openOutage(t)
		f.checkRanks("bob 7 1", "cyd 7 1", "ann 5 3", "dan 1 4")
		read := func(user leaderboard.UserID) string {
			page, err := f.User(t.Context(), boardB, user, 0, false)
			if err != nil {
				return fmt.Sprint(err)
			}
			return fmt.Sprintf("%d, degraded %v", page.Score, page.Degraded)
		}
		check := func(want string) {
			t.Helper()
			for range 2 {
				if got := read("ann"); got != want {
					t.Errorf("ann has score %s, want %s", got, want)
				}
			}
		}
		r := points("ann", "m2", 3)
		r.Board, r.Season, r.AchievedAt, r.ReceivedAt = "b", leaderboard.SeasonAll, start, start
		report, err := f.store.Store.Apply(t.Context(), f.board("b"), []leaderboard.MatchResult{r})
		if err != nil {
			t.Fatal(err)
		}
		check("5, degraded false")
		f.index.Set(faults.Refuse)
		check("8, degraded true")
		f.index.Set(faults.Up)
		time.Sleep(time.Minute) // the circuit breaker closes; f.clock does not advance
		check("8, degraded true")
		e := report.Changes[0].After
		if err := f.index.Index.Update(t.Context(), e.SeasonKey, start, []leaderboard.Entry{e}); err != nil {
			t.Fatal(err)
		}
		check("8, degraded false")
	})
}

// unsyncedIndex is an index whose server hangs. Page sends no request, and fails at once.
type unsyncedIndex struct{ leaderboard.Index }

func (unsyncedIndex) Page(context.Context, leaderboard.Ladder, int64, int, ...leaderboard.Method) ([]leaderboard.Standing, leaderboard.View, error) {
	return nil, leaderboard.View{}, leaderboard.ErrRankUnavailable
}

func (unsyncedIndex) Loaded(ctx context.Context, _ leaderboard.SeasonKey) (bool, error) {
	<-ctx.Done()
	return false, fmt.Errorf("%w: %w", leaderboard.ErrRankUnavailable, ctx.Err())
}

func TestReadsDoNotWaitForALoadOnASilentIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openOutage(t)
		g := serviceOver(t, f.store, unsyncedIndex{f.index})
		read := func() time.Duration {
			startedAt := time.Now()
			page, err := g.Page(t.Context(), ranking.PageQuery{Query: boardB, Limit: 2})
			if err != nil || len(page.Lines) != 2 || !page.Degraded {
				t.Errorf("page: %+v, %v, want two lines of a degraded page", page, err)
			}
			return time.Since(startedAt)
		}
		if took := read(); took != 500*time.Millisecond {
			t.Errorf("the first read took %v, want 500ms", took)
		}
		for range 3 {
			if took := read(); took != 0 {
				t.Errorf("a read during the cooldown took %v, want no delay", took)
			}
			time.Sleep(time.Second + time.Millisecond)
			if took := read(); took != 250*time.Millisecond {
				t.Errorf("the read that tests the index took %v, want 250ms", took)
			}
		}
		g.Service.Close()
	})
}

type countedIndex struct {
	leaderboard.Index
	calls atomic.Int64
}

func (x *countedIndex) Page(ctx context.Context, l leaderboard.Ladder, position int64, n int, methods ...leaderboard.Method) ([]leaderboard.Standing, leaderboard.View, error) {
	x.calls.Add(1)
	return x.Index.Page(ctx, l, position, n, methods...)
}

func (x *countedIndex) Loaded(ctx context.Context, key leaderboard.SeasonKey) (bool, error) {
	x.calls.Add(1)
	return x.Index.Loaded(ctx, key)
}

func TestMostReadsDoNotCallAnIndexThatRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openOutage(t)
		counted := &countedIndex{Index: f.index}
		g := serviceOver(t, f.store, counted)
		read := func(degraded bool) {
			t.Helper()
			page, err := g.Page(t.Context(), ranking.PageQuery{Query: boardB, Limit: 2})
			if err != nil || len(page.Lines) != 2 || page.Degraded != degraded {
				t.Errorf("page: %+v, %v, want two lines, degraded %v", page, err, degraded)
			}
		}
		f.index.Set(faults.Refuse)
		for range 1000 {
			read(true)
		}
		if n := counted.calls.Load(); n > 30 {
			t.Errorf("1,000 reads made %d calls of the index, want 30 at most", n)
		}
		f.index.Set(faults.Up)
		time.Sleep(2 * time.Second)
		read(false)
		g.Service.Close()
	})
}

// slowLadders is a store in which a read of a ladder takes a second.
type slowLadders struct {
	leaderboard.Store
	reads atomic.Int64
}

func (s *slowLadders) Entries(ctx context.Context, l leaderboard.Ladder, after leaderboard.SortKey) iter.Seq2[leaderboard.Entry, error] {
	return func(yield func(leaderboard.Entry, error) bool) {
		s.reads.Add(1)
		all, err := collect(s.Store.Entries(ctx, l, after))
		time.Sleep(time.Second)
		for _, e := range all {
			if !yield(e, nil) {
				return
			}
		}
		if err != nil {
			yield(leaderboard.Entry{}, err)
		}
	}
}

func collect(entries iter.Seq2[leaderboard.Entry, error]) (all []leaderboard.Entry, err error) {
	for e, err := range entries {
		if err != nil {
			return all, err
		}
		all = append(all, e)
	}
	return all, nil
}

// A reader that starts after a write does not share a read that began before the write.
func TestReadersShareAPageWithoutTheIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openOutage(t)
		slow := &slowLadders{Store: f.store}
		g := serviceOver(t, slow, f.index)
		f.index.Set(faults.Refuse)
		var readers sync.WaitGroup
		for range 100 {
			readers.Go(func() {
				page, err := g.Page(t.Context(), ranking.PageQuery{Query: boardB, Limit: 2})
				if err != nil || len(page.Lines) != 2 || page.Next == "" {
					t.Errorf("page: %+v, %v, want two lines and a next page", page, err)
				}
			})
		}
		synctest.Wait()
		f.submit("b", points("ann", "later", 90))
		page, err := g.Page(t.Context(), ranking.PageQuery{Query: boardB, Limit: 2})
		if err != nil || len(page.Lines) != 2 || page.Lines[0].User != "ann" {
			t.Errorf("page after a write: %+v, %v, want ann first", page, err)
		}
		readers.Wait()
		if n := slow.reads.Load(); n < 2 || n > 4 {
			t.Errorf("the store read a ladder %d times for 101 readers, want 2 to 4", n)
		}
		g.Service.Close()
	})
}

// userReads is a store that counts the calls of HasUsers and Users.
type userReads struct {
	leaderboard.Store
	delay time.Duration
	reads atomic.Int64
}

func (s *userReads) HasUsers(ctx context.Context, key leaderboard.SeasonKey) (bool, error) {
	s.reads.Add(1)
	time.Sleep(s.delay)
	return s.Store.HasUsers(ctx, key)
}

func (s *userReads) Users(ctx context.Context, key leaderboard.SeasonKey) iter.Seq2[leaderboard.UserID, error] {
	s.reads.Add(1)
	return s.Store.Users(ctx, key)
}

func TestReadersShareTheSearchForUsersWithoutTheIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openOutage(t)
		counted := &userReads{Store: f.store, delay: time.Second}
		g := serviceOver(t, counted, f.index)
		f.index.Set(faults.Refuse)
		var readers sync.WaitGroup
		read := func() {
			if user, err := g.User(t.Context(), boardB, "ann", 1, false); err != nil || !user.Degraded || user.Score != 5 {
				t.Errorf("user: %+v, %v, want a score of 5 without a rank", user, err)
			}
		}
		for range 100 {
			readers.Go(read)
		}
		readers.Wait()
		// The first reader starts a read. Readers that come during this read share a second read.
		if n := counted.reads.Load(); n < 1 || n > 2 {
			t.Errorf("100 concurrent readers made %d reads of users, want 1 or 2", n)
		}
		counted.reads.Store(0)
		for range 100 {
			read()
		}
		if n := counted.reads.Load(); n != 0 {
			t.Errorf("100 later readers made %d reads of users, want 0", n)
		}
		g.Service.Close()
	})
}

func TestAReaderLeavesTheSearchForUsers(t *testing.T) {
	f := openOutage(t)
	slow := &userReads{Store: f.store, delay: 50 * time.Millisecond}
	g := serviceOver(t, slow, f.index)
	f.index.Set(faults.Refuse)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := g.User(ctx, boardB, "ann", 1, false); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("User after the timeout of its caller: %v, want %v", err, context.DeadlineExceeded)
	}
	time.Sleep(2 * slow.delay) // the shared read ends now; User has returned, so its variables must not change
	if n := slow.reads.Load(); n != 1 {
		t.Errorf("the store made %d reads of users, want 1", n)
	}
}

// movingStore is a store that yields the first entry of a ladder again at the end, as if the
// entry moved during the read.
type movingStore struct{ leaderboard.Store }

func (s movingStore) Entries(ctx context.Context, l leaderboard.Ladder, after leaderboard.SortKey) iter.Seq2[leaderboard.Entry, error] {
	return func(yield func(leaderboard.Entry, error) bool) {
		var first *leaderboard.Entry
		for e, err := range s.Store.Entries(ctx, l, after) {
			if !yield(e, err) {
				return
			}
			if first == nil {
				first = &e
			}
		}
		if first != nil {
			first.Key = first.Key[:len(first.Key)-1] + "\xff"
			yield(*first, nil)
		}
	}
}

func TestAPageWithoutTheIndexListsEachUserOnce(t *testing.T) {
	f := open(t)
	f.create(sumBoard)
	f.submit("b", points("ann", "m", 5))
	f.submit("b", points("bob", "m", 3))
	index := &faults.Index{Index: f.index}
	index.Set(faults.Refuse)
	s := ranking.New(movingStore{f.store}, index, ranking.Options{Now: f.clock.now})
	page, err := s.Page(t.Context(), ranking.PageQuery{Query: ranking.Query{Board: "b"}, Limit: 10})
	if err != nil || len(page.Lines) != 2 || page.Lines[0].User != "ann" || page.Lines[1].User != "bob" {
		t.Errorf("page %+v, %v; want ann and bob", page.Lines, err)
	}
}

func TestWritesSucceedWithoutTheIndex(t *testing.T) {
	f := openOutage(t)
	f.index.Set(faults.Refuse)
	got := f.submit("b", points("ann", "m2", 9))
	if got.Score != 14 || got.Rank != 0 {
		t.Errorf("submit: %+v, want score 14 without ranks", got)
	}
	retracted, err := f.Retract(t.Context(), f.board("b"), leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Board: "b"}, User: "bob", Match: "m"}, nil)
	if err != nil || retracted.Status != leaderboard.Applied || retracted.HasScore {
		t.Errorf("retract: %+v, %v, want applied and no score", retracted, err)
	}
	if _, err := f.SetBan(t.Context(), leaderboard.Ban{User: "cyd", Banned: true, Reason: "aimbot"}); err != nil {
		t.Error(err)
	}
	f.index.Set(faults.Up)
	f.checkRanks("ann 14 1", "dan 1 2")
}

// An unavailable index keeps the board's ranks. If the board were deleted, a later board with
// the same id would have these ranks.
func TestBoardIsNotDeletedWithoutTheIndex(t *testing.T) {
	f := openOutage(t)
	f.index.Set(faults.Refuse)
	if err := f.DeleteBoard(t.Context(), "b"); !errors.Is(err, leaderboard.ErrRankUnavailable) {
		t.Errorf("DeleteBoard without the index: %v, want ErrRankUnavailable", err)
	}
	f.index.Set(faults.Up)
	f.checkRanks("bob 7 1", "cyd 7 1", "ann 5 3", "dan 1 4")
	if err := f.DeleteBoard(t.Context(), "b"); err != nil {
		t.Error(err)
	}
	f.create(sumBoard)
	f.wantList(boardB)
}

func TestSeasonIsSealedWithoutTheIndex(t *testing.T) {
	f := openOutage(t)
	f.create(leaderboard.Board{ID: "d", Policy: leaderboard.Sum, Season: leaderboard.Schedule{Kind: leaderboard.Daily}})
	f.submit("d", points("ann", "m", 5))
	f.index.Set(faults.Refuse)
	f.clock.set(start.Add(72 * time.Hour))
	if err := f.Seal(t.Context(), "d", "20261120"); err != nil {
		t.Fatal(err)
	}
	f.wantList(ranking.Query{Board: "d", Season: "20261120"}, "ann 5 1")
}

func TestReadsOfRanksSucceedWithoutTheStore(t *testing.T) {
	for name, mode := range map[string]faults.Mode{"the server refuses": faults.Refuse, "the server hangs": faults.Hang} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := openOutage(t)
				f.store.Set(mode)
				f.clock.set(start.Add(time.Hour)) // the cached board has expired
				f.checkRanks("bob 7 1", "cyd 7 1", "ann 5 3", "dan 1 4")
				page, err := f.Page(t.Context(), ranking.PageQuery{Query: red, Limit: 10})
				if err != nil || !page.AsOf.Equal(start) || page.Degraded {
					t.Errorf("page: %+v, %v; want a page with ranks as of %v", page, err, start)
				}
				startedAt := time.Now()
				if lookup, err := f.Lookup(t.Context(), boardB, []leaderboard.UserID{"dan", "ann"}); err != nil || len(lookup.Lines) != 2 || !lookup.AsOf.Equal(start) {
					t.Errorf("lookup: %+v, %v, want two users as of %v", lookup, err, start)
				}
				if elapsed := time.Since(startedAt); elapsed != 0 {
					t.Errorf("a read during the cooldown took %v, want no delay", elapsed)
				}
				withTimeout := func() (context.Context, context.CancelFunc) { return context.WithTimeout(t.Context(), 10*time.Second) }
				for name, call := range map[string]func(context.Context) error{
					"submit": func(ctx context.Context) error {
						_, err := f.Submit(ctx, f.board("b"), []leaderboard.MatchResult{points("ann", "m9", 1)})
						return err
					},
					"retract": func(ctx context.Context) error {
						_, err := f.Retract(ctx, f.board("b"), leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Board: "b"}, User: "ann", Match: "m"}, nil)
						return err
					},
					"ban": func(ctx context.Context) error {
						_, err := f.SetBan(ctx, leaderboard.Ban{User: "ann", Banned: true, Reason: ""})
						return err
					},
					"seal": func(ctx context.Context) error { return f.Sweep(ctx) },
					"details": func(ctx context.Context) error {
						_, err := f.User(ctx, boardB, "ann", 0, true)
						return err
					},
					"an unknown board": func(ctx context.Context) error { _, err := f.Board(ctx, "other"); return err },
					"scores of a user": func(ctx context.Context) error {
						_, err := f.UserScores(ctx, "ann", leaderboard.Competition, nil)
						return err
					},
					"the status of a result": func(ctx context.Context) error {
						_, err := f.Result(ctx, f.board("b"), leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Board: "b"}, User: "ann", Match: "m"}, nil)
						return err
					},
					"the list of boards": func(ctx context.Context) error { _, err := f.Boards(ctx); return err },
				} {
					ctx, cancel := withTimeout()
					if err := call(ctx); !errors.Is(err, leaderboard.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("%s without the store: %v, want ErrUnavailable or a timeout", name, err)
					}
					cancel()
				}
				f.store.Set(faults.Up)
				f.clock.set(start.Add(2 * time.Hour))
				f.submit("b", points("ann", "m2", 9))
				f.checkRanks("ann 14 1", "bob 7 2", "cyd 7 2", "dan 1 4")
			})
		})
	}
}

func TestReadsFailWithoutStoreAndIndex(t *testing.T) {
	f := openOutage(t)
	f.store.Set(faults.Refuse)
	f.index.Set(faults.Refuse)
	if page, err := f.Page(t.Context(), ranking.PageQuery{Query: boardB, Limit: 10}); !errors.Is(err, leaderboard.ErrUnavailable) {
		t.Errorf("page: %+v, %v, want ErrUnavailable", page, err)
	}
	if user, err := f.User(t.Context(), boardB, "ann", 1, false); !errors.Is(err, leaderboard.ErrUnavailable) {
		t.Errorf("user: %+v, %v, want ErrUnavailable", user, err)
	}
	if _, err := f.Lookup(t.Context(), boardB, []leaderboard.UserID{"ann"}); !errors.Is(err, leaderboard.ErrUnavailable) {
		t.Errorf("lookup: %v, want ErrUnavailable", err)
	}
}

type slowIndex struct {
	leaderboard.Index
	mayFill chan struct{} // Restore waits until it is closed
}

func (x slowIndex) Restore(ctx context.Context, b *leaderboard.Board, s leaderboard.SeasonKey, at time.Time, scan func(leaderboard.Part) iter.Seq2[leaderboard.Entry, error]) error {
	select {
	case <-x.mayFill:
		return x.Index.Restore(ctx, b, s, at, scan)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestReadsDegradeWhileASeasonIsLoaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openOutage(t)
		mayFill := make(chan struct{})
		f.fixture = serviceOver(t, f.store, slowIndex{memory.New(), mayFill})
		t.Cleanup(f.Service.Close)
		read := func() (bool, time.Duration) {
			startedAt := time.Now()
			page, err := f.Page(t.Context(), ranking.PageQuery{Query: boardB, Limit: 2})
			if err != nil || len(page.Lines) != 2 || page.Degraded != (page.Lines[0].Rank == 0) {
				t.Errorf("page: %+v, %v, want two lines, with ranks unless the page is degraded", page, err)
			}
			return page.Degraded, time.Since(startedAt)
		}
		if degraded, elapsed := read(); !degraded || elapsed == 0 || elapsed > 6*time.Second {
			t.Errorf("first read: degraded %v after %v, want true within 6 s", degraded, elapsed)
		}
		if degraded, elapsed := read(); !degraded || elapsed != 0 {
			t.Errorf("later read during the load: degraded %v after %v, want true without delay", degraded, elapsed)
		}
		before := runtime.NumGoroutine()
		for range 100 {
			read()
		}
		if n := runtime.NumGoroutine() - before; n > 10 {
			t.Errorf("100 answered reads left %d goroutines, want at most 10", n)
		}
		close(mayFill)
		synctest.Wait()
		if degraded, _ := read(); degraded {
			t.Error("a read after the load is degraded, want ranks")
		}
	})
}

func TestSweepLoadsALostSeason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openOutage(t)
		seasonKey := leaderboard.SeasonKey{Board: "b", Season: leaderboard.SeasonAll}
		f.checkRanks("bob 7 1", "cyd 7 1", "ann 5 3", "dan 1 4")
		if err := f.index.Drop(t.Context(), seasonKey); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { f.SweepEvery(ctx, time.Hour); close(done) }()
		synctest.Wait()
		if loaded, err := f.index.Loaded(t.Context(), seasonKey); err != nil || !loaded {
			t.Errorf("Loaded after a sweep = %v, %v, want true", loaded, err)
		}
		cancel()
		<-done
	})
}
