// Package memory is a rank index in the memory of the process. It is exact,
// answers in about a microsecond, and is filled anew from the store at start.
package memory

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// Index is a [leaderboard.Index] in memory. Use [New] to make one.
type Index struct {
	mu sync.Mutex // of those who change scopes
	// scopes is copied to be changed, which is rare, so that a read of one scope
	// waits for nobody who is busy with another.
	scopes atomic.Pointer[map[leaderboard.Scope]*scope]
}

var _ leaderboard.Index = (*Index)(nil)

// New returns an empty index.
func New() *Index {
	x := &Index{}
	x.scopes.Store(&map[leaderboard.Scope]*scope{})
	return x
}

// scope is the state of one scope. Its lock is held for reads of a few
// microseconds, and for writes of a few entries at a time.
type scope struct {
	rebuild chan struct{} // holds a token while no Rebuild runs

	mu    sync.RWMutex
	table *table // nil while the scope is not loaded
	notes *notes // nil while no Rebuild runs

	rebuilds int // that run or wait; under Index.mu
}

// notes are the Updates that came while a Rebuild runs.
type notes struct {
	layout  layout
	entries map[leaderboard.UserID]leaderboard.Entry // the newest of each
	asOf    time.Time
}

func (n *notes) add(at time.Time, entries []leaderboard.Entry) error {
	for _, e := range entries {
		if err := n.layout.accepts(&e); err != nil {
			return err
		}
		if old, ok := n.entries[e.User]; !ok || e.Version > old.Version {
			e.Divisions, e.Metadata = slices.Clone(e.Divisions), ""
			n.entries[e.User] = e
		}
	}
	n.asOf = later(n.asOf, at)
	return nil
}

func later(x, y time.Time) time.Time {
	if x.After(y) {
		return x
	}
	return y
}

// updateChunk is how many entries an Update applies before it lets readers in.
const updateChunk = 16

func (x *Index) scope(s leaderboard.Scope) *scope { return (*x.scopes.Load())[s] }

// setScope sets or, if sc is nil, forgets a scope. x.mu is held.
func (x *Index) setScope(s leaderboard.Scope, sc *scope) {
	scopes := maps.Clone(*x.scopes.Load())
	if scopes[s] = sc; sc == nil {
		delete(scopes, s)
	}
	x.scopes.Store(&scopes)
}

// Update implements [leaderboard.Index].
func (x *Index) Update(ctx context.Context, s leaderboard.Scope, at time.Time, entries []leaderboard.Entry) error {
	sc := x.scope(s)
	if sc == nil {
		return nil
	}
	for {
		chunk := entries[:min(len(entries), updateChunk)]
		if err := sc.update(at, chunk); err != nil {
			return err
		}
		if entries = entries[len(chunk):]; len(entries) == 0 {
			return nil
		}
	}
}

func (sc *scope) update(at time.Time, entries []leaderboard.Entry) error {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if sc.notes != nil {
		if err := sc.notes.add(at, entries); err != nil {
			return err
		}
	}
	if sc.table == nil {
		return nil
	}
	if err := sc.table.applySome(entries); err != nil {
		return err
	}
	sc.table.asOf = later(sc.table.asOf, at)
	return nil
}

// Rebuild implements [leaderboard.Index].
func (x *Index) Rebuild(ctx context.Context, b *leaderboard.Board, s leaderboard.Scope, at time.Time, entries iter.Seq2[leaderboard.Entry, error]) error {
	sc := x.join(s)
	defer x.leave(s, sc)
	select {
	case <-sc.rebuild:
		defer func() { sc.rebuild <- struct{}{} }()
	case <-ctx.Done():
		return fmt.Errorf("memory: rebuild %v: %w", s, ctx.Err())
	}

	layout := layoutOf(b)
	own := &notes{layout: layout, entries: map[leaderboard.UserID]leaderboard.Entry{}}
	sc.mu.Lock()
	sc.notes = own
	sc.mu.Unlock()
	defer func() {
		sc.mu.Lock()
		if sc.notes == own {
			sc.notes = nil
		}
		sc.mu.Unlock()
	}()

	t, err := load(ctx, layout, entries)
	if err != nil {
		return fmt.Errorf("memory: rebuild %v: %w", s, err)
	}
	t.asOf = later(t.asOf, at)
	if err := sc.swap(t, own); err != nil {
		return fmt.Errorf("memory: rebuild %v: %w", s, err)
	}
	return nil
}

// swap puts a new table in place, brought up to date by the Updates noted. It
// holds up readers and writers for the last few of them only.
func (sc *scope) swap(t *table, own *notes) error {
	const few, rounds = 64, 100
	for round := 0; ; round++ {
		sc.mu.Lock()
		if sc.notes != own {
			sc.mu.Unlock()
			return fmt.Errorf("dropped meanwhile: %w", leaderboard.ErrRankUnavailable)
		}
		pending := own.entries
		t.asOf = later(t.asOf, own.asOf)
		if len(pending) <= few || round == rounds {
			defer sc.mu.Unlock()
			if err := applyAll(t, pending); err != nil {
				return err
			}
			sc.table = t
			return nil
		}
		own.entries = map[leaderboard.UserID]leaderboard.Entry{}
		sc.mu.Unlock()
		if err := applyAll(t, pending); err != nil {
			return err
		}
	}
}

func applyAll(t *table, entries map[leaderboard.UserID]leaderboard.Entry) error {
	for _, e := range entries {
		if err := t.apply(&e); err != nil {
			return err
		}
	}
	return nil
}

func (x *Index) join(s leaderboard.Scope) *scope {
	x.mu.Lock()
	defer x.mu.Unlock()
	sc := x.scope(s)
	if sc == nil {
		sc = &scope{rebuild: make(chan struct{}, 1)}
		sc.rebuild <- struct{}{}
		x.setScope(s, sc)
	}
	sc.rebuilds++
	return sc
}

func (x *Index) leave(s leaderboard.Scope, sc *scope) {
	x.mu.Lock()
	defer x.mu.Unlock()
	sc.rebuilds--
	x.tidy(s, sc)
}

// tidy forgets a scope that is not loaded and that no Rebuild is about to load.
func (x *Index) tidy(s leaderboard.Scope, sc *scope) {
	sc.mu.RLock()
	defer sc.mu.RUnlock()
	if sc.table == nil && sc.rebuilds == 0 {
		x.setScope(s, nil)
	}
}

// Settled implements [leaderboard.Index]: no Update fails.
func (x *Index) Settled() bool { return true }

// Loaded implements [leaderboard.Index].
func (x *Index) Loaded(ctx context.Context, s leaderboard.Scope) (bool, error) {
	sc := x.scope(s)
	if sc == nil {
		return false, nil
	}
	sc.mu.RLock()
	defer sc.mu.RUnlock()
	return sc.table != nil, nil
}

// Drop implements [leaderboard.Index].
func (x *Index) Drop(ctx context.Context, s leaderboard.Scope) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	sc := x.scope(s)
	if sc == nil {
		return nil
	}
	sc.mu.Lock()
	sc.table, sc.notes = nil, nil
	sc.mu.Unlock()
	x.tidy(s, sc)
	return nil
}

// Close implements [leaderboard.Index].
func (x *Index) Close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.scopes.Store(&map[leaderboard.Scope]*scope{})
	return nil
}
