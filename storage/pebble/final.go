package pebble

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	leaderboard "github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/finals"
)

// A finalLadder reads the final standings of one ladder from a snapshot.
type finalLadder struct {
	bd       *board
	snapshot *pebble.Snapshot
	rowKey   seasonRowKey
	slot     []byte // see keys.go; nil if the board never had the division
	sealRow
}

// The caller must close the snapshot.
func (s *Store) openFinal(ctx context.Context, l leaderboard.Ladder) (*finalLadder, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	bd := s.board(l.Board)
	if bd == nil {
		return nil, errNotSealed(l.SeasonKey)
	}
	f := &finalLadder{bd: bd, snapshot: s.db.NewSnapshot(), rowKey: makeSeasonRowKey(bd.number, l.Season)}
	f.slot, _ = bd.slot(l.Division)
	found, err := get(f.snapshot, f.rowKey.kind(dataSeal), func(b []byte) error { return decodeJSON(b, &f.sealRow) })
	if err == nil && !found {
		err = errNotSealed(l.SeasonKey)
	}
	if err != nil {
		f.snapshot.Close()
		return nil, err
	}
	return f, nil
}

func errNotSealed(s leaderboard.SeasonKey) error {
	return fmt.Errorf("pebble: season %q of board %q: %w", s.Season, s.Board, leaderboard.ErrNotSealed)
}

// readFinal calls read and returns the number of final standings. If the board never had the division, it returns
// 0 and does not call read.
func (s *Store) readFinal(ctx context.Context, l leaderboard.Ladder, read func(*finalLadder) error) (int64, error) {
	f, err := s.openFinal(ctx, l)
	if err != nil {
		return 0, err
	}
	defer f.snapshot.Close()
	if f.slot == nil {
		return 0, nil
	}
	var total uint64
	if _, err := get(f.snapshot, f.rowKey.finalCount(f.Generation, f.slot), func(b []byte) (err error) {
		total, err = decodeUvarint(b)
		return err
	}); err != nil {
		return 0, err
	}
	return int64(total), read(f)
}

// pageFrom returns up to n standings from a position on. Positions begin at 1.
func (f *finalLadder) pageFrom(ctx context.Context, position int64, n int) ([]leaderboard.Standing, error) {
	if n <= 0 {
		return nil, nil
	}
	var out []leaderboard.Standing
	prefix := f.rowKey.finalPlaces(f.Generation, f.slot)
	lower := f.rowKey.finalPlace(f.Generation, f.slot, max(position, 1))
	err := scan(ctx, f.snapshot, lower, keyAfter(prefix), func(key, value []byte) (bool, error) {
		standing, err := f.bd.decodeStanding(int64(binary.BigEndian.Uint64(key[len(prefix):])), value)
		out = append(out, standing)
		return len(out) < n, err
	})
	return out, err
}

func (f *finalLadder) standings() (finals.Ladder, error) {
	prefix := f.rowKey.finalPlaces(f.Generation, f.slot)
	it, err := f.snapshot.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: keyAfter(prefix)})
	if err != nil {
		return finals.Ladder{}, errUnavailable("read", err)
	}
	l := finals.Ladder{From: f.pageFrom}
	if it.Last() {
		l.Last = int64(binary.BigEndian.Uint64(it.Key()[len(prefix):]))
	}
	if err := it.Close(); err != nil {
		return l, errUnavailable("read", err)
	}
	return l, nil
}

// Without a standing, standingOf returns an empty Key.
func (f *finalLadder) standingOf(user leaderboard.UserID) (leaderboard.Standing, error) {
	standing := leaderboard.Standing{User: user}
	var position uint64
	found, err := get(f.snapshot, append(f.rowKey.finalUser(f.Generation, user), f.slot...), func(b []byte) (err error) {
		position, err = decodeUvarint(b)
		return err
	})
	if err == nil && found {
		_, err = get(f.snapshot, f.rowKey.finalPlace(f.Generation, f.slot, int64(position)), func(b []byte) (err error) {
			standing, err = f.bd.decodeStanding(int64(position), b)
			return err
		})
	}
	return standing, err
}

// FinalStandings implements [leaderboard.Store].
func (s *Store) FinalStandings(ctx context.Context, l leaderboard.Ladder, position int64, n int) (page []leaderboard.Standing, total int64, err error) {
	total, err = s.readFinal(ctx, l, func(f *finalLadder) (err error) {
		page, err = f.pageFrom(ctx, position, n)
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	return page, total, nil
}

// FinalLookup implements [leaderboard.Store].
func (s *Store) FinalLookup(ctx context.Context, l leaderboard.Ladder, users []leaderboard.UserID) ([]leaderboard.Standing, int64, error) {
	standings := make([]leaderboard.Standing, len(users))
	for i, user := range users {
		standings[i].User = user
	}
	total, err := s.readFinal(ctx, l, func(f *finalLadder) error {
		for i, user := range users {
			err := ctx.Err()
			if err == nil {
				standings[i], err = f.standingOf(user)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	return standings, total, err
}

// FinalAround implements [leaderboard.Store].
func (s *Store) FinalAround(ctx context.Context, l leaderboard.Ladder, user leaderboard.UserID, above, below int) (leaderboard.Neighborhood, int64, error) {
	n := leaderboard.Neighborhood{}
	total, err := s.readFinal(ctx, l, func(f *finalLadder) error {
		st, err := f.standingOf(user)
		if err != nil || st.Key == "" {
			return err
		}
		standings, err := f.standings()
		if err == nil {
			n, err = standings.Around(ctx, &st, above, below)
		}
		return err
	})
	if err == nil && len(n.Standings) == 0 {
		err = fmt.Errorf("pebble: final standing of user %q: %w", user, leaderboard.ErrEntryNotFound)
	}
	return n, total, err
}

// FinalAfter implements [leaderboard.Store].
func (s *Store) FinalAfter(ctx context.Context, l leaderboard.Ladder, after leaderboard.SortKey, n int) (page []leaderboard.Standing, better leaderboard.Counts, total int64, err error) {
	total, err = s.readFinal(ctx, l, func(f *finalLadder) error {
		standings, err := f.standings()
		if err == nil {
			page, better, err = standings.After(ctx, after, n)
		}
		return err
	})
	return page, better, total, err
}

// eraseFinal removes a user's final standings from every generation of a season. The other
// standings keep their ranks. From the generation of a seal in progress, endSeal removes the user.
func (s *Store) eraseFinal(ctx context.Context, batch *pebble.Batch, st *userState) error {
	seasonKey := leaderboard.SeasonKey{Board: st.bd.ID, Season: st.season}
	var inProgress uint32 // the generation of the seal in progress, or 0
	s.sealMu.Lock()
	if sl := s.seals[seasonKey]; sl != nil {
		inProgress = sl.generation
		sl.erased = append(sl.erased, st.user)
	}
	s.sealMu.Unlock()
	prefix := st.rowKey.kind(dataFinal)
	counts := map[string]uint64{}
	for start := prefix; start != nil; {
		from := start
		start = nil
		var generation uint32
		if err := s.scan(ctx, from, keyAfter(prefix), func(key, _ []byte) (bool, error) {
			generation = binary.BigEndian.Uint32(key[len(prefix):])
			start = st.rowKey.finalGeneration(generation + 1)
			return false, nil
		}); err != nil {
			return err
		}
		if start == nil || generation == inProgress {
			continue
		}
		if err := s.eraseGeneration(ctx, batch, st.rowKey, generation, st.user, counts); err != nil {
			return err
		}
	}
	return nil
}

// counts has the numbers of standings that the batch sets, by key, because s.get does not see the
// batch.
func (s *Store) eraseGeneration(ctx context.Context, batch *pebble.Batch, rowKey seasonRowKey, generation uint32, user leaderboard.UserID, counts map[string]uint64) error {
	prefix := rowKey.finalUser(generation, user)
	return s.scan(ctx, prefix, keyAfter(prefix), func(key, value []byte) (bool, error) {
		slot := key[len(prefix):]
		position, err := decodeUvarint(value)
		if err != nil {
			return false, err
		}
		if err := batch.Delete(key, nil); err != nil {
			return false, err
		}
		if err := batch.Delete(rowKey.finalPlace(generation, slot, int64(position)), nil); err != nil {
			return false, err
		}
		countKey := rowKey.finalCount(generation, slot)
		n, ok := counts[string(countKey)]
		if !ok {
			if _, err := s.get(countKey, func(b []byte) (err error) {
				n, err = decodeUvarint(b)
				return err
			}); err != nil {
				return false, err
			}
		}
		if n == 0 { // A crash interrupted the seal before it wrote the count.
			return true, nil
		}
		counts[string(countKey)] = n - 1
		return true, batch.Set(countKey, binary.AppendUvarint(nil, n-1), nil)
	})
}
