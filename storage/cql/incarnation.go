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

// An incarnation is one life of a season, as the season's row in table seasons describes it.
// The keys of all data of the season contain the number of the incarnation. Deleting the
// season ends the incarnation, and the next result opens another one. So new data and old
// data, and the deletions of old data, never concern the same cells.
type incarnation struct {
	number  int
	open    bool  // a first result has opened it, and it has not ended
	made    int64 // CreatedAt of the board for which it was opened, in Unix microseconds
	buckets int   // the number of partitions of each ladder
	swept   int   // the data of all incarnations below this number was removed
	// rules determines the divisions that writers use: see [leaderboard.Board.Rules]. It is
	// a part of every user's state: see state.go.
	rules int
	// boardSeen means that this store first read the incarnation as open, and then found
	// that its board existed. Therefore every later deletion of the board also ends this
	// incarnation: see openIncarnation. The table does not contain boardSeen.
	boardSeen bool
	// deletedAt is the time of the last deletion of the season, or of a board with the
	// board's id, before this incarnation. It is set only if boardSeen is true. It comes from
	// the rows of deletionRow.
	deletedAt time.Time
}

// same reports whether inc and o are the same incarnation and have the same rules.
func (inc *incarnation) same(o *incarnation) bool {
	return inc.number == o.number && inc.open == o.open && inc.made == o.made && inc.rules == o.rules
}

// openFor reports whether inc is open and was opened for board b.
func (inc *incarnation) openFor(b *leaderboard.Board) bool {
	return inc.open && inc.made == b.CreatedAt.UnixMicro()
}

// readIncarnation reads the season's row, without the cache. A season without a row has an
// incarnation that is not open.
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
	rules          *int64 // see rulesCell
}

// dest returns the variables into which a read scans the row.
func (r *seasonRow) dest() []any {
	return []any{&r.number, &r.opened, &r.made, &r.buckets, &r.swept, &r.rules}
}

// rulesBits is the number of the low bits of a cell of column rules that contain the rules.
const rulesBits = 8

// rulesCell returns the cell of column rules for an incarnation. The other bits contain the
// incarnation's number, so that the cell has no meaning for a later one. The cell is also
// its own timestamp, so the greatest cell prevails.
func rulesCell(number, rules int) int64 { return int64(number)<<rulesBits | int64(rules) }

// incarnation returns the season's current incarnation. Rules of an earlier one are ignored.
func (r *seasonRow) incarnation() incarnation {
	inc := incarnation{number: orZero(r.number), swept: orZero(r.swept), made: orZero(r.made), buckets: orZero(r.buckets)}
	inc.open = r.opened != nil && *r.opened == inc.number
	if cell := orZero(r.rules); int(cell>>rulesBits) == inc.number {
		inc.rules = int(cell & (1<<rulesBits - 1))
	}
	return inc
}

// orZero returns *p, or zero if p is nil: the value of a column that may be null.
func orZero[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// incarnations caches the latest incarnation that the store has read of each open season.
//
// Another process may delete a season at any time, so a cached incarnation may have
// ended. Apply and withIncarnation start from a cached incarnation. They later
// read the season's row again. If the incarnation has changed, they repeat their work. If
// the incarnation has not changed, it was open at that read. Then only a deletion after that
// read can affect their work:
//
//   - Apply may write data into the incarnation after its end. The outcome is then that
//     of an Apply before the deletion.
//   - The callers of withIncarnation read data with one statement. The statement
//     returns either the data from before the deletion, or none, as after the deletion.
//     hasUser may need two statements, but it stops at the first user that it finds.
//
// Reads of final standings need several statements, and also start from a cached incarnation.
// They use the seal to notice a deletion: see finalread.go. Seal reads the season's row again: see
// writeFinal. Amend changes only the seal of the incarnation from which it starts.
//
// Concurrent calls share the reads of a season's row ([coalesce.Group]), so at any time at most
// one read of a row runs.
type incarnations struct {
	reads coalesce.Group[leaderboard.SeasonKey, *incarnation]

	mu     sync.Mutex
	cached map[leaderboard.SeasonKey]incarnation
}

// cachedOrRead returns the cached incarnation of a season. If none is cached, it reads the
// incarnation.
func (ins *incarnations) cachedOrRead(ctx context.Context, s leaderboard.SeasonKey) (incarnation, error) {
	ins.mu.Lock()
	inc, ok := ins.cached[s]
	ins.mu.Unlock()
	if ok {
		return inc, nil
	}
	return ins.readAgain(ctx, s)
}

// readAgain reads the incarnation of a season. The read starts after the call of readAgain.
func (ins *incarnations) readAgain(ctx context.Context, s leaderboard.SeasonKey) (incarnation, error) {
	var inc incarnation
	if err := ins.reads.Do(ctx, s, &inc); err != nil {
		return incarnation{}, fmt.Errorf("season %q of board %q: %w", s.Season, s.Board, err)
	}
	return inc, nil
}

// update caches an incarnation that was just read, and returns it. If the same incarnation was
// cached before, update keeps boardSeen and deletedAt of the cached one.
func (ins *incarnations) update(s leaderboard.SeasonKey, inc incarnation) incarnation {
	ins.mu.Lock()
	defer ins.mu.Unlock()
	previous := ins.cached[s]
	if previous.boardSeen && previous.same(&inc) {
		inc.boardSeen, inc.deletedAt = true, previous.deletedAt
	}
	delete(ins.cached, s)
	// Only open seasons are cached. Otherwise requests with unknown season ids could fill
	// the memory.
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
	for _, result := range group {
		*result = inc
	}
	return nil
}

// setBoardSeen records that the board of inc existed after inc was read. It returns inc
// with the flag boardSeen.
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

// openIncarnation returns the open incarnation of a season of b. If none is open, it opens
// one. It returns [leaderboard.ErrBoardNotFound] if b was deleted.
//
// DeleteBoard first marks b as deleted, and then ends the open incarnations. A writer
// that read b before may still open an incarnation after both steps. So an open
// incarnation does not prove that its board exists. Therefore openIncarnation first reads
// that the incarnation is open, and then reads the board. If the board exists at this second
// read, a deletion can mark the board only after this read. Such a deletion finds the open
// incarnation and ends it.
//
// If the divisions of b changed before the incarnation was opened, StartRecount may have missed
// the incarnation. So openIncarnation gives the rules of the board to the incarnation, unless the
// season is sealed.
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
			// A deletion writes its time before it ends the incarnation. So this read
			// finds the times of all deletions that ended earlier incarnations.
			if inc.deletedAt, err = s.deletedAt(ctx, seasonKey); err != nil {
				return incarnation{}, err
			}
			return s.incarnations.setBoardSeen(seasonKey, inc), nil
		case inc.open:
			// This incarnation was opened for an old board with the same id, after the
			// deletion of the old board had ended the old board's open incarnations. No
			// writer has opened this incarnation for b. Otherwise inc.made would be b's
			// creation time, because the cells of the board that was created later
			// prevail (see openTime).
			if _, err := s.endIncarnation(ctx, seasonKey, inc); err != nil {
				return incarnation{}, err
			}
		default:
			// From the recorded number of buckets, sweep knows where the incarnation may have
			// data.
			err := s.conn.write(ctx,
				op{setBuckets, []any{int64(stored.buckets), stored.buckets, string(seasonKey.Board), deletionRow(seasonKey.Season)}},
				op{openSeason, []any{openTime(inc.number, made), inc.number, made, stored.buckets, string(seasonKey.Board), string(seasonKey.Season)}})
			if err != nil {
				return incarnation{}, err
			}
		}
	}
}

// raiseRules gives an incarnation the given rules, and reports whether it has written them.
// It writes nothing if the incarnation has these or greater rules, or if the season is sealed.
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

// boardWithRules returns b with the rules of an incarnation. If b has older rules, boardWithRules
// reads the board from the table. If the rules of the incarnation have arrived in this data center
// before the changed board, boardWithRules returns [leaderboard.ErrUnavailable].
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

// StartRecount gives the rules of b to all open seasons that are not sealed. These include
// seasons without users, because another process may be about to register the first user.
// openIncarnation does the same for a season that is opened later. StartRecount first announces
// the change to the other data centers (see changes.go), which then set the rules too.
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

// raiseAllRules gives the rules of b to all open seasons of b that are not sealed. It returns
// the open seasons that then have at least these rules, sealed ones too.
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

// deletionRow returns the key of a row of table seasons that records a deletion. Column
// board_made of the row is the time of the last deletion of the season. For the empty season
// id, it is the time of the last deletion of the board. Column buckets is the greatest number
// of buckets that an incarnation of the season had. The key begins with a tab, which no
// season id contains, because ids are printable. Readers of seasons ignore such a row,
// because it is never open.
func deletionRow(season leaderboard.SeasonID) string { return "\t" + string(season) }

// setDeleted records the time of the deletion of a season, or of a board if the season id
// is empty. If the time is zero, setDeleted does nothing.
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

// mostBuckets returns the greatest number of buckets that an incarnation of a season had. It
// is 0 if only older versions of the store opened incarnations.
func (s *Store) mostBuckets(ctx context.Context, seasonKey leaderboard.SeasonKey) (int, error) {
	var buckets *int
	err := s.conn.read(ctx, op{selectBuckets, []any{string(seasonKey.Board), deletionRow(seasonKey.Season)}}, []any{&buckets}, func() bool { return true })
	return orZero(buckets), err
}

func errBoardNotFound(id leaderboard.BoardID) error {
	return fmt.Errorf("cql: board %q: %w", id, leaderboard.ErrBoardNotFound)
}

// withIncarnation runs f, and concurrently reads the season's row. Function f reads the data of
// the incarnation that is its argument. If the row contains another incarnation, withIncarnation
// runs f again with that incarnation. If no incarnation is open, the season has no data, and
// withIncarnation does not call f. A deletion that begins after the read of the row may remove
// data while f still reads. So f must read with one statement, or as hasUser does: see
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
