package cql

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/coalesce"
)

// incarnation is the content of a season's row: one life of the season. All data of
// the season is stored under the number of the incarnation. Deleting the season ends
// the incarnation, and the next result opens another one. So the timestamps of old
// rows, and of their deletions, cannot affect new data.
type incarnation struct {
	number  int
	open    bool  // opened, for a first result, and not yet ended
	made    int64 // CreatedAt of the board for which it was opened, in Unix microseconds
	buckets int   // the number of partitions of each ladder
	swept   int   // the data of incarnations below this number has been removed
	// lived means that this store read the incarnation as open, and after that found
	// that its board existed. Therefore a later deletion of the board also ends the
	// incarnation: see opened. The flag is not stored.
	lived bool
	// deletedAt is the time of the last deletion of the season or of a board with the
	// board's id. It is known if lived is set. See deletionRow.
	deletedAt time.Time
}

// same reports whether inc and o are the same incarnation.
func (inc *incarnation) same(o *incarnation) bool {
	return inc.number == o.number && inc.open == o.open && inc.made == o.made
}

// of reports whether inc is open and was opened for board b.
func (inc *incarnation) of(b *leaderboard.Board) bool {
	return inc.open && inc.made == b.CreatedAt.UnixMicro()
}

func (s *Store) readIncarnation(ctx context.Context, seasonKey leaderboard.SeasonKey) (incarnation, error) {
	var row seasonRow
	err := s.conn.read(ctx, op{selectSeason, []any{string(seasonKey.Board), string(seasonKey.Season)}}, row.dest(), func() bool { return true })
	return row.incarnation(), err
}

// seasonRow is a row of table seasons without its key.
type seasonRow struct {
	number, opened *int
	made           *int64
	buckets, swept *int
}

func (r *seasonRow) dest() []any { return []any{&r.number, &r.opened, &r.made, &r.buckets, &r.swept} }

func (r *seasonRow) incarnation() incarnation {
	inc := incarnation{number: orZero(r.number), swept: orZero(r.swept), made: orZero(r.made), buckets: orZero(r.buckets)}
	inc.open = r.opened != nil && *r.opened == inc.number
	return inc
}

func orZero[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// incarnations caches the incarnations of seasons as last read.
//
// Another process may delete a season at any time, so a cached incarnation may have
// ended. Apply, inFinal and the callers of within start from a cached incarnation. They
// therefore read the season's row again, and repeat the work if the incarnation changed.
// If it has not changed, it was still open at that read, and only a deletion that ends
// it later can affect the work:
//
//   - Data that Apply then writes belong to the ended incarnation. So the outcome is
//     that of an Apply before the deletion.
//   - The callers of within read data with one statement. It returns the data as before
//     the deletion, or finds them removed, as after it.
//   - Reads of final standings need several statements. inFinal reads the row after
//     them, so a deletion that ends the incarnation later cannot affect them.
//
// Seal also reads the row again: see there. Amend changes the seal of the incarnation
// from which it starts. Concurrent calls share the reads of a season's row
// ([coalesce.Group]), so at most one read of a row runs at once.
type incarnations struct {
	reads coalesce.Group[leaderboard.SeasonKey, *incarnation]

	mu     sync.Mutex
	cached map[leaderboard.SeasonKey]incarnation
}

// last returns the cached incarnation of a season, or reads it if none is cached.
func (ins *incarnations) last(ctx context.Context, s leaderboard.SeasonKey) (incarnation, error) {
	ins.mu.Lock()
	inc, ok := ins.cached[s]
	ins.mu.Unlock()
	if ok {
		return inc, nil
	}
	return ins.fresh(ctx, s)
}

// fresh returns the incarnation from a read that starts after fresh is called.
func (ins *incarnations) fresh(ctx context.Context, s leaderboard.SeasonKey) (incarnation, error) {
	var inc incarnation
	if err := ins.reads.Do(ctx, s, &inc); err != nil {
		return incarnation{}, fmt.Errorf("season %q of board %q: %w", s.Season, s.Board, err)
	}
	return inc, nil
}

// update caches an incarnation that was just read, and returns it with its lived flag.
func (ins *incarnations) update(s leaderboard.SeasonKey, inc incarnation) incarnation {
	ins.mu.Lock()
	defer ins.mu.Unlock()
	was := ins.cached[s]
	if was.lived && was.same(&inc) {
		inc.lived, inc.deletedAt = true, was.deletedAt
	}
	delete(ins.cached, s)
	// Only open seasons are cached: otherwise requests with invented season ids would
	// fill the memory.
	if inc.open {
		if ins.cached == nil {
			ins.cached = map[leaderboard.SeasonKey]incarnation{}
		}
		ins.cached[s] = inc
	}
	return inc
}

// readIncarnations reads an incarnation once for a group of concurrent calls.
func (s *Store) readIncarnations(ctx context.Context, seasonKey leaderboard.SeasonKey, group []*incarnation) error {
	inc, err := s.readIncarnation(ctx, seasonKey)
	if err != nil {
		return err
	}
	inc = s.incarnations.update(seasonKey, inc)
	for _, to := range group {
		*to = inc
	}
	return nil
}

// lived records that the board of inc existed after inc was read, and returns inc
// with its lived flag set.
func (ins *incarnations) lived(s leaderboard.SeasonKey, inc incarnation) incarnation {
	ins.mu.Lock()
	defer ins.mu.Unlock()
	inc.lived = true
	if k, ok := ins.cached[s]; ok && k.same(&inc) {
		k.lived, k.deletedAt = true, inc.deletedAt
		ins.cached[s] = k
	}
	return inc
}

// opened returns the open incarnation of a season of b. If there is none, it opens
// one. It returns [leaderboard.ErrBoardNotFound] if b was deleted.
//
// DeleteBoard first marks b as deleted, and then ends the open incarnations. A writer
// that read b earlier may still open an incarnation after both steps. An open
// incarnation is therefore no proof that its board exists. So opened reads the
// board after it has read that the incarnation is open. If the board still exists,
// every deletion marks the board after the incarnation was opened, and therefore ends
// this incarnation too.
func (s *Store) opened(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID) (incarnation, error) {
	seasonKey := leaderboard.SeasonKey{Board: b.ID, Season: season}
	inc, err := s.incarnations.last(ctx, seasonKey)
	if err != nil || inc.lived && inc.of(b) {
		return inc, err
	}
	for {
		if inc, err = s.incarnations.fresh(ctx, seasonKey); err != nil {
			return incarnation{}, err
		}
		k, err := s.readBoard(ctx, b.ID)
		if err != nil {
			return incarnation{}, err
		}
		made := b.CreatedAt.UnixMicro()
		switch {
		case !sameBoard(&k.board, b), inc.open && inc.made > made:
			return incarnation{}, notFound(b.ID)
		case inc.of(b):
			// Deletions write their time before they end the incarnation. So the times of all
			// deletions before this incarnation are found here.
			if inc.deletedAt, err = s.deletedAt(ctx, seasonKey); err != nil {
				return incarnation{}, err
			}
			return s.incarnations.lived(seasonKey, inc), nil
		case inc.open:
			// This incarnation was opened for a deleted board with the same id, after the
			// deletion had ended that board's open incarnations. No writer has opened it for
			// b. Otherwise inc.made would be b's creation time, because the cells written for
			// the board created later prevail (see openTime).
			if _, err := s.endIncarnation(ctx, seasonKey, inc); err != nil {
				return incarnation{}, err
			}
		default:
			err := s.conn.write(ctx, op{openSeason, []any{openTime(inc.number, made), inc.number, made, k.buckets, string(seasonKey.Board), string(seasonKey.Season)}})
			if err != nil {
				return incarnation{}, err
			}
		}
	}
}

// deletionRow returns the key of the row of table seasons whose column board_made has the
// time of the last deletion of a season, or of its board if the season is empty. The tab
// distinguishes it from the keys of seasons, whose ids are printable. Such a row is never open, so readers of
// seasons ignore it.
func deletionRow(season leaderboard.SeasonID) string { return "\t" + string(season) }

// setDeleted records the deletion of a season, or of a board if the season is empty,
// unless at is zero.
func (s *Store) setDeleted(ctx context.Context, seasonKey leaderboard.SeasonKey, at time.Time) error {
	micros := at.UnixMicro()
	if micros <= 0 {
		return nil
	}
	return s.conn.write(ctx, op{setDeleted, []any{micros, micros, string(seasonKey.Board), deletionRow(seasonKey.Season)}})
}

// deletedAt returns the time of the last deletion of a season or of its board, or zero.
func (s *Store) deletedAt(ctx context.Context, seasonKey leaderboard.SeasonKey) (time.Time, error) {
	var last, micros int64
	q := op{selectDeleted, []any{string(seasonKey.Board), []string{deletionRow(""), deletionRow(seasonKey.Season)}}}
	err := s.conn.read(ctx, q, []any{&micros}, func() bool { last = max(last, micros); return true })
	if err != nil || last == 0 {
		return time.Time{}, err
	}
	return time.UnixMicro(last).UTC(), nil
}

func notFound(id leaderboard.BoardID) error {
	return fmt.Errorf("cql: board %q: %w", id, leaderboard.ErrBoardNotFound)
}

// within runs f, which reads the data of an incarnation, and concurrently reads the
// season's row. If the row shows another incarnation than f read, within runs f again
// with that incarnation. within does not call f if no incarnation is open, because the
// season then has no data. A deletion that begins after within has read the row may
// remove data while f still reads. So f must read with one statement: see incarnations.
func (s *Store) within(ctx context.Context, seasonKey leaderboard.SeasonKey, f func(context.Context, incarnation) error) error {
	inc, err := s.incarnations.last(ctx, seasonKey)
	for {
		if err != nil {
			return err
		}
		tried := inc
		var failed error
		err = s.each(ctx, 2, func(ctx context.Context, i int) (err error) {
			if i == 0 && tried.open {
				failed = f(ctx, tried)
			} else if i == 1 {
				inc, err = s.incarnations.fresh(ctx, seasonKey)
			}
			return err
		})
		if err == nil && inc.same(&tried) && inc.buckets == tried.buckets {
			return failed
		}
	}
}
