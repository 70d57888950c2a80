package cql

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/coalesce"
	"github.com/open-leaderboard/leaderboard/storage"
)

// An incarnation is a season from its creation to its deletion. Its number is in the keys of
// all its data, so old and new data never share cells.
type incarnation struct {
	number  int
	open    bool
	made    int64 // CreatedAt of its board, in Unix microseconds
	buckets int   // of each ladder
	swept   int   // the data of all incarnations with smaller numbers was removed
	// see [leaderboard.Board.Rules] and state.go
	rules int
	// boardSeen means that this store found the board after it read the open incarnation:
	// see openIncarnation. Only the cache has boardSeen and deletedAt.
	boardSeen bool
	// deletedAt is the time of the last deletion before this incarnation: of the season, or
	// of a board with its board id. It is set only if boardSeen is true.
	deletedAt time.Time
}

func (inc *incarnation) same(o *incarnation) bool {
	return inc.number == o.number && inc.open == o.open && inc.made == o.made && inc.rules == o.rules
}

// known returns the incarnation for package storage. No id of a board or season contains a tab.
func (inc *incarnation) known(key leaderboard.SeasonKey) storage.Incarnation {
	id := string(key.Board) + "\t" + string(key.Season) + "\t" + strconv.Itoa(inc.number)
	return storage.Incarnation{SeasonKey: key, ID: id, Deletions: inc.number, Open: inc.open, BoardMade: time.UnixMicro(inc.made).UTC(), Rules: inc.rules}
}

// Use sets the engine over the store.
func (s *Store) Use(e storage.Engine) { s.engine = e }

// Incarnation returns the cached incarnation if it may be old.
func (s *Store) Incarnation(ctx context.Context, key leaderboard.SeasonKey, mayBeOld bool) (storage.Incarnation, error) {
	read := s.incarnations.readAgain
	if mayBeOld {
		read = s.incarnations.cachedOrRead
	}
	inc, err := read(ctx, key)
	return inc.known(key), err
}

// Incarnations returns the open incarnations of a board's seasons.
func (s *Store) Incarnations(ctx context.Context, id leaderboard.BoardID) ([]storage.Incarnation, error) {
	rows, err := s.seasonRows(ctx, id)
	var all []storage.Incarnation
	for _, r := range rows {
		if r.open {
			all = append(all, r.known(leaderboard.SeasonKey{Board: id, Season: r.season}))
		}
	}
	return all, err
}

// OpenIncarnation returns an incarnation that is cached or open.
func (s *Store) OpenIncarnation(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID) (storage.Incarnation, error) {
	inc, err := s.openIncarnation(ctx, b, season, nil)
	return inc.known(leaderboard.SeasonKey{Board: b.ID, Season: season}), err
}

func (inc *incarnation) openFor(b *leaderboard.Board) bool {
	return inc.open && inc.made == b.CreatedAt.UnixMicro()
}

func (s *Store) readIncarnation(ctx context.Context, seasonKey leaderboard.SeasonKey) (incarnation, error) {
	var row seasonRow
	err := s.conn.read(ctx, op{selectSeason, []any{string(seasonKey.Board), string(seasonKey.Season)}}, row.dest(), func() bool { return true })
	return row.incarnation(), err
}

type seasonRow struct {
	number, opened *int
	made           *int64
	buckets, swept *int
	rules          *int64
}

func (r *seasonRow) dest() []any {
	return []any{&r.number, &r.opened, &r.made, &r.buckets, &r.swept, &r.rules}
}

const rulesBits = 8

// rulesCell returns the value of a cell of the column `rules`. The value is also the cell's
// timestamp. Later incarnations ignore the cell, because it contains the number.
func rulesCell(number, rules int) int64 { return int64(number)<<rulesBits | int64(rules) }

func (r *seasonRow) incarnation() incarnation {
	inc := incarnation{number: orZero(r.number), swept: orZero(r.swept), made: orZero(r.made), buckets: orZero(r.buckets)}
	inc.open = r.opened != nil && *r.opened == inc.number
	if cell := orZero(r.rules); int(cell>>rulesBits) == inc.number {
		inc.rules = int(cell & (1<<rulesBits - 1))
	}
	return inc
}

func orZero[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// incarnations caches the open incarnations that the store has read.
//
// A cached incarnation that has ended does no harm. Apply and withIncarnation start from a
// cached incarnation, and later read the season's row. If the row has changed, the call
// starts again. If not, only a deletion after this read can end the incarnation:
//
//   - Apply may write into the ended incarnation. The outcome is that of an Apply before
//     the deletion.
//   - Each caller of withIncarnation reads with one statement: data from before the
//     deletion, or none. HasUsers may need two statements. If it finds a user, its answer
//     is from before the deletion, otherwise from after it.
//
// For final standings, see package finals. Amend changes only the seal of the incarnation that
// it has read.
type incarnations struct {
	reads coalesce.Group[leaderboard.SeasonKey, *incarnation]

	mu     sync.Mutex
	cached map[leaderboard.SeasonKey]incarnation
}

func (ins *incarnations) cachedOrRead(ctx context.Context, s leaderboard.SeasonKey) (incarnation, error) {
	ins.mu.Lock()
	inc, ok := ins.cached[s]
	ins.mu.Unlock()
	if ok {
		return inc, nil
	}
	return ins.readAgain(ctx, s)
}

// The read of readAgain begins after the call. Concurrent calls share a read.
func (ins *incarnations) readAgain(ctx context.Context, s leaderboard.SeasonKey) (incarnation, error) {
	var inc incarnation
	if err := ins.reads.Do(ctx, s, &inc); err != nil {
		return incarnation{}, fmt.Errorf("season %q of board %q: %w", s.Season, s.Board, err)
	}
	return inc, nil
}

// update caches an incarnation that was just read.
func (ins *incarnations) update(s leaderboard.SeasonKey, inc incarnation) incarnation {
	ins.mu.Lock()
	defer ins.mu.Unlock()
	previous := ins.cached[s]
	if previous.boardSeen && previous.same(&inc) {
		inc.boardSeen, inc.deletedAt = true, previous.deletedAt
	}
	delete(ins.cached, s)
	// cache open incarnations only: otherwise requests with unknown ids could fill the memory
	if inc.open {
		if ins.cached == nil {
			ins.cached = map[leaderboard.SeasonKey]incarnation{}
		}
		ins.cached[s] = inc
	}
	return inc
}

func (s *Store) readIncarnations(ctx context.Context, seasonKey leaderboard.SeasonKey, group []*incarnation) error {
	inc, err := s.readIncarnation(ctx, seasonKey)
	if err != nil {
		return err
	}
	inc = s.incarnations.update(seasonKey, inc)
	for _, result := range group {
		*result = inc
	}
	return nil
}

func (ins *incarnations) setBoardSeen(s leaderboard.SeasonKey, inc incarnation) incarnation {
	ins.mu.Lock()
	defer ins.mu.Unlock()
	inc.boardSeen = true
	if cached, ok := ins.cached[s]; ok && cached.same(&inc) {
		cached.boardSeen, cached.deletedAt = true, inc.deletedAt
		ins.cached[s] = cached
	}
	return inc
}

// openIncarnation returns the open incarnation of a season of b, and opens one if
// necessary. Before that, it calls mayOpen, unless it is nil. Errors:
// [leaderboard.ErrBoardNotFound] if b was deleted; those of mayOpen.
//
// No incarnation of a deleted board stays in use. DeleteBoard first marks the board as
// deleted, and then ends the open incarnations. A writer that cached the board may open an
// incarnation after both steps. So openIncarnation first reads the open incarnation, and
// then the board. If the board is not marked, a later DeleteBoard finds this incarnation and
// ends it.
//
// StartRecount may have missed the incarnation. So openIncarnation raises its rules, unless
// the season is sealed.
func (s *Store) openIncarnation(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID,
	mayOpen func(context.Context, *leaderboard.Board) error,
) (incarnation, error) {
	seasonKey := leaderboard.SeasonKey{Board: b.ID, Season: season}
	inc, err := s.incarnations.cachedOrRead(ctx, seasonKey)
	if err != nil || inc.boardSeen && inc.openFor(b) {
		return inc, err
	}
	for {
		if inc, err = s.incarnations.readAgain(ctx, seasonKey); err != nil {
			return incarnation{}, err
		}
		stored, err := s.readBoard(ctx, b.ID)
		if err != nil {
			return incarnation{}, err
		}
		made := b.CreatedAt.UnixMicro()
		switch {
		case !sameBoard(&stored.board, b), inc.open && inc.made > made:
			return incarnation{}, errBoardNotFound(b.ID)
		case inc.openFor(b):
			if raised, err := s.raiseRules(ctx, seasonKey, inc, stored.board.Rules()); err != nil {
				return incarnation{}, err
			} else if raised {
				continue
			}
			// A deletion writes its time before it ends an incarnation. So this read finds
			// the deletion of the previous incarnation.
			if inc.deletedAt, err = s.deletedAt(ctx, seasonKey); err != nil {
				return incarnation{}, err
			}
			return s.incarnations.setBoardSeen(seasonKey, inc), nil
		case inc.open:
			// A writer opened this incarnation for a deleted board with the same id. No
			// writer has opened it for b: the cells of b, the later board, would prevail
			// (see openTime).
			if _, err := s.endIncarnation(ctx, seasonKey, inc); err != nil {
				return incarnation{}, err
			}
		default:
			if mayOpen != nil {
				if err := mayOpen(ctx, b); err != nil {
					return incarnation{}, err
				}
			}
			// sweeps use the number of buckets to find all data
			err = s.conn.write(ctx,
				op{setBuckets, []any{int64(stored.buckets), stored.buckets, string(seasonKey.Board), deletionRow(seasonKey.Season)}},
				op{openSeason, []any{openTime(inc.number, made), inc.number, made, stored.buckets, string(seasonKey.Board), string(seasonKey.Season)}})
			if err != nil {
				return incarnation{}, err
			}
		}
	}
}

// raiseRules raises the rules of an incarnation, unless the season is sealed. It reports
// whether it wrote them.
func (s *Store) raiseRules(ctx context.Context, seasonKey leaderboard.SeasonKey, inc incarnation, rules int) (bool, error) {
	if inc.rules >= rules {
		return false, nil
	}
	known := inc.known(seasonKey)
	if _, sealed, err := s.engine.Overtake(ctx, &known); err != nil || sealed {
		return false, err
	}
	cell := rulesCell(inc.number, rules)
	return true, s.conn.write(ctx, op{setRules, []any{cell, cell, string(seasonKey.Board), string(seasonKey.Season)}})
}

// boardWithRules returns b with the rules of an incarnation. Errors:
// [leaderboard.ErrUnavailable] if the changed board has not arrived in this data center.
func (s *Store) boardWithRules(ctx context.Context, b *leaderboard.Board, inc incarnation) (*leaderboard.Board, error) {
	if inc.rules > b.Rules() {
		var err error
		if b, err = s.liveBoard(ctx, b); err != nil {
			return nil, err
		}
		if inc.rules > b.Rules() {
			return nil, fmt.Errorf("cql: board %q: a change of its divisions has not arrived in this data center yet; try again: %w", b.ID, leaderboard.ErrUnavailable)
		}
	}
	return b.WithRules(inc.rules), nil
}

// StartRecount raises the rules of b's open seasons that are not sealed. It includes seasons without
// users: another process may be registering the first user. It returns all open seasons that now
// have the rules of b or greater ones, including sealed seasons.
func (s *Store) StartRecount(ctx context.Context, b *leaderboard.Board) ([]leaderboard.SeasonID, error) {
	rows, err := s.seasonRows(ctx, b.ID)
	if err != nil {
		return nil, err
	}
	rows = slices.DeleteFunc(rows, func(r seasonIncarnation) bool { return !r.openFor(b) })
	hasRules := make([]bool, len(rows))
	if err := s.forEach(ctx, len(rows), func(ctx context.Context, i int) error {
		raised, err := s.raiseRules(ctx, leaderboard.SeasonKey{Board: b.ID, Season: rows[i].season}, rows[i].incarnation, b.Rules())
		hasRules[i] = raised || rows[i].rules >= b.Rules()
		return err
	}); err != nil {
		return nil, err
	}
	var seasons []leaderboard.SeasonID
	for i := range rows {
		if hasRules[i] {
			seasons = append(seasons, rows[i].season)
		}
	}
	return seasons, nil
}

// deletionRow returns the key of the row of table seasons that records the deletions of a
// season, or of the board if the season id is empty. The row's column `board_made` is the
// time of the last deletion. The column `buckets` is the greatest number of buckets of an
// incarnation. The row is never open, and no season id contains a tab.
func deletionRow(season leaderboard.SeasonID) string { return "\t" + string(season) }

func (s *Store) setDeleted(ctx context.Context, seasonKey leaderboard.SeasonKey, at time.Time) error {
	micros := at.UnixMicro()
	if micros <= 0 {
		return nil
	}
	return s.conn.write(ctx, op{setDeleted, []any{micros, micros, string(seasonKey.Board), deletionRow(seasonKey.Season)}})
}

func (s *Store) deletedAt(ctx context.Context, seasonKey leaderboard.SeasonKey) (time.Time, error) {
	var last, micros int64
	q := op{selectDeleted, []any{string(seasonKey.Board), []string{deletionRow(""), deletionRow(seasonKey.Season)}}}
	err := s.conn.read(ctx, q, []any{&micros}, func() bool { last = max(last, micros); return true })
	if err != nil || last == 0 {
		return time.Time{}, err
	}
	return time.UnixMicro(last).UTC(), nil
}

// mostBuckets returns the greatest number of buckets of any incarnation of a season.
func (s *Store) mostBuckets(ctx context.Context, seasonKey leaderboard.SeasonKey) (int, error) {
	var buckets *int
	err := s.conn.read(ctx, op{selectBuckets, []any{string(seasonKey.Board), deletionRow(seasonKey.Season)}}, []any{&buckets}, func() bool { return true })
	return orZero(buckets), err
}

func errBoardNotFound(id leaderboard.BoardID) error {
	return fmt.Errorf("cql: board %q: %w", id, leaderboard.ErrBoardNotFound)
}

// withIncarnation runs f on the cached incarnation, and concurrently reads the season's
// row. If the row differs, withIncarnation starts again. If no incarnation is open, it
// returns a zero value. f must read with one statement, except in HasUsers: see
// incarnations.
func withIncarnation[T any](ctx context.Context, s *Store, seasonKey leaderboard.SeasonKey, f func(context.Context, incarnation) (T, error)) (T, error) {
	inc, err := s.incarnations.cachedOrRead(ctx, seasonKey)
	for {
		var value T
		if err != nil {
			return value, err
		}
		previous := inc
		var readErr error
		err = s.forEach(ctx, 2, func(ctx context.Context, i int) (err error) {
			if i == 0 && previous.open {
				value, readErr = f(ctx, previous)
			} else if i == 1 {
				inc, err = s.incarnations.readAgain(ctx, seasonKey)
			}
			return err
		})
		if err == nil && inc.same(&previous) && inc.buckets == previous.buckets {
			return value, readErr
		}
	}
}
