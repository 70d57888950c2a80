package cql

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/coalesce"
)

// An incarnation is one life of a season. Its number is in the key of all data of the
// season. A deletion of the season ends the incarnation, and the next result opens another.
// So old and new data never share cells.
type incarnation struct {
	number  int
	open    bool
	made    int64 // CreatedAt of its board, in Unix microseconds
	buckets int   // of each ladder
	swept   int   // the data of all smaller numbers were removed
	// see [leaderboard.Board.Rules] and state.go
	rules int
	// boardSeen means that this store found the board after it read the open incarnation:
	// see openIncarnation. The table does not have boardSeen.
	boardSeen bool
	// deletedAt is the time of the last deletion of the season or of a board with its id,
	// before this incarnation. It is set only if boardSeen is true.
	deletedAt time.Time
}

func (inc *incarnation) same(o *incarnation) bool {
	return inc.number == o.number && inc.open == o.open && inc.made == o.made && inc.rules == o.rules
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
// timestamp. It has the incarnation's number, so that a later incarnation ignores the cell.
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
// A cached incarnation may have ended. This comment shows that its use does no harm. Apply
// and withIncarnation start from it, and later read the season's row. If the row has
// changed, they start again. If not, only a later deletion matters:
//
//   - Apply may write into the ended incarnation. This is like an Apply before the
//     deletion.
//   - The callers of withIncarnation read with one statement: data from before the
//     deletion, or none. The function hasUser may need two statements, but stops at the
//     first user.
//
// For final standings, see finalread.go and writeFinal. Amend changes only the seal of its
// incarnation.
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

// The read of readAgain starts after the call, and concurrent calls share it.
func (ins *incarnations) readAgain(ctx context.Context, s leaderboard.SeasonKey) (incarnation, error) {
	var inc incarnation
	if err := ins.reads.Do(ctx, s, &inc); err != nil {
		return incarnation{}, fmt.Errorf("season %q of board %q: %w", s.Season, s.Board, err)
	}
	return inc, nil
}

// update caches an incarnation that was just read. If the cache has it already, update
// keeps the cached boardSeen and deletedAt.
func (ins *incarnations) update(s leaderboard.SeasonKey, inc incarnation) incarnation {
	ins.mu.Lock()
	defer ins.mu.Unlock()
	previous := ins.cached[s]
	if previous.boardSeen && previous.same(&inc) {
		inc.boardSeen, inc.deletedAt = true, previous.deletedAt
	}
	delete(ins.cached, s)
	// cache open incarnations only: requests with unknown ids could fill the memory
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
// necessary. Errors: [leaderboard.ErrBoardNotFound] if b was deleted.
//
// No incarnation of a deleted board stays in use. DeleteBoard marks b as deleted, and then
// ends the open incarnations. A writer that read b before may open an incarnation after
// that. So openIncarnation first reads the open incarnation, and then the board. If the
// board exists then, a deletion can only mark it later, and ends this incarnation.
//
// StartRecount may have missed the incarnation. So openIncarnation raises its rules, unless
// the season is sealed.
func (s *Store) openIncarnation(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID) (incarnation, error) {
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
			// A deletion writes its time before it ends the incarnation, so this read finds
			// it.
			if inc.deletedAt, err = s.deletedAt(ctx, seasonKey); err != nil {
				return incarnation{}, err
			}
			return s.incarnations.setBoardSeen(seasonKey, inc), nil
		case inc.open:
			// A writer opened this incarnation for a deleted board with the same id. No
			// writer has opened it for b: otherwise the cells of b, the later board, would
			// prevail (see openTime).
			if _, err := s.endIncarnation(ctx, seasonKey, inc); err != nil {
				return incarnation{}, err
			}
		default:
			// sweeps use the number of buckets to find all data
			err := s.conn.write(ctx,
				op{setBuckets, []any{int64(stored.buckets), stored.buckets, string(seasonKey.Board), deletionRow(seasonKey.Season)}},
				op{openSeason, []any{openTime(inc.number, made), inc.number, made, stored.buckets, string(seasonKey.Board), string(seasonKey.Season)}})
			if err != nil {
				return incarnation{}, err
			}
		}
	}
}

// raiseRules raises the rules of an incarnation, unless the season is sealed. It reports
// whether it has written the rules.
func (s *Store) raiseRules(ctx context.Context, seasonKey leaderboard.SeasonKey, inc incarnation, rules int) (bool, error) {
	if inc.rules >= rules {
		return false, nil
	}
	x, err := s.readSeal(ctx, seasonKey, inc)
	if err != nil || x.sealed() {
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

// StartRecount gives the rules of b to all open seasons that are not sealed. A season
// without users gets the rules too: another process may be registering the first user.
// Other data centers repeat StartRecount (see changes.go).
func (s *Store) StartRecount(ctx context.Context, b *leaderboard.Board) ([]leaderboard.SeasonID, error) {
	if _, err := s.liveBoard(ctx, b); err != nil {
		return nil, err
	}
	c := storedChange{Board: b.ID, Made: b.CreatedAt.UnixMicro(), Rules: b.Rules()}
	if err := s.announceElsewhere(ctx, &c); err != nil {
		return nil, err
	}
	return s.raiseAllRules(ctx, b)
}

// raiseAllRules gives the rules of b to its open seasons that are not sealed. It returns
// the open seasons with these or greater rules, sealed ones too.
func (s *Store) raiseAllRules(ctx context.Context, b *leaderboard.Board) ([]leaderboard.SeasonID, error) {
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

// deletionRow returns the key of a row of the table seasons that records deletions: of a
// season, or of the board if the id is empty. Its column `board_made` is the time of the
// last deletion. Its column `buckets` is the greatest number of buckets of an incarnation.
// No season id contains a tab, and the row is never open.
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

// mostBuckets returns the greatest number of buckets of an incarnation, or 0 if only older
// programs opened one.
func (s *Store) mostBuckets(ctx context.Context, seasonKey leaderboard.SeasonKey) (int, error) {
	var buckets *int
	err := s.conn.read(ctx, op{selectBuckets, []any{string(seasonKey.Board), deletionRow(seasonKey.Season)}}, []any{&buckets}, func() bool { return true })
	return orZero(buckets), err
}

func errBoardNotFound(id leaderboard.BoardID) error {
	return fmt.Errorf("cql: board %q: %w", id, leaderboard.ErrBoardNotFound)
}

// withIncarnation runs f on the open incarnation, and concurrently reads the season's row.
// If the row has changed, it starts again. If no incarnation is open, it returns a zero
// value. f must read with one statement: see incarnations, also for the exception hasUser.
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
