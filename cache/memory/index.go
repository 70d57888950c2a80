// Package memory is a rank index in the memory of the process. It is empty when the process starts,
// and must be filled from the store.
package memory

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// Index is a [leaderboard.Index] in memory.
type Index struct {
	mu sync.Mutex // for changes of seasons and of seasonIndex.rebuilds
	// seasons is an immutable map, which a writer replaces. Reads need no lock.
	seasons atomic.Pointer[map[leaderboard.SeasonKey]*seasonIndex]
}

var _ leaderboard.Index = (*Index)(nil)

// New returns an empty index.
func New() *Index {
	x := &Index{}
	x.seasons.Store(&map[leaderboard.SeasonKey]*seasonIndex{})
	return x
}

// seasonIndex is the index of one season. An Update releases mu after every updateChunk entries.
type seasonIndex struct {
	rebuild chan struct{} // has a token while no Rebuild runs

	mu      sync.RWMutex
	table   *table          // nil while the season is not loaded
	pending *pendingUpdates // nil while no Rebuild runs

	rebuilds int // running or waiting; guarded by Index.mu
}

// pendingUpdates are the Updates that arrive during a Rebuild.
type pendingUpdates struct {
	layout  layout
	entries map[leaderboard.UserID]leaderboard.Entry // newest entry of each user
	asOf    time.Time
}

func (n *pendingUpdates) add(at time.Time, entries []leaderboard.Entry) error {
	for _, e := range entries {
		if err := n.layout.validate(&e); err != nil {
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

// updateChunk is the number of entries after which an Update lets readers run.
const updateChunk = 16

func (x *Index) season(s leaderboard.SeasonKey) *seasonIndex { return (*x.seasons.Load())[s] }

// setSeason sets or, if si is nil, removes a season. The caller must hold x.mu.
func (x *Index) setSeason(s leaderboard.SeasonKey, si *seasonIndex) {
	seasons := maps.Clone(*x.seasons.Load())
	if seasons[s] = si; si == nil {
		delete(seasons, s)
	}
	x.seasons.Store(&seasons)
}

// Update implements [leaderboard.Index].
func (x *Index) Update(ctx context.Context, s leaderboard.SeasonKey, at time.Time, entries []leaderboard.Entry) error {
	si := x.season(s)
	if si == nil {
		return nil
	}
	for {
		chunk := entries[:min(len(entries), updateChunk)]
		if err := si.update(at, chunk); err != nil {
			return err
		}
		if entries = entries[len(chunk):]; len(entries) == 0 {
			return nil
		}
	}
}

func (si *seasonIndex) update(at time.Time, entries []leaderboard.Entry) error {
	si.mu.Lock()
	defer si.mu.Unlock()
	if si.pending != nil {
		if err := si.pending.add(at, entries); err != nil {
			return err
		}
	}
	if si.table == nil {
		return nil
	}
	if err := si.table.applyChunk(entries); err != nil {
		if errors.Is(err, errFull) {
			si.table = nil // its ranks would be wrong
		}
		return err
	}
	si.table.asOf = later(si.table.asOf, at)
	return nil
}

// Rebuild implements [leaderboard.Index].
func (x *Index) Rebuild(ctx context.Context, b *leaderboard.Board, s leaderboard.SeasonKey, at time.Time, entries iter.Seq2[leaderboard.Entry, error]) error {
	si := x.join(s)
	defer x.leave(s, si)
	select {
	case <-si.rebuild:
		defer func() { si.rebuild <- struct{}{} }()
	case <-ctx.Done():
		return fmt.Errorf("memory: rebuild %v: %w", s, ctx.Err())
	}

	layout := layoutOf(b)
	pending := &pendingUpdates{layout: layout, entries: map[leaderboard.UserID]leaderboard.Entry{}}
	si.mu.Lock()
	si.pending = pending
	si.mu.Unlock()
	defer func() {
		si.mu.Lock()
		if si.pending == pending {
			si.pending = nil
		}
		si.mu.Unlock()
	}()

	t, err := load(ctx, layout, entries)
	if err != nil {
		return fmt.Errorf("memory: rebuild %v: %w", s, err)
	}
	t.asOf = later(t.asOf, at)
	if err := si.swap(t, pending); err != nil {
		return fmt.Errorf("memory: rebuild %v: %w", s, err)
	}
	return nil
}

// Restore implements [leaderboard.Index]. It loads all users, because this index has either the whole
// season or nothing of it.
func (x *Index) Restore(ctx context.Context, b *leaderboard.Board, s leaderboard.SeasonKey, at time.Time, scan func(leaderboard.Part) iter.Seq2[leaderboard.Entry, error]) error {
	return x.Rebuild(ctx, b, s, at, func(yield func(leaderboard.Entry, error) bool) { scan(leaderboard.Part{})(yield) })
}

// swap applies the pending Updates to t, and makes t the season's table. Only in the last round
// does swap hold si.mu while it applies Updates.
func (si *seasonIndex) swap(t *table, pending *pendingUpdates) error {
	// Without maxRounds, swap might never end: Updates may arrive faster than swap applies them.
	const lastEntries, maxRounds = 64, 100
	for round := 0; ; round++ {
		si.mu.Lock()
		if si.pending != pending {
			si.mu.Unlock()
			return fmt.Errorf("the season was dropped during the rebuild: %w", leaderboard.ErrRankUnavailable)
		}
		batch := pending.entries
		t.asOf = later(t.asOf, pending.asOf)
		if len(batch) <= lastEntries || round == maxRounds {
			defer si.mu.Unlock()
			if err := applyAll(t, batch); err != nil {
				return err
			}
			si.table = t
			return nil
		}
		pending.entries = map[leaderboard.UserID]leaderboard.Entry{}
		si.mu.Unlock()
		if err := applyAll(t, batch); err != nil {
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

// join returns the index of a season. The caller must call leave when its Rebuild ends.
func (x *Index) join(s leaderboard.SeasonKey) *seasonIndex {
	x.mu.Lock()
	defer x.mu.Unlock()
	si := x.season(s)
	if si == nil {
		si = &seasonIndex{rebuild: make(chan struct{}, 1)}
		si.rebuild <- struct{}{}
		x.setSeason(s, si)
	}
	si.rebuilds++
	return si
}

func (x *Index) leave(s leaderboard.SeasonKey, si *seasonIndex) {
	x.mu.Lock()
	defer x.mu.Unlock()
	si.rebuilds--
	x.tidy(s, si)
}

// tidy removes si unless it is loaded or has a Rebuild. The caller must hold x.mu.
func (x *Index) tidy(s leaderboard.SeasonKey, si *seasonIndex) {
	si.mu.RLock()
	defer si.mu.RUnlock()
	if si.table == nil && si.rebuilds == 0 {
		x.setSeason(s, nil)
	}
}

// Synced implements [leaderboard.Index]. Update applies all entries before it returns.
func (x *Index) Synced(...leaderboard.SeasonKey) bool { return true }

// Advance implements [leaderboard.Index]. The index never loses an Update.
func (x *Index) Advance(context.Context, []leaderboard.LogPosition, bool) ([]leaderboard.Doubt, error) {
	return nil, nil
}

// Confirm implements [leaderboard.Index]. No season is ever in doubt.
func (x *Index) Confirm(context.Context, *leaderboard.Board, leaderboard.Doubt, []leaderboard.LogPosition, leaderboard.LogSession) error {
	return nil
}

// Invalidate implements [leaderboard.Index]. It removes the season.
func (x *Index) Invalidate(s leaderboard.SeasonKey) {
	x.mu.Lock()
	defer x.mu.Unlock()
	si := x.season(s)
	if si == nil {
		return
	}
	si.mu.Lock()
	si.table, si.pending = nil, nil
	si.mu.Unlock()
	x.tidy(s, si)
}

// Loaded implements [leaderboard.Index].
func (x *Index) Loaded(ctx context.Context, s leaderboard.SeasonKey) (bool, error) {
	si := x.season(s)
	if si == nil {
		return false, nil
	}
	si.mu.RLock()
	defer si.mu.RUnlock()
	return si.table != nil, nil
}

// Fits implements [leaderboard.Index]. Settings such as Shards do not matter: this index has no shards.
func (x *Index) Fits(*leaderboard.Board, leaderboard.SeasonKey) bool { return true }

// Drop implements [leaderboard.Index].
func (x *Index) Drop(_ context.Context, s leaderboard.SeasonKey) error {
	x.Invalidate(s)
	return nil
}

// Close implements [leaderboard.Index].
func (x *Index) Close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.seasons.Store(&map[leaderboard.SeasonKey]*seasonIndex{})
	return nil
}
