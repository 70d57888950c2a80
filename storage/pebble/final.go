package pebble

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	leaderboard "github.com/open-leaderboard/leaderboard"
)

// A finalLadder reads the final standings of one ladder from a snapshot of the store.
type finalLadder struct {
	bd       *board
	snapshot *pebble.Snapshot
	rowKey   seasonRowKey
	slot     []byte // names the ladder in keys; nil if the board has no such division
	sealRow
}

// openFinal opens the final standings of a ladder. The caller must close the snapshot.
func (s *Store) openFinal(ctx context.Context, l leaderboard.Ladder) (*finalLadder, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	bd := s.board(l.Board)
	if bd == nil {
		return nil, notSealed(l.SeasonKey)
	}
	f := &finalLadder{bd: bd, snapshot: s.db.NewSnapshot(), rowKey: makeSeasonRowKey(bd.number, l.Season)}
	f.slot, _ = bd.slot(l.Division)
	found, err := get(f.snapshot, f.rowKey.kind(dataSeal), func(b []byte) error { return decodeJSON(b, &f.sealRow) })
	if err == nil && !found {
		err = notSealed(l.SeasonKey)
	}
	if err != nil {
		f.snapshot.Close()
		return nil, err
	}
	return f, nil
}

func notSealed(s leaderboard.SeasonKey) error {
	return fmt.Errorf("pebble: season %q of board %q: %w", s.Season, s.Board, leaderboard.ErrNotSealed)
}

// FinalStandings implements [leaderboard.Store].
func (s *Store) FinalStandings(ctx context.Context, l leaderboard.Ladder, position int64, n int) ([]leaderboard.Standing, int64, error) {
	f, err := s.openFinal(ctx, l)
	if err != nil {
		return nil, 0, err
	}
	defer f.snapshot.Close()
	if f.slot == nil {
		return nil, 0, nil
	}
	var total uint64
	if _, err := get(f.snapshot, f.rowKey.finalCount(f.Generation, f.slot), func(b []byte) (err error) {
		total, err = decodeUvarint(b)
		return err
	}); err != nil {
		return nil, 0, err
	}
	if n <= 0 {
		return nil, int64(total), nil
	}
	var out []leaderboard.Standing
	prefix := f.rowKey.finalPlaces(f.Generation, f.slot)
	from := f.rowKey.finalPlace(f.Generation, f.slot, max(position, 1))
	err = scan(ctx, f.snapshot, from, keyAfter(prefix), func(key, value []byte) (bool, error) {
		standing, err := f.bd.decodeStanding(int64(binary.BigEndian.Uint64(key[len(prefix):])), value)
		out = append(out, standing)
		return len(out) < n, err
	})
	if err != nil {
		return nil, 0, err
	}
	return out, int64(total), nil
}

// FinalStanding implements [leaderboard.Store].
func (s *Store) FinalStanding(ctx context.Context, l leaderboard.Ladder, user leaderboard.UserID) (leaderboard.Standing, error) {
	f, err := s.openFinal(ctx, l)
	if err != nil {
		return leaderboard.Standing{}, err
	}
	defer f.snapshot.Close()
	var standing leaderboard.Standing
	found := false
	if f.slot != nil {
		var position uint64
		found, err = get(f.snapshot, append(f.rowKey.finalUser(f.Generation, user), f.slot...), func(b []byte) (err error) {
			position, err = decodeUvarint(b)
			return err
		})
		if err == nil && found {
			found, err = get(f.snapshot, f.rowKey.finalPlace(f.Generation, f.slot, int64(position)), func(b []byte) (err error) {
				standing, err = f.bd.decodeStanding(int64(position), b)
				return err
			})
		}
	}
	switch {
	case err != nil:
		return leaderboard.Standing{}, err
	case !found:
		return leaderboard.Standing{}, fmt.Errorf("pebble: final standing of user %q: %w", user, leaderboard.ErrEntryNotFound)
	}
	return standing, nil
}

// eraseFinal adds to the batch the removal of a user's final standings in a season. It
// removes them from every generation. The other standings keep their ranks. If a seal is
// in progress, eraseFinal skips the generation that the seal writes; endSeal removes the
// user from it.
func (s *Store) eraseFinal(ctx context.Context, batch *pebble.Batch, st *userState) error {
	seasonKey := leaderboard.SeasonKey{Board: st.bd.ID, Season: st.season}
	var inProgress uint32 // the generation of the seal in progress; 0 if there is none
	s.sealMu.Lock()
	if sl := s.seals[seasonKey]; sl != nil {
		inProgress = sl.generation
		sl.erased = append(sl.erased, st.user)
	}
	s.sealMu.Unlock()
	prefix := st.rowKey.kind(dataFinal)
	counts := map[string]uint64{}
	for next := prefix; next != nil; {
		from := next
		next = nil
		var generation uint32
		if err := s.scan(ctx, from, keyAfter(prefix), func(key, _ []byte) (bool, error) {
			generation = binary.BigEndian.Uint32(key[len(prefix):])
			next = st.rowKey.finalGeneration(generation + 1)
			return false, nil
		}); err != nil {
			return err
		}
		if next == nil || generation == inProgress {
			continue
		}
		if err := s.eraseGeneration(ctx, batch, st.rowKey, generation, st.user, counts); err != nil {
			return err
		}
	}
	return nil
}

// eraseGeneration removes a user's final standings from one generation. For each of the
// user's ladders it also reduces the number of standings by one. It adds these writes to
// the batch. One batch may reduce the same number several times, so the map counts keeps
// the latest value by row key.
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
		if n == 0 { // a crash interrupted the seal before it wrote the number of standings
			return true, nil
		}
		counts[string(countKey)] = n - 1
		return true, batch.Set(countKey, binary.AppendUvarint(nil, n-1), nil)
	})
}
