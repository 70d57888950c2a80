// Package ranking is the service over a Store and an Index: it applies results, updates the
// ranks, and answers queries.
//
// A [Service] has one part for each role: [Applier], [Submitter], [Reader], [Admin] and
// [Verifier]. A process creates one Service.
package ranking

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/coalesce"
)

// Options are the settings of a [Service]. The zero value is usable.
type Options struct {
	// Now is the clock. Default time.Now.
	Now func() time.Time
	// Log receives events of background work. Default: none.
	Log *slog.Logger
	// BoardTTL is how long boards and season records are cached. Default 1 s.
	BoardTTL time.Duration
	// LinkTTL is how long the list of a board's linked boards is cached. It must be equal in
	// all processes. Default 1 s.
	LinkTTL time.Duration
	// Results passes submitted results to the process that applies them. If it is nil, the
	// Service applies the results itself.
	Results ResultLog
	// Journal records index updates for the consumers. Default nil: there are no consumers.
	Journal Journal
	// Registerer receives the metrics of the service. Default: none.
	Registerer prometheus.Registerer
	// Sealed is called after a sweep of this process has sealed a season. It must not wait. Default: none.
	Sealed func(leaderboard.SeasonKey)
}

// Service combines the parts of the service over one store and one index. It is safe
// for concurrent use.
type Service struct {
	*shared
	*Applier
	*Submitter
	*Reader
	*Admin
	*Verifier

	ready atomic.Bool
}

type shared struct {
	*BoardCache
	store leaderboard.Store
	index *rankIndex
	ranks *rankWriter
	hub   *hub
	tasks *tasks
	now   func() time.Time
	log   *slog.Logger

	linkTTL time.Duration
	metrics *metrics
	sealed  func(leaderboard.SeasonKey) // see Options

	name  string // distinguishes this process from others
	plans seasonPlans

	leases seasonLeases
	amends coalesce.Group[leaderboard.SeasonKey, struct{}]

	newShards chan struct{} // wakes ChangeShards
	newEnd    chan struct{} // wakes liftBans
	// newLink and newRules wake the loops of fillBoards.
	newLink, newRules chan struct{}
}

// New returns a service over a store and an index. If [Service.Load] has not loaded a season,
// the first read of the season loads it.
func New(store leaderboard.Store, index leaderboard.Index, o Options) *Service {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
	if o.Sealed == nil {
		o.Sealed = func(leaderboard.SeasonKey) {}
	}
	boards := &BoardCache{store: store, now: o.Now, ttl: cmp.Or(o.BoardTTL, time.Second)}
	tasks := newTasks()
	ranked := newRankIndex(index, store, tasks, o.Now, o.Log)
	hub := newHub()
	common := &shared{
		BoardCache: boards, store: store, index: ranked, ranks: newRankWriter(boards, store, ranked, o.Journal, hub, tasks, o.Now),
		hub: hub, tasks: tasks, now: o.Now, log: o.Log, linkTTL: cmp.Or(o.LinkTTL, time.Second), metrics: newMetrics(o.Registerer, ranked.fills), sealed: o.Sealed,
		name: rand.Text(), plans: seasonPlans{plans: map[leaderboard.BoardID]*seasonPlan{}},
		leases: seasonLeases{held: map[leaderboard.SeasonKey]bool{}},
		newEnd: make(chan struct{}, 1), newLink: make(chan struct{}, 1), newRules: make(chan struct{}, 1), newShards: make(chan struct{}, 1),
	}
	common.amends.Call = common.amendShared
	reader := newReader(common)
	applier := &Applier{shared: common, reader: reader}
	if o.Results == nil {
		o.Results = newDirectLog(applier)
	}
	return &Service{
		shared: common, Applier: applier, Reader: reader,
		Submitter: &Submitter{shared: common, applier: applier, reader: reader, results: o.Results},
		Admin:     &Admin{common, reader},
		Verifier:  &Verifier{common, reader},
	}
}

// Progress receives the number of loaded entries of a season. In the last call for a season,
// done is the total.
type Progress func(key leaderboard.SeasonKey, done int64)

const maxUnloaded = 10

// Load fills the index with every season that has users and is neither sealed nor loaded. If a
// season fails, Load continues with the others, and returns all errors. It gives up after
// maxUnloaded seasons for which the index is unavailable.
func (s *Service) Load(ctx context.Context, progress Progress) error {
	return s.load(ctx, progress, s.newPlan)
}

func (s *Service) load(ctx context.Context, progress Progress, plan func(context.Context, *leaderboard.Board) (*seasonPlan, error)) error {
	boards, err := s.store.Boards(ctx)
	if err != nil {
		return err
	}
	census := newCensus()
	var errs []error
	unavailable := 0
	for i := range boards {
		b := &boards[i]
		census.boards[b.Policy]++
		p, err := plan(ctx, b)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, id := range p.unsealed {
			key := leaderboard.SeasonKey{Board: b.ID, Season: id}
			if err := s.loadSeason(ctx, b, key, progress); err != nil {
				if errs = append(errs, err); errors.Is(err, leaderboard.ErrRankUnavailable) {
					s.ready.Store(true)
					unavailable++
				}
				if ctx.Err() != nil || unavailable == maxUnloaded {
					return errors.Join(errs...)
				}
				continue
			}
			if _, view, err := s.index.Page(ctx, leaderboard.Ladder{SeasonKey: key}, 1, 1, leaderboard.Ordinal); err == nil {
				census.add(b, view)
				s.index.fills.sizes.Add(key, view.Size)
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	s.ready.Store(true)
	s.metrics.setFilled(census)
	return nil
}

func (s *Service) loadSeason(ctx context.Context, b *leaderboard.Board, key leaderboard.SeasonKey, progress Progress) error {
	if loaded, err := s.index.Loaded(ctx, key); loaded || err != nil {
		return err
	}
	if used, err := s.index.hasUsers(ctx, key); !used || err != nil {
		return err
	}
	return s.index.restore(ctx, b, key, progress)
}

// ChangeShards rebuilds each loaded season that does not fit its board (see
// [leaderboard.Index].Fits), for example after a change of the board's shards.
func (s *Service) ChangeShards(ctx context.Context) error {
	return s.eachBoard(ctx, func(b *leaderboard.Board) error {
		p, err := s.plan(ctx, b)
		if err != nil {
			return err
		}
		var errs []error
		for _, id := range p.unsealed {
			key := leaderboard.SeasonKey{Board: b.ID, Season: id}
			if s.index.Fits(b, key) {
				continue // unlike Loaded, Fits needs no request
			}
			loaded, err := s.index.Loaded(ctx, key)
			if loaded && !s.index.Fits(b, key) {
				if err = s.index.fill(ctx, b, key, nil); err == nil {
					s.log.InfoContext(ctx, "shards changed", "board", b.ID, "season", id)
				}
			}
			if errs = append(errs, err); ctx.Err() != nil {
				break
			}
		}
		return errors.Join(errs...)
	})
}

// Ready reports whether a Load has succeeded, or has failed because the index is unavailable.
func (s *Service) Ready() bool { return s.ready.Load() }

// SweepEvery does the periodic work of a process until ctx is done:
//
//   - at once and at every interval, it calls [Admin.Sweep], loads seasons that the index has
//     lost, and removes orphan rows
//   - meanwhile, it lifts ended bans, fills linked boards and divisions, finishes deletions,
//     and calls [Admin.FinishRankChanges], AmendMarked and [Service.ChangeShards]
//
// It logs errors and continues. A ban that another process stored may end up to one interval
// late.
func (s *Service) SweepEvery(ctx context.Context, interval time.Duration) {
	var background sync.WaitGroup
	defer background.Wait()
	background.Go(func() { s.fillBoards(ctx, interval) })
	background.Go(func() {
		s.repeat(ctx, min(interval, changesInterval), nil, "updating ranks after changes", s.FinishRankChanges)
	})
	background.Go(func() { s.repeat(ctx, interval, s.newShards, "changing shards", s.ChangeShards) })
	background.Go(func() { s.repeat(ctx, min(interval, changesInterval), nil, "amending sealed seasons", s.AmendMarked) })
	background.Go(func() { s.repeat(ctx, max(interval, time.Hour), nil, "completing deletions", s.store.FinishDeletions) })
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if err := s.Sweep(ctx); err != nil && ctx.Err() == nil {
			s.log.ErrorContext(ctx, "sweep failed", "err", err)
		} else if err == nil {
			s.metrics.swept.SetToCurrentTime()
		}
		if err := s.load(ctx, nil, s.plan); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "rank index not filled", "err", err)
		}
		s.removeOrphans(ctx, interval)
		s.liftBans(ctx, ticker.C, interval)
		if ctx.Err() != nil {
			return
		}
	}
}

// Notify wakes the calls of [Reader.Watch] for a season. It must be called after another
// process has changed the season.
func (s *Service) Notify(key leaderboard.SeasonKey) { s.hub.notify(key) }

// Close stops background work and waits for unfinished writes. No other method may be running
// during Close or be called afterwards. The caller must call Close before it closes the store
// and the index.
func (s *Service) Close() { s.tasks.close() }
