package ranking_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/cache/memory"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/embedded"
	"github.com/open-leaderboard/leaderboard/test/faults"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

// slowScans is a store whose Scan copies each entry to many users, and yields one copy per
// millisecond.
type slowScans struct {
	leaderboard.Store
	users int
}

func (s slowScans) Scan(ctx context.Context, key leaderboard.SeasonKey, part leaderboard.Part) iter.Seq2[leaderboard.Entry, error] {
	return func(yield func(leaderboard.Entry, error) bool) {
		for e, err := range s.Store.Scan(ctx, key, part) {
			for i := range s.users {
				time.Sleep(time.Millisecond)
				copied := e
				copied.User = leaderboard.UserID(fmt.Sprint(e.User, i))
				if !yield(copied, err) {
					return
				}
			}
		}
	}
}

// Each fill takes 50 seconds. The second fill knows the number of users from the first, and so
// estimates the remaining time.
func TestProgressOfAFill(t *testing.T) {
	needs.NoRace(t, "one call follows another")
	synctest.Test(t, func(t *testing.T) {
		store, index := embedded.Open(t)
		reg, log := prometheus.NewRegistry(), &bytes.Buffer{}
		f := serviceOver(t, store, index)
		f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Sum})
		f.submit("b", points("ann", "m", 5))
		service := ranking.New(slowScans{store, 50_000}, memory.New(), ranking.Options{
			Now: time.Now, Registerer: reg, Log: slog.New(slog.NewTextHandler(log, nil)),
		})
		t.Cleanup(service.Close)
		fill := func(want, line string) {
			t.Helper()
			log.Reset()
			before := metrics(t, reg)["leaderboard_index_filled_users_total"]
			done := make(chan error)
			go func() {
				_, err := service.Rebuild(t.Context(), ranking.Selection{Board: "b"}, nil)
				done <- err
			}()
			time.Sleep(20*time.Second + time.Microsecond)
			synctest.Wait()
			if got := service.Filling().String(); got != want {
				t.Errorf("after 20 s: %q, want %q", got, want)
			}
			got := metrics(t, reg)
			if users, running := got["leaderboard_index_filled_users_total"]-before, got["leaderboard_index_fills"]; users != 20_000 || running != 1 {
				t.Errorf("after 20 s: %v users are filled, %v fills run, want 20,000 and 1", users, running)
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if got := service.Filling(); got != (ranking.Filling{}) {
				t.Errorf("after the fill: %v, want no fill", got)
			}
			if n := strings.Count(log.String(), "filling the rank index"); n != 4 || !strings.Contains(log.String(), line) {
				t.Errorf("the fill logged %d lines, want 4, one of them with %q:\n%s", n, line, log)
			}
		}
		fill("1 season, 20000 users read", "users=20480 expected=0 remaining=0s")
		fill("1 season, 20000 users read, about 30s remain", "users=20480 expected=50000 remaining=30s")
	})
}

type brokenScans struct {
	leaderboard.Store
	errs map[leaderboard.BoardID]error
}

func (s brokenScans) Scan(ctx context.Context, key leaderboard.SeasonKey, part leaderboard.Part) iter.Seq2[leaderboard.Entry, error] {
	if err := s.errs[key.Board]; err != nil {
		return func(yield func(leaderboard.Entry, error) bool) { yield(leaderboard.Entry{}, err) }
	}
	return s.Store.Scan(ctx, key, part)
}

func TestLoadGoesOnAfterAnError(t *testing.T) {
	store, index := embedded.Open(t)
	f := serviceOver(t, store, index)
	for i := range 4 {
		id := leaderboard.BoardID(fmt.Sprint("b", i))
		f.create(leaderboard.Board{ID: id, Policy: leaderboard.Sum})
		f.submit(id, points("ann", "m", 5))
	}
	broken := brokenScans{store, map[leaderboard.BoardID]error{"b0": leaderboard.ErrUnavailable, "b2": leaderboard.ErrFormat}}
	f = serviceOver(t, broken, memory.New())
	for range 2 {
		err := f.Load(t.Context(), nil)
		if !errors.Is(err, leaderboard.ErrUnavailable) || !errors.Is(err, leaderboard.ErrFormat) || f.Ready() {
			t.Errorf("Load: %v, ready %v, want both errors, not ready", err, f.Ready())
		}
	}
	for i := range 4 {
		id := leaderboard.BoardID(fmt.Sprint("b", i))
		loaded, err := f.index.Loaded(t.Context(), leaderboard.SeasonKey{Board: id, Season: leaderboard.SeasonAll})
		if err != nil || loaded != (i%2 == 1) {
			t.Errorf("board %s: loaded %v, %v, want %v", id, loaded, err, i%2 == 1)
		}
	}
	clear(broken.errs)
	if err := f.Load(t.Context(), nil); err != nil || !f.Ready() {
		t.Errorf("Load without errors: %v, ready %v, want nil and ready", err, f.Ready())
	}
}

type countedLoads struct {
	*faults.Index
	n int
}

func (x *countedLoads) Loaded(ctx context.Context, s leaderboard.SeasonKey) (bool, error) {
	x.n++
	return x.Index.Loaded(ctx, s)
}

func TestLoadGivesUpWithoutAnIndex(t *testing.T) {
	store, index := embedded.Open(t)
	f := serviceOver(t, store, index)
	for i := range 30 {
		id := leaderboard.BoardID(fmt.Sprint("b", i))
		f.create(leaderboard.Board{ID: id, Policy: leaderboard.Sum})
		f.submit(id, points("ann", "m", 5))
	}
	x := &countedLoads{Index: &faults.Index{Index: index}}
	x.Set(faults.Refuse)
	f = serviceOver(t, store, x)
	if err := f.Load(t.Context(), nil); !errors.Is(err, leaderboard.ErrRankUnavailable) || !f.Ready() {
		t.Errorf("Load: %v, ready %v, want ErrRankUnavailable and ready", err, f.Ready())
	}
	if x.n != 10 {
		t.Errorf("Load asked the unavailable index about %d seasons, want it to give up after 10", x.n)
	}
}

// timelessStore is a store that does not know when a season changed.
type timelessStore struct{ leaderboard.Store }

func (timelessStore) ChangedAt(context.Context, leaderboard.SeasonKey) (time.Time, error) {
	return time.Time{}, nil
}

// delayedIndex is an index that calls a function before a season is loaded.
type delayedIndex struct {
	leaderboard.Index
	before func()
}

func (x delayedIndex) Rebuild(ctx context.Context, b *leaderboard.Board, key leaderboard.SeasonKey, at time.Time, entries iter.Seq2[leaderboard.Entry, error]) error {
	x.before()
	return x.Index.Rebuild(ctx, b, key, at, entries)
}

func (x delayedIndex) Restore(ctx context.Context, b *leaderboard.Board, key leaderboard.SeasonKey, at time.Time, scan func(leaderboard.Part) iter.Seq2[leaderboard.Entry, error]) error {
	x.before()
	return x.Index.Restore(ctx, b, key, at, scan)
}

// An Update just before the index begins to load the season has no effect on the index. The load
// reads the changed entry, so AsOf must not be earlier than the Update.
func TestAsOfOfALoadIncludesEarlierUpdates(t *testing.T) {
	store, index := embedded.Open(t)
	f := serviceOver(t, store, index)
	f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Sum})
	f.submit("b", points("ann", "m", 5))
	updatedAt := start.Add(time.Second)
	slow := delayedIndex{memory.New(), func() {
		f.clock.set(updatedAt)
		f.submit("b", points("bob", "m", 7))
	}}
	service := ranking.New(timelessStore{store}, slow, ranking.Options{Now: f.clock.now})
	t.Cleanup(service.Close)
	if _, err := service.Rebuild(t.Context(), ranking.Selection{Board: "b"}, nil); err != nil {
		t.Fatal(err)
	}
	page, err := service.Page(t.Context(), ranking.PageQuery{Query: ranking.Query{Board: "b"}, Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	if len(page.Lines) != 2 || page.AsOf.Before(updatedAt) {
		t.Errorf("the page has %d entries as of %v; want the entries of ann and bob, and %v or later", len(page.Lines), page.AsOf, updatedAt)
	}
}
