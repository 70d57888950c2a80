package cql

import (
	"context"
	"fmt"
	"sync"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/combine"
)

// edition is what the row of a season says. All that is kept of a season is
// under its edition; deleting the season ends it, so that what comes later
// begins anew, whatever timestamps the old rows and their deletions have.
type edition struct {
	number  int
	open    bool  // there were results in this edition
	made    int64 // CreatedAt of the board that opened it, Unix microseconds
	buckets int
	swept   int // editions below it have been removed
	// lived: the board was there after the edition was seen open, so its deletion
	// ends the edition. It is not kept in the table.
	lived bool
}

// same says whether e and o are one edition.
func (e *edition) same(o *edition) bool {
	return e.number == o.number && e.open == o.open && e.made == o.made
}

// of says whether e is open, by board b.
func (e *edition) of(b *leaderboard.Board) bool {
	return e.open && e.made == b.CreatedAt.UnixMicro()
}

func (s *Store) readEdition(ctx context.Context, scope leaderboard.Scope) (edition, error) {
	var row seasonRow
	err := s.conn.read(ctx, op{selectSeason, []any{string(scope.Board), string(scope.Season)}}, row.dest(), func() bool { return true })
	return row.edition(), err
}

// seasonRow is a row of table seasons but for its key.
type seasonRow struct {
	number, opened *int
	made           *int64
	buckets, swept *int
}

func (r *seasonRow) dest() []any { return []any{&r.number, &r.opened, &r.made, &r.buckets, &r.swept} }

func (r *seasonRow) edition() edition {
	e := edition{number: orZero(r.number), swept: orZero(r.swept), made: orZero(r.made), buckets: orZero(r.buckets)}
	e.open = r.opened != nil && *r.opened == e.number
	return e
}

func orZero[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// editions keeps the editions of scopes as last read.
//
// A season may be deleted by another process at any time. So who works from a
// kept edition reads it again, while or after the work is done, and does the
// work anew if it changed: then the work was as if done before the deletion, or
// after. These reads are shared by all who wait for one ([combine.Combiner]), so that a busy
// scope is not read more often than one read takes.
type editions struct {
	reads combine.Combiner[leaderboard.Scope, *edition]

	mu   sync.Mutex
	kept map[leaderboard.Scope]edition
}

// last returns the edition as last read, and reads it if it never was.
func (es *editions) last(ctx context.Context, s leaderboard.Scope) (edition, error) {
	es.mu.Lock()
	e, ok := es.kept[s]
	es.mu.Unlock()
	if ok {
		return e, nil
	}
	return es.fresh(ctx, s)
}

// fresh returns the edition by a read that began after the call.
func (es *editions) fresh(ctx context.Context, s leaderboard.Scope) (edition, error) {
	var e edition
	if err := es.reads.Ask(ctx, s, &e); err != nil {
		return edition{}, fmt.Errorf("season %q of board %q: %w", s.Season, s.Board, err)
	}
	return e, nil
}

// keep keeps an edition as it was just read, and returns it with what is known.
func (es *editions) keep(s leaderboard.Scope, e edition) edition {
	es.mu.Lock()
	defer es.mu.Unlock()
	was := es.kept[s]
	e.lived = was.lived && was.same(&e)
	delete(es.kept, s)
	if e.open { // so that no more are kept than there are
		if es.kept == nil {
			es.kept = map[leaderboard.Scope]edition{}
		}
		es.kept[s] = e
	}
	return e
}

// readEditions reads an edition once for all who ask for it.
func (s *Store) readEditions(ctx context.Context, scope leaderboard.Scope, group []*edition) error {
	e, err := s.readEdition(ctx, scope)
	if err != nil {
		return err
	}
	e = s.editions.keep(scope, e)
	for _, to := range group {
		*to = e
	}
	return nil
}

// lived notes that the board of an edition was there after e was read.
func (es *editions) lived(s leaderboard.Scope, e edition) edition {
	es.mu.Lock()
	defer es.mu.Unlock()
	e.lived = true
	if k, ok := es.kept[s]; ok && k.same(&e) {
		k.lived = true
		es.kept[s] = k
	}
	return e
}

// opened returns the open edition of a scope, which it opens if need be. It
// returns [leaderboard.ErrBoardNotFound] if b was deleted.
//
// Who deletes b first closes it and then ends the editions that are open. A writer
// that found b before that may open one after: an open edition alone does not say
// that there is a board. If b is there after the edition was seen open, the
// deletion comes later and ends it.
func (s *Store) opened(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID) (edition, error) {
	scope := leaderboard.Scope{Board: b.ID, Season: season}
	e, err := s.editions.last(ctx, scope)
	if err != nil || e.lived && e.of(b) {
		return e, err
	}
	for {
		if e, err = s.editions.fresh(ctx, scope); err != nil {
			return edition{}, err
		}
		k, err := s.readBoard(ctx, b.ID)
		if err != nil {
			return edition{}, err
		}
		made := b.CreatedAt.UnixMicro()
		switch {
		case !sameBoard(&k.board, b), e.open && e.made > made:
			return edition{}, notFound(b.ID)
		case e.of(b):
			return s.editions.lived(scope, e), nil
		case e.open:
			// Left by a writer to an earlier board, too late for its deletion. Had b
			// opened this edition, it would say so, as the later board stands.
			if _, err := s.endEdition(ctx, scope, e); err != nil {
				return edition{}, err
			}
		default:
			err := s.conn.write(ctx, op{openSeason, []any{openTime(e.number, made), e.number, made, k.buckets, string(scope.Board), string(scope.Season)}})
			if err != nil {
				return edition{}, err
			}
		}
	}
}

func notFound(id leaderboard.BoardID) error {
	return fmt.Errorf("cql: board %q: %w", id, leaderboard.ErrBoardNotFound)
}

// within runs a read of what is kept of a scope, in its edition, once or, if the
// edition changes meanwhile, again. A scope that is not open has nothing to
// read; then f is not called.
func (s *Store) within(ctx context.Context, scope leaderboard.Scope, f func(context.Context, edition) error) error {
	e, err := s.editions.last(ctx, scope)
	for {
		if err != nil {
			return err
		}
		tried := e
		var failed error
		// The work and the read of the edition go side by side.
		err = s.each(ctx, 2, func(ctx context.Context, i int) (err error) {
			if i == 0 && tried.open {
				failed = f(ctx, tried)
			} else if i == 1 {
				e, err = s.editions.fresh(ctx, scope)
			}
			return err
		})
		if err == nil && e.same(&tried) && e.buckets == tried.buckets {
			return failed
		}
	}
}
