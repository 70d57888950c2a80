package pebble

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	leaderboard "github.com/open-leaderboard/leaderboard"
)

// The hash stands for a user in keys that remain after an erasure.
func hashOf(user leaderboard.UserID) [32]byte { return sha256.Sum256([]byte(user)) }

// The states are ordered by board and season. danglingNotes has the keys of season notes (see
// keys.go) without a user row, for example of a deleted season. A caller that changes the user must
// hold the user's lock: see [stripes].
func (s *Store) userStates(ctx context.Context, user leaderboard.UserID) (states []*userState, danglingNotes [][]byte, err error) {
	boards := s.boards.Load()
	prefix := seasonsPrefix(user)
	err = s.scan(ctx, prefix, keyAfter(prefix), func(key, _ []byte) (bool, error) {
		number, season, rest, ok := parseSeasonKey(key[len(prefix):])
		if !ok || len(rest) > 0 {
			return false, errFormat("season note of a user")
		}
		if bd := boards.byNumber[number]; bd != nil {
			st, err := s.loadUser(bd, season, user)
			if err != nil {
				return false, err
			}
			if st.exists {
				states = append(states, st)
				return true, nil
			}
		}
		danglingNotes = append(danglingNotes, slices.Clone(key))
		return true, nil
	})
	slices.SortFunc(states, func(x, y *userState) int {
		return cmp.Or(cmp.Compare(x.bd.ID, y.bd.ID), cmp.Compare(x.season, y.season))
	})
	return states, danglingNotes, err
}

// UserSeasons implements [leaderboard.Store].
func (s *Store) UserSeasons(ctx context.Context, user leaderboard.UserID) ([]leaderboard.SeasonKey, error) {
	states, _, err := s.userStates(ctx, user)
	if err != nil {
		return nil, fmt.Errorf("user %q: %w", user, err)
	}
	var seasonKeys []leaderboard.SeasonKey
	for _, st := range states {
		seasonKeys = append(seasonKeys, leaderboard.SeasonKey{Board: st.bd.ID, Season: st.season})
	}
	return seasonKeys, nil
}

// Erase implements [leaderboard.Store].
func (s *Store) Erase(ctx context.Context, user leaderboard.UserID, at time.Time) ([]leaderboard.Change, error) {
	unlock, err := s.lockUser(ctx, user)
	if err != nil {
		return nil, err
	}
	batch := s.db.NewBatch()
	changes, err := s.erase(ctx, batch, user, leaderboard.Truncate(at))
	if err != nil {
		unlock()
		return nil, fmt.Errorf("erasure of a user: %w", err)
	}
	if err := s.commit(ctx, batch, unlock); err != nil {
		return nil, err
	}
	return changes, s.eraseFinals(ctx, user)
}

// eraseFinals removes an erased user from final standings, and then the user's season notes without
// a user row. A repeated Erase finds the seasons by these notes.
func (s *Store) eraseFinals(ctx context.Context, user leaderboard.UserID) error {
	if err := s.finals.EraseMarks(ctx, user); err != nil {
		return err
	}
	_, notes, err := s.userStates(ctx, user)
	if err != nil {
		return err
	}
	for _, key := range notes {
		board, season, _, _ := parseSeasonKey(key[len(seasonsPrefix(user)):])
		bd := s.boards.Load().byNumber[board]
		if bd == nil {
			continue
		}
		i, err := s.incarnation(bd, season)
		if err == nil {
			err = s.finals.Erase(ctx, &i, user)
		}
		if err != nil {
			return err
		}
	}
	unlock, err := s.lockUser(ctx, user)
	if err != nil {
		return err
	}
	batch := s.db.NewBatch()
	if _, notes, err = s.userStates(ctx, user); err == nil {
		for _, key := range notes {
			err = errors.Join(err, batch.Delete(key, nil))
		}
	}
	if err != nil {
		unlock()
		return err
	}
	return s.commit(ctx, batch, unlock)
}

func (s *Store) erase(ctx context.Context, batch *pebble.Batch, user leaderboard.UserID, at time.Time) ([]leaderboard.Change, error) {
	var e erasure
	if _, err := s.get(erasedKey(hashOf(user)), e.decode); err != nil {
		return nil, err
	}
	if err := s.eraseRecent(batch, user); err != nil {
		return nil, err
	}
	if at.After(e.at) {
		e.at = at
	}
	states, _, err := s.userStates(ctx, user)
	if err != nil {
		return nil, err
	}
	for _, st := range states {
		e.version = max(e.version, st.row.version+1)
	}
	var changes []leaderboard.Change
	for _, st := range states {
		if err := replaceRows(batch, st.bd.placements(st.rowKey, &st.before), nil); err != nil {
			return nil, err
		}
		if err := s.eraseMatches(ctx, batch, st); err != nil {
			return nil, err
		}
		records := st.rowKey.records(user)
		if err := deletePrefix(batch, records); err != nil {
			return nil, err
		}
		if err := batch.Delete(st.rowKey.user(user), nil); err != nil {
			return nil, err
		}
		if err := s.noteChange(batch, st.rowKey, at); err != nil {
			return nil, err
		}
		seasonKey := leaderboard.SeasonKey{Board: st.bd.ID, Season: st.season}
		changes = append(changes, leaderboard.Change{
			Before: st.before, After: leaderboard.Entry{SeasonKey: seasonKey, User: user, Version: e.version}})
	}
	if err := s.eraseBans(batch, user); err != nil {
		return nil, err
	}
	return changes, batch.Set(erasedKey(hashOf(user)), e.append(nil), nil)
}

// ErasedAt implements [storage.Backend].
func (s *Store) ErasedAt(ctx context.Context, user leaderboard.UserID) (time.Time, error) {
	var e erasure
	if err := ctx.Err(); err != nil {
		return time.Time{}, fmt.Errorf("pebble: %w", err)
	}
	_, err := s.get(erasedKey(hashOf(user)), e.decode)
	return e.at, err
}

func deletePrefix(batch *pebble.Batch, prefix []byte) error {
	return batch.DeleteRange(prefix, keyAfter(prefix), nil)
}
