// Package ranking is the service over a Store and an Index: it applies results, updates
// the ranks, and answers queries. Because it depends on these two contracts only, the
// embedded and the distributed engine share it.
//
// A [Service] has one part for each role: [Applier], [Submitter], [Reader], [Admin] and
// [Verifier]. The parts share one cache of boards and one circuit breaker of the index.
// A process creates one Service.
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
	// Log receives events of background work. By default they are discarded.
	Log *slog.Logger
	// BoardTTL is how long the settings of a board, and the record of a season, are
	// cached. A change by another process is visible after this time. Default 1 s.
	BoardTTL time.Duration
	// LinkTTL is how long the list of the linked boards of a board is cached. It must be the
	// same in all processes. Default 1 s.
	LinkTTL time.Duration
	// Results passes submitted results to the process that applies them. If it is nil,
	// the Service applies submitted results itself.
	Results ResultLog
	// Journal is the log of results, if consumers update the index from a log. Default nil.
	Journal Journal
	// Registerer receives the metrics of the service. By default they are discarded.
	Registerer prometheus.Registerer
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

// shared is the state that all parts of a [Service] use.
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

	name  string // distinguishes this process from others
	plans seasonPlans

	leases seasonLeases
	amends coalesce.Group[leaderboard.SeasonKey, struct{}] // concurrent calls of amendMarked

	newEnd chan struct{} // receives a value after a ban with an end was stored
	// newLink and newRules receive a value after a board was created or amended. newRules also
	// receives a value after another region has changed the divisions of a board. The loops of
	// fillBoards then look for boards to fill.
	newLink, newRules chan struct{}
}

// New returns a service over a store and an index. The caller should call
// [Service.Load] before it reads ranks. Otherwise the first read of each season must
// wait for the load of that season.
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
	boards := &BoardCache{store: store, now: o.Now, ttl: cmp.Or(o.BoardTTL, time.Second)}
	tasks := newTasks()
	ranked := newRankIndex(index, store, tasks, o.Now, o.Log)
	hub := newHub()
	common := &shared{
		BoardCache: boards, store: store, index: ranked, ranks: newRankWriter(boards, store, ranked, o.Journal, hub, tasks, o.Now),
		hub: hub, tasks: tasks, now: o.Now, log: o.Log, linkTTL: cmp.Or(o.LinkTTL, time.Second), metrics: newMetrics(o.Registerer, ranked.fills),
		name: rand.Text(), plans: seasonPlans{plans: map[leaderboard.BoardID]*seasonPlan{}},
		leases: seasonLeases{held: map[leaderboard.SeasonKey]bool{}},
		newEnd: make(chan struct{}, 1), newLink: make(chan struct{}, 1), newRules: make(chan struct{}, 1),
	}
	common.amends.Call = common.amendShared
	reader := newReader(common)
	applier := &Applier{shared: common, reader: reader}
	if o.Results == nil {
		o.Results = directLog{applier}
	}
	return &Service{
		shared: common, Applier: applier, Reader: reader,
		Submitter: &Submitter{shared: common, applier: applier, reader: reader, results: o.Results},
		Admin:     &Admin{common, reader},
		Verifier:  &Verifier{common, reader},
	}
}

// Progress receives the progress of a long operation. done is the number of entries
// of a season that are finished. In the last call for a season, done is the total.
type Progress func(key leaderboard.SeasonKey, done int64)

// maxUnloaded is the number of seasons that Load fails to fill with
// [leaderboard.ErrRankUnavailable] before it gives up. Each failure may take as long as the timeout of
// the index.
const maxUnloaded = 10

// Load fills the index with every season that is neither sealed nor loaded. After Load
// has returned nil, [Service.Ready] is true. If Load cannot fill a season, it goes on with the other
// seasons, and returns all errors. After maxUnloaded seasons for which the index is unavailable, Load
// gives up.
func (s *Service) Load(ctx context.Context, progress Progress) error {
	return s.load(ctx, progress, s.newPlan)
}

// load does the work of Load. The function plan returns the seasonPlan of a board, which lists the
// unsealed seasons.
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
			// The read fails if the index has lost the season again. The census then lacks the season.
			if _, view, err := s.index.Page(ctx, leaderboard.Ladder{SeasonKey: key}, 1, 1); err == nil {
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

// loadSeason fills a season of the index, unless the season is loaded or has no users.
func (s *Service) loadSeason(ctx context.Context, b *leaderboard.Board, key leaderboard.SeasonKey, progress Progress) error {
	if loaded, err := s.index.Loaded(ctx, key); loaded || err != nil {
		return err
	}
	if used, err := s.index.hasUsers(ctx, key); !used || err != nil {
		return err
	}
	return s.index.restore(ctx, b, key, progress)
}

// Ready reports whether a Load has succeeded, or has failed because the index is
// unavailable. In the second case, reads that do not need the index can start.
func (s *Service) Ready() bool { return s.ready.Load() }

// SweepEvery calls [Admin.Sweep] immediately and then at every interval, until ctx is done.
// After each sweep, it fills an index that has lost its data, as [Service.Load] does. Between
// the sweeps, SweepEvery lifts bans at their ends. If another process has stored a
// ban, SweepEvery may lift it up to one interval late. If a sweep fails, SweepEvery logs
// the error and continues at the next interval. SweepEvery also fills new linked boards,
// completes interrupted deletions, and calls [Admin.FinishRankChanges] and AmendMarked every ten
// seconds or more often.
func (s *Service) SweepEvery(ctx context.Context, interval time.Duration) {
	var background sync.WaitGroup
	defer background.Wait()
	background.Go(func() { s.fillBoards(ctx, interval) })
	background.Go(func() {
		s.repeat(ctx, min(interval, changesInterval), nil, "updating ranks after changes", s.FinishRankChanges)
	})
	background.Go(func() { s.repeat(ctx, min(interval, changesInterval), nil, "amending sealed seasons", s.AmendMarked) })
	// A deletion counts as interrupted when it is an hour old.
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
		s.liftBans(ctx, ticker.C, interval)
		if ctx.Err() != nil {
			return
		}
	}
}

// Notify wakes the calls of [Reader.Watch] for a season. It must be called after
// another process has changed the season.
func (s *Service) Notify(key leaderboard.SeasonKey) { s.hub.notify(key) }

// Close stops background work, such as loads of the index. It waits for writes that still run
// although their callers have stopped waiting. No other method may be running during Close or be
// called afterwards. The caller must call Close before it closes the store and the index.
func (s *Service) Close() { s.tasks.close() }
