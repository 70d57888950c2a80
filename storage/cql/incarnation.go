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

// An incarnation is one life of a season, from a row of table seasons. Its number is in the
// key of all data of the season. Deleting the season ends the incarnation, and the next
// result opens another one. So old and new data never share cells.
type incarnation struct {
	number  int
	open    bool  // a first result has opened it, and it has not ended
	made    int64 // CreatedAt of the board for which it was opened, in Unix microseconds
	buckets int   // the number of partitions of each ladder
	swept   int   // the data of all incarnations below this number was removed
	// rules determines the divisions that writers use: see [leaderboard.Board.Rules] and
	// state.go.
	rules int
	// boardSeen means that this store first read the incarnation as open, and then found
	// its board. So every later deletion of the board ends the incarnation: see
	// openIncarnation. The table does not have boardSeen.
	boardSeen bool
	// deletedAt is the time of the last deletion of the season, or of a board with the
	// board's id, before this incarnation. It is set only if boardSeen is true.
	deletedAt time.Time
}

func (inc *incarnation) same(o *incarnation) bool {
	return inc.number == o.number && inc.open == o.open && inc.made == o.made && inc.rules == o.rules
}

func (inc *incarnation) openFor(b *leaderboard.Board) bool {
	return inc.open && inc.made == b.CreatedAt.UnixMicro()
}

// readIncarnation reads the season's row. A season without a row has an incarnation that is
// not open.
func (s *Store) readIncarnation(ctx context.Context, seasonKey leaderboard.SeasonKey) (incarnation, error) {
	var row seasonRow
	err := s.conn.read(ctx, op{selectSeason, []any{string(seasonKey.Board), string(seasonKey.Season)}}, row.dest(), func() bool { return true })
	return row.incarnation(), err
}

type seasonRow struct {
	number, opened *int
	made           *int64
	buckets, swept *int
	rules          *int64 // see rulesCell
}

func (r *seasonRow) dest() []any {
	return []any{&r.number, &r.opened, &r.made, &r.buckets, &r.swept, &r.rules}
}

const rulesBits = 8

// rulesCell returns a cell of column rules. Its lowest rulesBits bits are the rules, the
// others the incarnation's number, so that a later incarnation ignores the cell. The cell
// is also its own timestamp: the greatest prevails.
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

// incarnations caches the latest incarnation that the store has read of each open season.
//
// A cached incarnation may have ended. Apply and withIncarnation start from it, later read
// the season's row, and start again if the incarnation has changed. Otherwise it was open
// at that read, and only a later deletion matters:
//
//   - Apply may write into the incarnation after its end. This is like an Apply before the
//     deletion.
//   - The callers of withIncarnation read with one statement, which returns the data from
//     before the deletion, or none. hasUser may need two statements, but stops at the first
//     user.
//
// Reads of final standings notice a deletion by the seal: see finalread.go. Seal reads the
// row again: see writeFinal. Amend changes only the seal of the incarnation from which it
// starts.
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

// readAgain reads the incarnation of a season. The read starts after the call, and
// concurrent calls share it.
func (ins *incarnations) readAgain(ctx context.Context, s leaderboard.SeasonKey) (incarnation, error) {
	var inc incarnation
	if err := ins.reads.Do(ctx, s, &inc); err != nil {
		return incarnation{}, fmt.Errorf("season %q of board %q: %w", s.Season, s.Board, err)
	}
	return inc, nil
}

// update caches an incarnation that was just read. It keeps boardSeen and deletedAt of the
// same cached incarnation.
func (ins *incarnations) update(s leaderboard.SeasonKey, inc incarnation) incarnation {
	ins.mu.Lock()
	defer ins.mu.Unlock()
	previous := ins.cached[s]
	if previous.boardSeen && previous.same(&inc) {
		inc.boardSeen, inc.deletedAt = true, previous.deletedAt
	}
	delete(ins.cached, s)
	// Other seasons are not cached, because requests with unknown ids could fill the
	// memory.
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

// setBoardSeen records that the board of inc existed after inc was read.
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
// DeleteBoard marks b as deleted, and then ends the open incarnations. A writer that read b
// before may still open an incarnation after both steps. So openIncarnation first reads
// that the incarnation is open, and then reads the board. If the board exists, a deletion
// can only mark it later. This deletion then finds the open incarnation and ends it.
//
// StartRecount may have missed an incarnation that was opened after a change of divisions.
// So openIncarnation raises its rules, unless the season is sealed.
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
			// A deletion writes its time before it ends the incarnation. So this read finds
			// the times of all deletions that ended earlier incarnations.
			if inc.deletedAt, err = s.deletedAt(ctx, seasonKey); err != nil {
				return incarnation{}, err
			}
			return s.incarnations.setBoardSeen(seasonKey, inc), nil
		case inc.open:
			// A writer opened this incarnation for a deleted board with the same id, after
			// the deletion ended the open incarnations. No writer has opened it for b:
			// otherwise inc.made would be the creation time of b, because the cells of the
			// later board prevail (see openTime).
			if _, err := s.endIncarnation(ctx, seasonKey, inc); err != nil {
				return incarnation{}, err
			}
		default:
			// Sweeps use the number of buckets to find all data.
			err := s.conn.write(ctx,
				op{setBuckets, []any{int64(stored.buckets), stored.buckets, string(seasonKey.Board), deletionRow(seasonKey.Season)}},
				op{openSeason, []any{openTime(inc.number, made), inc.number, made, stored.buckets, string(seasonKey.Board), string(seasonKey.Season)}})
			if err != nil {
				return incarnation{}, err
			}
		}
	}
}

// raiseRules gives an incarnation the rules, and reports whether it has written them. It
// does not lower rules, and does not change a sealed season.
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

// boardWithRules returns b with the rules of an incarnation. If b is older than the rules,
// it reads the board again. Errors: [leaderboard.ErrUnavailable] if the changed board has
// not arrived in this data center.
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

// StartRecount gives the rules of b to all open seasons that are not sealed, also to
// seasons without users: another process may be about to register the first one.
// openIncarnation does it in seasons that are opened later. Other data centers repeat
// StartRecount (changes.go).
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

// raiseAllRules gives the rules of b to all open seasons of b that are not sealed. It
// returns the open seasons with these or greater rules, sealed ones too.
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

// deletionRow returns the key of a row of table seasons that records deletions of a season,
// or of the board if the id is empty. board_made of the row is the time of the last
// deletion. buckets is the greatest number of buckets of an incarnation of the season. No
// season id contains a tab. The row is never open, so readers of seasons ignore it.
func deletionRow(season leaderboard.SeasonID) string { return "\t" + string(season) }

// setDeleted records the time of a deletion, unless it is zero. An empty season id means
// the board.
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

// mostBuckets returns the greatest number of buckets of an incarnation. It is 0 if only
// older versions of the store opened incarnations.
func (s *Store) mostBuckets(ctx context.Context, seasonKey leaderboard.SeasonKey) (int, error) {
	var buckets *int
	err := s.conn.read(ctx, op{selectBuckets, []any{string(seasonKey.Board), deletionRow(seasonKey.Season)}}, []any{&buckets}, func() bool { return true })
	return orZero(buckets), err
}

func errBoardNotFound(id leaderboard.BoardID) error {
	return fmt.Errorf("cql: board %q: %w", id, leaderboard.ErrBoardNotFound)
}

// withIncarnation runs f on the open incarnation, and concurrently reads the season's row.
// If the row has another incarnation, it starts again. If none is open, it does not call f,
// or ignores its result. f must read with one statement, or as hasUser does: see
// incarnations.
func (s *Store) withIncarnation(ctx context.Context, seasonKey leaderboard.SeasonKey, f func(context.Context, incarnation) error) error {
	inc, err := s.incarnations.cachedOrRead(ctx, seasonKey)
	for {
		if err != nil {
			return err
		}
		previous := inc
		var readErr error
		err = s.forEach(ctx, 2, func(ctx context.Context, i int) (err error) {
			if i == 0 && previous.open {
				readErr = f(ctx, previous)
			} else if i == 1 {
				inc, err = s.incarnations.readAgain(ctx, seasonKey)
			}
			return err
		})
		if err == nil && inc.same(&previous) && inc.buckets == previous.buckets {
			return readErr
		}
	}
}
