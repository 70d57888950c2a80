package ranking_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/cache/memory"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/embedded"
)

// regionStore is the store of a region. Regions share the stored data. Each region has its own
// index, and a list of the changes that this index may lack.
type regionStore struct {
	leaderboard.Store
	all []*regionStore // the regions that list each change made through this store

	mu      sync.Mutex
	changes []leaderboard.RankChange
}

func (s *regionStore) listed() []leaderboard.RankChange {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.changes)
}

func (s *regionStore) add(kind string, c leaderboard.RankChange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.ID = fmt.Sprint(kind, len(s.changes))
	s.changes = append(s.changes, c)
}

func (s *regionStore) announce(user leaderboard.UserID, seasons ...leaderboard.SeasonKey) {
	for _, r := range s.all {
		r.add("user", leaderboard.RankChange{User: user, Seasons: seasons})
	}
}

func (s *regionStore) SetBan(ctx context.Context, b leaderboard.Ban) ([]leaderboard.Change, error) {
	changes, err := s.Store.SetBan(ctx, b)
	s.announce(b.User, seasonsOf(changes)...)
	return changes, err
}

func (s *regionStore) Erase(ctx context.Context, user leaderboard.UserID, at time.Time) ([]leaderboard.Change, error) {
	changes, err := s.Store.Erase(ctx, user, at)
	s.announce(user, seasonsOf(changes)...)
	return changes, err
}

func seasonsOf(changes []leaderboard.Change) (keys []leaderboard.SeasonKey) {
	for i := range changes {
		keys = append(keys, changes[i].After.SeasonKey)
	}
	return keys
}

func (s *regionStore) DeleteBoard(ctx context.Context, id leaderboard.BoardID, at time.Time) error {
	err := s.Store.DeleteBoard(ctx, id, at)
	s.announce("", leaderboard.SeasonKey{Board: id, Season: leaderboard.SeasonAll})
	return err
}

func (s *regionStore) StartRecount(ctx context.Context, b *leaderboard.Board) ([]leaderboard.SeasonID, error) {
	seasons, err := s.Store.StartRecount(ctx, b)
	for _, r := range s.all {
		r.add("divisions", leaderboard.RankChange{Board: b.ID})
	}
	return seasons, err
}

func (s *regionStore) RankChanges(context.Context) iter.Seq2[leaderboard.RankChange, error] {
	return func(yield func(leaderboard.RankChange, error) bool) {
		for _, c := range s.listed() {
			if !yield(c, nil) {
				return
			}
		}
	}
}

func (s *regionStore) FinishRankChange(ctx context.Context, c leaderboard.RankChange, update func([]leaderboard.Entry) error) error {
	var entries []leaderboard.Entry
	for _, key := range c.Seasons {
		if c.User == "" {
			break
		}
		e, err := s.Entry(ctx, key, c.User)
		if errors.Is(err, leaderboard.ErrEntryNotFound) {
			e, err = leaderboard.Entry{SeasonKey: key, User: c.User, Version: 1 << 40}, nil
		}
		if err != nil {
			return err
		}
		entries = append(entries, e)
	}
	if err := update(entries); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes = slices.DeleteFunc(s.changes, func(listed leaderboard.RankChange) bool { return listed.ID == c.ID })
	return nil
}

// laggingIndex is an index that lacks updates while lags is true.
type laggingIndex struct {
	leaderboard.Index
	lags bool
}

func (x *laggingIndex) Synced(...leaderboard.SeasonKey) bool { return !x.lags }

func TestChangesOfRanksReachEveryRegion(t *testing.T) {
	store, _ := embedded.Open(t)
	otherStore := &regionStore{Store: store}
	localStore := &regionStore{Store: store, all: []*regionStore{otherStore}}
	index := &laggingIndex{Index: memory.New()}
	localRegion, otherRegion := serviceOver(t, localStore, memory.New()), serviceOver(t, otherStore, index)
	localRegion.create(sumBoard)
	localRegion.submit("b", points("ann", "m", 5))
	localRegion.submit("b", points("bob", "m", 3))
	query := ranking.Query{Board: "b"}
	otherRegion.wantList(query, "ann 5 1", "bob 3 2")
	finish := func() {
		t.Helper()
		if err := otherRegion.FinishRankChanges(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	setBan := func(banned bool) {
		t.Helper()
		if _, err := localRegion.SetBan(t.Context(), leaderboard.Ban{User: "ann", Banned: banned}); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		change        func()
		before, after []string // the ladder of otherRegion before and after finish
	}{
		{func() { setBan(true) }, []string{"ann 5 1", "bob 3 2"}, []string{"bob 3 1"}},
		{func() { setBan(false) }, []string{"bob 3 1"}, []string{"ann 5 1", "bob 3 2"}},
		{func() {
			if err := localRegion.Erase(t.Context(), "ann"); err != nil {
				t.Fatal(err)
			}
		}, []string{"ann 5 1", "bob 3 2"}, []string{"bob 3 1"}},
		{func() {
			if err := localRegion.DeleteBoard(t.Context(), "b"); err != nil {
				t.Fatal(err)
			}
			localRegion.clock.set(start.Add(time.Hour))
			otherRegion.clock.set(start.Add(time.Hour))
			localRegion.create(sumBoard)
			localRegion.submit("b", points("cat", "m", 1))
		}, []string{"bob 3 1"}, []string{"cat 1 1"}},
	} {
		step.change()
		otherRegion.wantList(query, step.before...)
		index.lags = true
		finish()
		if len(otherStore.listed()) == 0 {
			t.Error("while the index lacks updates, the list of changes is empty; want the change")
		}
		index.lags = false
		finish()
		otherRegion.wantList(query, step.after...)
		if len(otherStore.listed()) > 0 {
			t.Errorf("changes after FinishRankChanges: %+v, want none", otherStore.listed())
		}
	}
}

func TestAnErasureDropsAnEmptySeasonInEveryRegion(t *testing.T) {
	store, _ := embedded.Open(t)
	otherStore := &regionStore{Store: store}
	localStore := &regionStore{Store: store, all: []*regionStore{otherStore}}
	localRegion, otherRegion := serviceOver(t, localStore, memory.New()), serviceOver(t, otherStore, memory.New())
	localRegion.create(sumBoard)
	localRegion.submit("b", points("ann", "m", 5))
	otherRegion.wantList(ranking.Query{Board: "b"}, "ann 5 1")
	if err := localRegion.Erase(t.Context(), "ann"); err != nil {
		t.Fatal(err)
	}
	if err := otherRegion.FinishRankChanges(t.Context()); err != nil {
		t.Fatal(err)
	}
	key := leaderboard.SeasonKey{Board: "b", Season: leaderboard.SeasonAll}
	if loaded, err := otherRegion.index.Loaded(t.Context(), key); loaded || err != nil {
		t.Errorf("the empty season is loaded in the other region's index: %v, error %v; want false", loaded, err)
	}
}

func TestAChangeOfDivisionsReachesEveryRegion(t *testing.T) {
	store, _ := embedded.Open(t)
	otherStore := &regionStore{Store: store}
	localStore := &regionStore{Store: store, all: []*regionStore{otherStore}}
	index := &laggingIndex{Index: memory.New()}
	localRegion, otherRegion := serviceOver(t, localStore, memory.New()), serviceOver(t, otherStore, index)
	localRegion.create(leaderboard.Board{ID: "b", Policy: leaderboard.Sum, AcceptedAttributes: []string{"club"}})
	for i, user := range []string{"ann", "bob", "cat"} {
		r := points(user, "m", int64(9-i))
		r.Attributes = map[string]string{"club": []string{"x", "y", "x"}[i]}
		localRegion.submit("b", r)
	}
	otherRegion.wantList(ranking.Query{Board: "b"}, "ann 9 1", "bob 8 2", "cat 7 3")
	localRegion.amendDivisions("b", "club")
	if err := localRegion.FillDivisions(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, lags := range []bool{true, false} {
		index.lags = lags
		if err := errors.Join(otherRegion.FinishRankChanges(t.Context()), otherRegion.FillDivisions(t.Context())); err != nil {
			t.Fatal(err)
		}
		if len(otherStore.listed()) > 0 != lags {
			t.Errorf("lags is %v, and the listed changes are %+v; want changes only while the index lags", lags, otherStore.listed())
		}
	}
	otherRegion.clock.set(start.Add(time.Minute))
	otherRegion.wantList(ranking.Query{Board: "b", Division: leaderboard.Division{Attribute: "club", Value: "x"}}, "ann 9 1", "cat 7 2")
	otherRegion.wantList(ranking.Query{Board: "b", Division: leaderboard.Division{Attribute: "club", Value: "y"}}, "bob 8 1")
}

// The other region finishes the change before its next sweep, an hour later.
func TestAChangeOfDivisionsReachesEveryRegionSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, _ := embedded.Open(t)
		otherStore := &regionStore{Store: store}
		localStore := &regionStore{Store: store, all: []*regionStore{otherStore}}
		localRegion := serviceOver(t, localStore, memory.New())
		otherRegion := ranking.New(otherStore, memory.New(), ranking.Options{})
		localRegion.create(leaderboard.Board{ID: "b", Policy: leaderboard.Sum, AcceptedAttributes: []string{"club"}})
		localRegion.submit("b", points("ann", "m", 9))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { otherRegion.SweepEvery(ctx, time.Hour); close(done) }()
		synctest.Wait()
		localRegion.amendDivisions("b", "club")
		if err := localRegion.FillDivisions(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(otherStore.listed()) != 1 {
			t.Errorf("changes for the other region: %+v, want one", otherStore.listed())
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if len(otherStore.listed()) > 0 {
			t.Errorf("changes for the other region after 11 seconds: %+v, want none", otherStore.listed())
		}
		cancel()
		<-done
		otherRegion.Close()
	})
}

type amendCalls struct {
	leaderboard.Store
	n      int
	during func() // runs at the start of the first Amend
}

func (s *amendCalls) Amend(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, am leaderboard.Amendment, users []leaderboard.UserID) (leaderboard.SeasonRecord, error) {
	if s.n++; s.n == 1 {
		s.during()
	}
	return s.Store.Amend(ctx, b, season, am, users)
}

// A process dies after it has set a ban. In the other region, only one of two processes amends
// the sealed season.
func TestOneProcessAmendsASealedSeasonAfterABan(t *testing.T) {
	store, _ := embedded.Open(t)
	amends := &amendCalls{Store: store}
	otherStore := &regionStore{Store: amends}
	localStore := &regionStore{Store: store, all: []*regionStore{otherStore}}
	localRegion, first, second := serviceOver(t, localStore, memory.New()), serviceOver(t, otherStore, memory.New()), serviceOver(t, otherStore, memory.New())
	localRegion.create(dailyBoard)
	localRegion.submit(dailyBoard.ID, points("ann", "m", 5))
	localRegion.submit(dailyBoard.ID, points("bob", "m", 3))
	localRegion.clock.set(start.AddDate(0, 0, 1))
	localRegion.sweep()
	for _, f := range []*fixture{first, second} {
		f.clock.set(localRegion.clock.now().Add(time.Hour))
	}
	if _, err := localStore.SetBan(t.Context(), leaderboard.Ban{User: "ann", Banned: true, At: start}); err != nil {
		t.Fatal(err)
	}
	finish := func(f *fixture) {
		t.Helper()
		if err := f.FinishRankChanges(t.Context()); err != nil {
			t.Error(err)
		}
	}
	finish(first)
	finish(second)
	done := make(chan error, 1)
	amends.during = func() { go func() { done <- second.AmendMarked(t.Context()) }() }
	if err := first.AmendMarked(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if amends.n != 1 || len(otherStore.listed()) > 0 {
		t.Errorf("%d calls of Amend and the listed changes %+v, want one call and no listed changes", amends.n, otherStore.listed())
	}
	second.wantList(ranking.Query{Board: dailyBoard.ID, Season: day}, "bob 3 1")
}

// Two processes, or two tasks of one process, amend the season at the same time.
func TestABanAndItsRepetitionAmendASealedSeasonOnce(t *testing.T) {
	for _, first := range []string{"the process that sets the ban", "another process", "a second task of the same process"} {
		t.Run(first+" amends", func(t *testing.T) {
			store, _ := embedded.Open(t)
			amends := &amendCalls{Store: store}
			region := &regionStore{Store: amends}
			region.all = []*regionStore{region}
			setter, other := serviceOver(t, region, memory.New()), serviceOver(t, region, memory.New())
			repeater := other
			if first == "a second task of the same process" {
				repeater = setter
			}
			setter.create(dailyBoard)
			setter.submit(dailyBoard.ID, points("ann", "m", 5))
			setter.submit(dailyBoard.ID, points("bob", "m", 3))
			setter.afterDay()
			other.afterDay()
			setter.sweep()
			ban := func() error {
				_, err := setter.SetBan(t.Context(), leaderboard.Ban{User: "ann", Banned: true})
				return err
			}
			finish := func() error {
				return errors.Join(repeater.FinishRankChanges(t.Context()), repeater.AmendMarked(t.Context()))
			}
			done := make(chan error, 1)
			if first == "the process that sets the ban" {
				amends.during = func() { go func() { done <- finish() }() }
				if err := ban(); err != nil {
					t.Fatal(err)
				}
			} else {
				amends.during = func() {
					go func() { done <- ban() }()
					select {
					case err := <-done:
						t.Errorf("SetBan returns %v before the season is amended; want it to wait", err)
						done <- err
					case <-time.After(300 * time.Millisecond):
					}
				}
				// A process dies after it has set the ban. A caller sets the ban again while
				// the function finish amends the season.
				if _, err := region.SetBan(t.Context(), leaderboard.Ban{User: "ann", Banned: true, At: start}); err != nil {
					t.Fatal(err)
				}
				if err := finish(); err != nil {
					t.Fatal(err)
				}
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			for _, f := range []*fixture{setter, other} {
				if err := f.FinishRankChanges(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			record, err := store.Season(t.Context(), leaderboard.SeasonKey{Board: dailyBoard.ID, Season: day})
			if err != nil || len(record.Amendments) != 1 {
				t.Errorf("season %+v, error %v; want one amendment", record, err)
			}
			setter.wantList(dayQuery, "bob 3 1")
			if len(region.listed()) > 0 {
				t.Errorf("changes after FinishRankChanges: %+v, want none", region.listed())
			}
		})
	}
}

type sealBeforeMark struct {
	leaderboard.Store
	seal func()
}

func (s *sealBeforeMark) MarkFinal(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, users []leaderboard.UserID, reason string) error {
	s.seal()
	return s.Store.MarkFinal(ctx, b, season, users, reason)
}

// The season is sealed after the store has the ban, so the final standings omit ann from the start.
func TestASealDuringABanNeedsNoAmendment(t *testing.T) {
	store, _ := embedded.Open(t)
	sealing := &sealBeforeMark{Store: store}
	f := serviceOver(t, sealing, memory.New())
	f.create(dailyBoard)
	f.submit(dailyBoard.ID, points("ann", "m", 5))
	f.submit(dailyBoard.ID, points("bob", "m", 3))
	f.afterDay()
	sealing.seal = f.sweep
	if _, err := f.SetBan(t.Context(), leaderboard.Ban{User: "ann", Banned: true}); err != nil {
		t.Fatal(err)
	}
	record, err := store.Season(t.Context(), leaderboard.SeasonKey{Board: dailyBoard.ID, Season: day})
	if err != nil || record.SealedAt.IsZero() || len(record.Amendments) > 0 {
		t.Errorf("season %+v, error %v; want a sealed season and no amendment", record, err)
	}
	f.wantList(dayQuery, "bob 3 1")
}
