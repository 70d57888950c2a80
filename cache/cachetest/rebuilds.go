package cachetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/open-leaderboard/leaderboard"
)

var rebuildTests = []test{
	{"Rebuild accepts entries in any order", func(f *fixture) {
		rng := random(f.T)
		entries := f.manyEntries(rng, 100)
		bySortKey := func(x, y leaderboard.Entry) int { return strings.Compare(string(x.SortKey()), string(y.SortKey())) }
		f.rebuild(entries...)
		f.compareAll()
		slices.SortFunc(entries, bySortKey)
		f.rebuild(entries...)
		f.compareAll()
		slices.Reverse(entries)
		f.rebuild(entries...)
		f.compareAll()
		// Older versions change nothing, even for users who are not ranked.
		for _, e := range entries {
			if e.Version > 1 {
				f.update(f.entry(e.User, e.Version-1, 99, 0))
			}
		}
		f.compareAll()
	}},
	{"Rebuild replaces all standings of the season", func(f *fixture) {
		f.loadFive()
		f.rebuild(f.entry("fay", 1, 5, 0, "gender:F"), f.entry("ann", 1, 4, 0))
		f.compareAll()
		f.rebuild()
		f.compareAll()
	}},
	{"Rebuild starts to record Updates before it reads entries", func(f *fixture) {
		for _, loaded := range []bool{false, true} {
			newer := f.entry("ann", 2, 50, 0, "gender:F")
			removed := f.unranked("bob", 2)
			added := f.entry("new", 1, 40, 0)
			at := f.tick()
			err := f.Rebuild(f.ctx, f.board, f.key, at, func(yield func(leaderboard.Entry, error) bool) {
				// This function yields the entries that the store had before the updates.
				f.update(newer)
				if !yield(f.entry("ann", 1, 10, 0, "gender:M"), nil) {
					return
				}
				f.update(removed, added)
				yield(f.entry("bob", 1, 20, 0), nil)
			})
			f.ok("Rebuild", err)
			f.model = newModel()
			f.model.update(f.now, newer, removed, added)
			f.compareAll()
			f.update(f.entry("bob", 1, 20, 0))
			f.compareAll()
			if !loaded {
				f.loadFive()
			}
		}
	}},
	{"reads see the old standings until Rebuild returns", func(f *fixture) {
		unloaded := f.forSeason(f.board, f.key)
		err := f.Rebuild(f.ctx, f.board, f.key, f.tick(), func(yield func(leaderboard.Entry, error) bool) {
			unloaded.checkUnavailable()
			yield(f.entry("zoe", 1, 1, 0), nil)
			unloaded.checkUnavailable()
		})
		f.ok("Rebuild", err)
		f.loadFive()
		at := f.tick()
		err = f.Rebuild(f.ctx, f.board, f.key, at, func(yield func(leaderboard.Entry, error) bool) {
			f.compareAll()
			yield(f.entry("fay", 1, 99, 0), nil)
			f.compareAll()
			f.update(f.entry("ann", 2, 5, 0))
			f.compareAll()
			yield(f.entry("gil", 1, 98, 0), nil)
			f.compareAll()
		})
		f.ok("Rebuild", err)
		f.model = newModel()
		f.model.update(f.now, f.entry("fay", 1, 99, 0), f.entry("gil", 1, 98, 0), f.entry("ann", 2, 5, 0))
		f.compareAll()
	}},
	{"a Rebuild whose entries yield an error changes nothing", func(f *fixture) {
		broken := errors.New("the store is unavailable")
		failingRebuild := func(during func()) {
			f.Helper()
			err := f.Rebuild(f.ctx, f.board, f.key, f.tick(), func(yield func(leaderboard.Entry, error) bool) {
				if yield(f.entry("fay", 1, 99, 0), nil) {
					during()
					yield(leaderboard.Entry{}, broken)
				}
			})
			if !errors.Is(err, broken) {
				f.Fatalf("Rebuild: error %v, want the error that the entries yield", err)
			}
		}
		failingRebuild(func() {})
		f.checkUnavailable()
		f.loadFive()
		failingRebuild(func() { f.update(f.entry("ann", 2, 1, 0)) })
		f.compareAll()
		f.update(f.entry("ann", 3, 50, 0))
		f.compareAll()
		f.rebuild(f.entry("gil", 1, 1, 0))
		f.compareAll()
	}},
	{"a Rebuild whose ctx is done changes nothing", func(f *fixture) {
		f.loadFive()
		ctx, cancel := context.WithCancel(f.ctx)
		var yielded int
		err := f.Rebuild(ctx, f.board, f.key, f.tick(), func(yield func(leaderboard.Entry, error) bool) {
			for cancel(); yielded < 1_000_000; yielded++ {
				if !yield(f.entry(leaderboard.UserID(fmt.Sprint("user ", yielded)), 1, 1, 0), nil) {
					return
				}
			}
		})
		f.wantErr("Rebuild", err, context.Canceled)
		if yielded == 1_000_000 {
			f.Error("Rebuild read all 1,000,000 entries, want it to stop because ctx is done")
		}
		f.compareAll()
	}},
	{"concurrent Rebuilds of one season run one after another", func(f *fixture) {
		var firstReturned atomic.Bool
		started, second := make(chan struct{}), make(chan error, 1)
		go func() {
			<-started
			second <- f.Rebuild(f.ctx, f.board, f.key, f.now, func(yield func(leaderboard.Entry, error) bool) {
				if !firstReturned.Load() {
					yield(leaderboard.Entry{}, errors.New("the second Rebuild reads entries while the first Rebuild runs"))
					return
				}
				yield(f.entry("second", 1, 1, 0), nil)
			})
		}()
		other := f.forSeason(f.board, leaderboard.SeasonKey{Board: f.board.ID, Season: "other"})
		err := f.Rebuild(f.ctx, f.board, f.key, f.now, func(yield func(leaderboard.Entry, error) bool) {
			close(started)
			// A second Rebuild that does not wait would read its entries now.
			for range 20 {
				other.rebuild(other.entry("ann", 1, 1, 0))
			}
			other.compareAll()
			yield(f.entry("first", 1, 1, 0), nil)
			firstReturned.Store(true)
		})
		f.ok("Rebuild", err)
		f.ok("the second Rebuild", <-second)
		f.model.update(f.now, f.entry("second", 1, 1, 0))
		f.compareAll()

		err = f.Rebuild(f.ctx, f.board, f.key, f.now, func(yield func(leaderboard.Entry, error) bool) {
			ctx, cancel := context.WithCancel(f.ctx)
			cancel()
			f.wantErr("a Rebuild with a canceled ctx during another Rebuild", f.Rebuild(ctx, f.board, f.key, f.now, sequence()), context.Canceled)
			yield(f.entry("second", 1, 1, 0), nil)
		})
		f.ok("Rebuild", err)
		f.compareAll()
	}},
	{"Loaded reports whether a Rebuild has loaded the season since the last Drop", func(f *fixture) {
		loaded := func() bool {
			f.Helper()
			ok, err := f.Loaded(f.ctx, f.key)
			f.ok("Loaded", err)
			return ok
		}
		if loaded() {
			f.Error("Loaded = true before any Rebuild, want false")
		}
		f.rebuild()
		if !loaded() {
			f.Error("Loaded = false after a Rebuild without entries, want true")
		}
		f.ok("Drop", f.Drop(f.ctx, f.key))
		if loaded() {
			f.Error("Loaded = true after Drop, want false")
		}
		f.ok("Drop", f.Drop(f.ctx, f.key))
		f.loadFive()
		if !loaded() {
			f.Error("Loaded = false after a Rebuild that followed a Drop, want true")
		}
	}},
	{"Drop removes a season", func(f *fixture) {
		f.loadFive()
		f.update(f.entry("ann", 50, 1, 0))
		f.ok("Drop", f.Drop(f.ctx, f.key))
		f.checkUnavailable()
		f.rebuild(f.entry("ann", 1, 30, 1)) // a lower version, as if the board was deleted and created again
		f.compareAll()
		f.update(f.entry("ann", 2, 31, 1))
		f.compareAll()
	}},
	{"Rebuild gives a season the form that its board asks for", func(f *fixture) {
		f.loadFive()
		for _, shards := range []int{0, 2, 1} {
			b := *f.board
			b.Shards = shards
			f.board = &b
			entries := f.manyEntries(random(f.T), 60)
			f.rebuild(entries...)
			if loaded, err := f.Loaded(f.ctx, f.key); !loaded || err != nil || !f.Fits(&b, f.key) {
				f.Errorf("after a Rebuild with %d shards: loaded %v, error %v, fits %v; want a loaded season that fits its board", shards, loaded, err, f.Fits(&b, f.key))
			}
			f.compareAll()
		}
	}},
	{"Restore loads a season that is not loaded", func(f *fixture) {
		rng := random(f.T)
		entries := f.manyEntries(rng, 100)
		f.restore(entries...)
		f.compareAll()
		f.ok("Drop", f.Drop(f.ctx, f.key))
		f.restore(entries[:50]...)
		f.compareAll()
	}},
	{"Restore starts to record Updates before it calls scan", func(f *fixture) {
		newer, added := f.entry("ann", 2, 50, 0, "gender:F"), f.entry("new", 1, 40, 0)
		err := f.Restore(f.ctx, f.board, f.key, f.tick(), func(part leaderboard.Part) iter.Seq2[leaderboard.Entry, error] {
			f.update(newer, added)
			return scanOf(part, f.entry("ann", 1, 10, 0, "gender:M"), f.entry("bob", 1, 20, 0))
		})
		f.ok("Restore", err)
		f.model = newModel()
		f.model.update(f.now, newer, added, f.entry("bob", 1, 20, 0))
		f.compareAll()
	}},
	{"a Restore whose entries yield an error changes nothing", func(f *fixture) {
		broken := errors.New("the store is unavailable")
		err := f.Restore(f.ctx, f.board, f.key, f.tick(), func(leaderboard.Part) iter.Seq2[leaderboard.Entry, error] {
			return func(yield func(leaderboard.Entry, error) bool) { yield(leaderboard.Entry{}, broken) }
		})
		f.wantErr("Restore", err, broken)
		f.checkUnavailable()
		f.loadFive()
		f.compareAll()
	}},
	{"if Drop is called while a Rebuild runs, the Rebuild loads nothing and returns ErrRankUnavailable", func(f *fixture) {
		f.loadFive()
		err := f.Rebuild(f.ctx, f.board, f.key, f.tick(), func(yield func(leaderboard.Entry, error) bool) {
			f.ok("Drop", f.Drop(f.ctx, f.key))
			f.ok("Update", f.Update(f.ctx, f.key, f.tick(), []leaderboard.Entry{f.entry("gil", 1, 1, 0)}))
			yield(f.entry("fay", 1, 99, 0), nil)
		})
		f.wantErr("Rebuild", err, leaderboard.ErrRankUnavailable)
		f.checkUnavailable()
		f.loadFive()
		f.compareAll()
	}},
}
