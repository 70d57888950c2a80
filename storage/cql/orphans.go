package cql

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// # How orphan rows are removed
//
// An orphan row appears if its writer dies or is slow, or if a row arrives from another data
// center after the entry that replaced it. Suppose that a read at quorum returns the entry E
// with version V, and a later read returns a row that E does not need. Rows have the
// timestamps of the entries for which they were written:
//
//   - If the row was written for a version below V, its entry cannot prevail over E any more.
//     So the row is an orphan. To remove it, a process repeats step 3 of the writer of E (see
//     state.go), and also deletes the row. A writer may repeat a step.
//   - Otherwise, the row's entry may follow. So the row stays. The deletion would not hide it
//     either: its timestamp follows from V.
//
// Without an entry, the base of the user's account takes the place of V: all entries since the
// user's last erasure have greater versions.

// A ladderWalk is the position of RemoveOrphanRows in the table leaderboard.
type ladderWalk struct {
	mu      sync.Mutex
	last    bucket        // the last bucket taken from list; the zero value means the start
	list    []bucket      // the next buckets
	current *bucketReader // nil if no bucket has been begun
}

// RemoveOrphanRows removes orphan rows. It runs one statement at a time. The first call begins
// at a random bucket, so that the processes of a data center read different ladders.
//
// After an error, the next call continues with the next bucket: the error may be permanent.
func (s *Store) RemoveOrphanRows(ctx context.Context, limit time.Duration) (removed int64, err error) {
	w := &s.walk
	w.mu.Lock()
	defer w.mu.Unlock()
	for end := s.now().Add(limit); s.now().Before(end); {
		if w.current == nil || w.current.end {
			if more, err := s.nextBucket(ctx, w); err != nil || !more {
				return removed, err
			}
			continue
		}
		n, err := s.removeOrphansOfPage(ctx, w.current)
		removed += n
		if err != nil {
			w.current = nil
			return removed, err
		}
	}
	return removed, nil
}

// nextBucket begins the next bucket, unless its incarnation has ended. It returns false after the last bucket.
func (s *Store) nextBucket(ctx context.Context, w *ladderWalk) (more bool, err error) {
	w.current = nil
	if len(w.list) == 0 {
		if w.list, err = s.bucketsAfter(ctx, &w.last); err != nil {
			return false, err
		}
	}
	if len(w.list) == 0 {
		w.last = bucket{}
		return false, nil
	}
	w.last, w.list = w.list[0], w.list[1:]
	inc, err := s.incarnations.readAgain(ctx, w.last.SeasonKey)
	if err != nil {
		return false, err
	}
	d, damage := leaderboard.ParseDivision(w.last.division)
	if inc.open && inc.number == w.last.incarnation && damage == nil {
		w.current = &bucketReader{s: s, ladder: leaderboard.Ladder{SeasonKey: w.last.SeasonKey, Division: d}, inc: inc, bucket: w.last.number, size: lastLadderPage}
	}
	return true, nil
}

// bucketsAfter returns the next buckets with rows, in the order of Cassandra's tokens.
func (s *Store) bucketsAfter(ctx context.Context, after *bucket) (list []bucket, err error) {
	q := op{selectLadders, nil}
	if *after != (bucket{}) {
		q = op{selectLaddersAfter, []any{string(after.Board), string(after.Season), after.incarnation, after.division, after.number}}
	}
	var board, season, division string
	var incarnation, number int
	err = s.conn.read(ctx, q, []any{&board, &season, &incarnation, &division, &number}, func() bool {
		key := leaderboard.SeasonKey{Board: leaderboard.BoardID(board), Season: leaderboard.SeasonID(season)}
		list = append(list, bucket{key, incarnation, number, division})
		return len(list) < pageRows
	})
	return list, err
}

func (s *Store) removeOrphansOfPage(ctx context.Context, r *bucketReader) (removed int64, err error) {
	rows, err := r.fetchRows(ctx)
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	entries, err := r.readEntries(ctx, rows)
	if err != nil && !errors.Is(err, leaderboard.ErrFormat) {
		return 0, err
	}
	for i := range rows {
		if _, ok := r.entryOf(entries, &rows[i]); ok {
			continue
		}
		key := &userKey{r.ladder.SeasonKey, r.inc.number, leaderboard.UserID(rows[i].user)}
		ok, err := s.removeOrphan(ctx, key, r.inc, rowKey{r.ladder.Division.String(), string(rows[i].standing)})
		if ok {
			removed++
		}
		// Rows of damaged data stay, for verify.
		if err != nil && !errors.Is(err, leaderboard.ErrFormat) && !errors.Is(err, leaderboard.ErrInvalid) {
			return removed, err
		}
	}
	return removed, nil
}

// removeOrphan removes a row if the user's stored entry proves that it is an orphan row.
func (s *Store) removeOrphan(ctx context.Context, key *userKey, inc incarnation, rk rowKey) (removed bool, err error) {
	var st statics
	var stored storedEntry
	var acc account
	var written *int64
	live, err := s.whileOpen(ctx, key.SeasonKey, inc, func(ctx context.Context) (err error) {
		if stored, err = s.readEntry(ctx, key, inc); err != nil {
			return err
		}
		if stored.entry != nil {
			st, err = s.readStatics(ctx, key)
		} else {
			acc, err = s.readAccount(ctx, key.user, &leaderboard.Board{}) // the Base is the same for all boards
		}
		q := op{selectRow, append(key.ladderArgs(inc, rk.division), []byte(rk.standing), string(key.user))}
		return cmp.Or(err, s.conn.read(ctx, q, []any{&written}, func() bool { return true }))
	})
	version := stored.entryOr(leaderboard.Entry{Version: acc.Base}).Version
	if err != nil || !live || written == nil || *written > deleteTime(version) {
		return false, err
	}
	if stored.entry == nil {
		err = s.conn.write(ctx, key.deleteRow(inc, rk, version))
	} else {
		err = s.place(ctx, key, inc, &st, stored.entry, stored.entry, []rowKey{rk})
	}
	return err == nil, err
}
