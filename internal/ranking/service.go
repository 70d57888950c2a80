// Package ranking is the service itself: it takes results, keeps the rank index
// in step with the store, and answers questions. It knows the Store and Index
// contracts only, so that it is the same embedded and distributed.
package ranking

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/combine"
)

// Options are the settings of a [Service]. The zero value is usable.
type Options struct {
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Log receives what happens in the background; nil discards it.
	Log *slog.Logger
	// BoardTTL is how long a board's settings, and whether its seasons are sealed, are
	// believed without asking the store, which matters where another process may
	// change them. Default 1 s.
	BoardTTL time.Duration
	// Submit takes complete results in place of [Service.Apply], as where a log
	// carries them to the process that applies them. It answers as
	// [leaderboard.ResultStore].Apply does, with status Accepted for results that
	// are durable but were not applied in time.
	Submit Take
	// Accept makes complete results durable, and does not wait until they are
	// applied: those that are not have status Accepted. Nil is what Submit is, for where
	// applying results is what makes them durable.
	Accept Take
	// NewMatchID makes the id of a result that came without one; nil makes
	// random ones of 128 bits.
	NewMatchID func() leaderboard.MatchID
}

// Take takes complete results of a board, and says what became of each. It
// returns an error unless all are durable.
type Take func(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) ([]leaderboard.Outcome, error)

// Service is safe for concurrent use.
type Service struct {
	store leaderboard.Store
	index leaderboard.Index
	log   *slog.Logger
	now   func() time.Time
	newID func() leaderboard.MatchID

	submit, accept Take
	boardTTL       time.Duration
	boards         sync.Map // BoardID -> *told[leaderboard.Board]
	seasons        sync.Map // Scope -> *told[leaderboard.SeasonRecord], of seasons that may be sealed
	amends         combine.Combiner[amendKey, *amendment]
	storePages     combine.Combiner[storePage, *[]leaderboard.Entry]
	loading        singleflight.Group
	loadsBegan     sync.Map // Scope -> time.Time
	pausedUntil    atomic.Pointer[time.Time]
	hub            hub

	stampMu   sync.Mutex
	lastStamp time.Time // the last time that was assigned

	ready atomic.Bool
	// unfinished are writes and loads that go on, whether or not their callers wait.
	unfinished sync.WaitGroup
	life       context.Context // of loads, and of what readers share
	end        context.CancelFunc
}

// New returns a service over a store and an index. Call [Service.Load] before
// the index is asked.
func New(store leaderboard.Store, index leaderboard.Index, o Options) *Service {
	s := &Service{store: store, index: index, log: o.Log, now: o.Now, newID: o.NewMatchID, boardTTL: o.BoardTTL}
	s.life, s.end = context.WithCancel(context.Background())
	if s.now == nil {
		s.now = time.Now
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.newID == nil {
		s.newID = func() leaderboard.MatchID { return leaderboard.MatchID(rand.Text()) }
	}
	if s.boardTTL == 0 {
		s.boardTTL = time.Second
	}
	if s.submit = o.Submit; s.submit == nil {
		s.submit = func(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) ([]leaderboard.Outcome, error) {
			report, err := s.Apply(ctx, b, results)
			return report.Outcomes, err
		}
	}
	if s.accept = o.Accept; s.accept == nil {
		s.accept = s.submit
	}
	s.amends.Do, s.storePages.Do = s.amendTogether, s.readStorePage
	s.hub.init()
	return s
}

// Notify wakes those who watch a scope that another process changed.
func (s *Service) Notify(scope leaderboard.Scope) { s.hub.notify(scope) }

// CreateBoard makes a board, and returns it as kept. A grace of 0 is as given;
// absent settings are the caller's to fill. Errors: [leaderboard.FieldError]s,
// [leaderboard.ErrBoardExists].
func (s *Service) CreateBoard(ctx context.Context, b leaderboard.Board) (leaderboard.Board, error) {
	b.CreatedAt = leaderboard.Truncate(s.now())
	if err := b.Validate(); err != nil {
		return leaderboard.Board{}, err
	}
	if err := s.store.CreateBoard(ctx, b); err != nil {
		return leaderboard.Board{}, err
	}
	s.boards.Delete(b.ID)
	kept, err := s.board(ctx, b.ID)
	if err != nil {
		return leaderboard.Board{}, err
	}
	return *kept, nil
}

// EnsureDefaultBoard makes the default board unless there is one: higher first,
// sum, monthly, UTC.
func (s *Service) EnsureDefaultBoard(ctx context.Context) error {
	if _, err := s.store.Board(ctx, leaderboard.DefaultBoard); !errors.Is(err, leaderboard.ErrBoardNotFound) {
		return err
	}
	_, err := s.CreateBoard(ctx, leaderboard.Board{
		ID: leaderboard.DefaultBoard, Title: "Leaderboard", Policy: leaderboard.Sum, Unit: "points",
		Season: leaderboard.Schedule{Kind: leaderboard.Monthly, TimeZone: "UTC", Grace: leaderboard.DefaultGrace},
	})
	if errors.Is(err, leaderboard.ErrBoardExists) {
		return nil // another process was first, with settings of its own
	}
	return err
}

// Board returns a board, or [leaderboard.ErrBoardNotFound].
func (s *Service) Board(ctx context.Context, id leaderboard.BoardID) (leaderboard.Board, error) {
	b, err := s.board(ctx, id)
	if err != nil {
		return leaderboard.Board{}, err
	}
	return *b, nil
}

// Boards returns all boards by id.
func (s *Service) Boards(ctx context.Context) ([]leaderboard.Board, error) {
	return s.store.Boards(ctx)
}

// AmendBoard changes the settings of a board that may change; change is given
// the board as it is. A sealed season stays closed. Errors: those of
// [leaderboard.Board.Amend], [leaderboard.ErrBoardNotFound].
func (s *Service) AmendBoard(ctx context.Context, id leaderboard.BoardID, change func(*leaderboard.Board) error) (leaderboard.Board, error) {
	seasons, err := s.store.Seasons(ctx, id)
	if err != nil {
		return leaderboard.Board{}, err
	}
	defer s.boards.Delete(id)
	return s.store.AmendBoard(ctx, id, func(b *leaderboard.Board) error {
		if err := change(b); err != nil {
			return err
		}
		for _, r := range seasons {
			season, err := b.Season.ByID(r.Season)
			if err == nil && !r.SealedAt.IsZero() && !b.Closed(season, s.now()) {
				return &leaderboard.FieldError{Field: "season", Problem: fmt.Sprintf(
					"season %q is sealed, and would take results again until %v", r.Season, b.ClosesAt(season).UTC().Format(time.RFC3339))}
			}
		}
		return nil
	})
}

// DeleteBoard removes a board and all of its data, or returns
// [leaderboard.ErrBoardNotFound].
func (s *Service) DeleteBoard(ctx context.Context, id leaderboard.BoardID) error {
	seasons, err := s.store.Seasons(ctx, id)
	if err != nil && !errors.Is(err, leaderboard.ErrBoardNotFound) {
		return err
	}
	// Its ranks go first: if the index does not answer, the caller tries again, and
	// no board made later under the id finds them. Those that were loaded again
	// meanwhile go last.
	drop := func() error {
		for _, r := range seasons {
			if err := s.index.Drop(ctx, r.Scope); err != nil {
				return err
			}
		}
		return nil
	}
	if err := drop(); err != nil {
		return err
	}
	defer s.boards.Delete(id)
	if err := s.store.DeleteBoard(ctx, id); err != nil {
		return err
	}
	for _, r := range seasons {
		s.seasons.Delete(r.Scope)
		s.hub.notify(r.Scope)
	}
	return drop()
}

// Progress is told of the work done by a long operation: so many entries of a
// scope, all of them or so far.
type Progress func(scope leaderboard.Scope, done int64)

// Load fills the index with every season that is not sealed and not in it, and
// then makes [Service.Ready] true.
func (s *Service) Load(ctx context.Context, progress Progress) error {
	boards, err := s.store.Boards(ctx)
	if err != nil {
		return err
	}
	for i := range boards {
		b := &boards[i]
		seasons, err := s.store.Seasons(ctx, b.ID)
		if err != nil {
			return err
		}
		for _, r := range seasons {
			if !r.SealedAt.IsZero() {
				continue
			}
			loaded, err := s.index.Loaded(ctx, r.Scope)
			if err == nil && !loaded {
				err = s.rebuildIndex(ctx, b, r.Scope, progress)
			}
			if err != nil {
				if errors.Is(err, leaderboard.ErrRankUnavailable) {
					s.ready.Store(true)
				}
				return err
			}
		}
	}
	s.ready.Store(true)
	return nil
}

// Ready says whether Load is done, or has found that the index is not available:
// what can be answered without it can be asked then.
func (s *Service) Ready() bool { return s.ready.Load() }

// Settled says whether the index, and whoever asks it, knows of all that was
// applied; see [leaderboard.Index].
func (s *Service) Settled() bool { return s.index.Settled() }

// rebuildIndex fills the index's scope from the store.
func (s *Service) rebuildIndex(ctx context.Context, b *leaderboard.Board, scope leaderboard.Scope, progress Progress) error {
	done := int64(0)
	entries := func(yield func(leaderboard.Entry, error) bool) {
		for e, err := range s.store.Scan(ctx, scope) {
			if done++; progress != nil && done%100_000 == 0 {
				progress(scope, done)
			}
			if !yield(e, err) {
				return
			}
		}
	}
	if err := s.index.Rebuild(ctx, b, scope, leaderboard.Truncate(s.now()), entries); err != nil {
		return fmt.Errorf("ranking: index of %s/%s: %w", scope.Board, scope.Season, err)
	}
	if progress != nil {
		progress(scope, done)
	}
	return nil
}

// finish runs a write to its end: a caller that gives up stops waiting, not the
// write. Once the store has changed, the ranks must follow, or they would stay
// behind until the user's next result.
func finish[T any](ctx context.Context, s *Service, write func(context.Context) (T, error)) (T, error) {
	type answer struct {
		value    T
		err      error
		panicked any
	}
	var none T
	if err := ctx.Err(); err != nil {
		return none, err
	}
	done := make(chan answer, 1)
	s.unfinished.Go(func() {
		var a answer
		defer func() {
			a.panicked = recover() // for the caller, who may know what to do with it
			done <- a
		}()
		a.value, a.err = write(context.WithoutCancel(ctx))
	})
	select {
	case a := <-done:
		if a.panicked != nil {
			panic(a.panicked)
		}
		return a.value, a.err
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// Close waits for writes whose callers gave up, and ends what fills the index. It
// is called before the store and the index are closed, when nobody calls the
// service any more.
func (s *Service) Close() {
	s.end()
	s.unfinished.Wait()
}

// settle brings the ranks in step with entries: the index, or the final standings
// of a sealed season, amended for the reason. Those that did not change now may
// have been changed by a first try whose process died before it came here.
func (s *Service) settle(ctx context.Context, changed, unchanged []leaderboard.Entry, reason string) error {
	type entries struct{ changed, unchanged []leaderboard.Entry }
	byScope := map[leaderboard.Scope]*entries{}
	of := func(scope leaderboard.Scope) *entries {
		if byScope[scope] == nil {
			byScope[scope] = &entries{}
		}
		return byScope[scope]
	}
	for _, e := range changed {
		of(e.Scope).changed = append(of(e.Scope).changed, e)
	}
	for _, e := range unchanged {
		of(e.Scope).unchanged = append(of(e.Scope).unchanged, e)
	}
	for scope, e := range byScope {
		b, err := s.board(ctx, scope.Board)
		if errors.Is(err, leaderboard.ErrBoardNotFound) {
			continue // deleted meanwhile, with its ranks
		}
		if err != nil {
			return err
		}
		if len(e.changed) == 0 {
			there, err := s.inFinal(ctx, b, scope, e.unchanged)
			if err != nil {
				return err
			}
			if there {
				continue
			}
		}
		err = s.amendRanks(ctx, b, scope, reason, func() error {
			// At no time: if the index knows them, nothing has changed.
			if err := s.updateIndex(ctx, scope, time.Time{}, e.unchanged); err != nil || len(e.changed) == 0 {
				return err
			}
			defer s.hub.notify(scope)
			return s.updateIndex(ctx, scope, leaderboard.Truncate(s.now()), e.changed)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// entriesOf returns the entries that changes leave.
func entriesOf(changes []leaderboard.Change) []leaderboard.Entry {
	entries := make([]leaderboard.Entry, len(changes))
	for i := range changes {
		entries[i] = changes[i].After
	}
	return entries
}

// amendRanks makes the final standings of a sealed season again, for the reason,
// and does what is given for one that is not sealed.
//
// It comes after the entries changed, so that the change is in the final standings
// of a season that is being sealed meanwhile: see [leaderboard.SeasonStore].Amend.
func (s *Service) amendRanks(ctx context.Context, b *leaderboard.Board, scope leaderboard.Scope, reason string, open func() error) error {
	season, err := b.Season.ByID(scope.Season)
	if err != nil {
		return err
	}
	err = leaderboard.ErrNotSealed
	if s.mayBeSealed(season) {
		err = s.amend(ctx, b, scope, reason)
	}
	if errors.Is(err, leaderboard.ErrNotSealed) {
		return open()
	}
	return err
}

// updateIndex tells the index of entries. An index that is not available is no
// error: it will be filled from the store when it is back.
func (s *Service) updateIndex(ctx context.Context, scope leaderboard.Scope, at time.Time, entries []leaderboard.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	err := s.index.Update(ctx, scope, at, entries)
	if errors.Is(err, leaderboard.ErrRankUnavailable) {
		s.log.WarnContext(ctx, "rank index not updated", "err", err)
		return nil
	}
	return err
}
