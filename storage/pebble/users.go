package pebble

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	leaderboard "github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/storage"
)

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

// HighestVersion implements [storage.Users].
func (s *Store) HighestVersion(ctx context.Context, user leaderboard.UserID) (uint64, error) {
	states, _, err := s.userStates(ctx, user)
	highest := uint64(0)
	for _, st := range states {
		highest = max(highest, st.row.version)
	}
	return highest, err
}

// ChangeAccount implements [storage.Users]. It makes all changes by one batch, except those of final
// standings. A concurrent Apply holds the user's lock, so it uses the account from before or after the
// batch.
func (s *Store) ChangeAccount(ctx context.Context, c *storage.AccountChange) ([]leaderboard.Change, error) {
	numbers := []int{stripeOf(c.User), stripeOf(c.List)}
	for i := range c.Writes {
		numbers = append(numbers, stripeOf(c.Writes[i].List))
	}
	var unlock func()
	var batch *pebble.Batch
	var changes []leaderboard.Change
	for locked := 0; locked < len(numbers); {
		if unlock != nil {
			unlock()
		}
		locked = len(numbers)
		var err error
		if unlock, err = s.lockStripes(ctx, slices.Clone(numbers)); err != nil {
			return nil, err
		}
		batch = s.db.NewIndexedBatch()
		var removals []storage.RowWrite
		if changes, removals, err = s.changeAccount(ctx, batch, c); err != nil {
			unlock()
			return nil, fmt.Errorf("account of a user: %w", err)
		}
		// These writes need the stripes of their lists too.
		floors := map[string]int64{}
		for i := range removals {
			if n := stripeOf(removals[i].List); !slices.Contains(numbers, n) {
				numbers = append(numbers, n)
			}
			if err := s.addWrite(batch, &removals[i], floors); err != nil {
				unlock()
				return nil, err
			}
		}
	}
	if batch.Empty() {
		unlock()
		return changes, s.syncVisible(ctx)
	}
	if err := s.commit(ctx, batch, unlock); err != nil || !c.Erasure {
		return changes, err
	}
	return changes, s.eraseFinals(ctx, c.User)
}

// changeAccount does not add removals to the batch.
func (s *Store) changeAccount(ctx context.Context, batch *pebble.Batch, c *storage.AccountChange) (
	changes []leaderboard.Change, removals []storage.RowWrite, err error,
) {
	floors := map[string]int64{}
	for i := range c.Writes {
		if err := s.addWrite(batch, &c.Writes[i], floors); err != nil {
			return nil, nil, err
		}
	}
	if _, err := c.Read(rowsOf(ctx, batch, c.List)); err != nil {
		return nil, nil, err
	}
	states, danglingNotes, err := s.userStates(ctx, c.User)
	if err == nil && c.Erasure {
		err = s.eraseRecent(batch, c.User)
		danglingNotes = nil // eraseFinals needs them
	}
	for _, key := range danglingNotes {
		err = errors.Join(err, batch.Delete(key, nil))
	}
	for i := 0; i < len(states) && err == nil; i++ {
		st := states[i]
		acc, concerned := c.On(&st.bd.Board)
		if st.row.version < acc.Base {
			var writes []storage.RowWrite
			if writes, err = st.unlist(ctx, &acc); err == nil {
				err = st.erase(batch, &acc)
			}
			removals = append(removals, writes...)
		} else if concerned && st.row.hidden != acc.Hidden {
			st.row.hidden = acc.Hidden
			st.row.version++
			st.after = st.entry()
			err = st.writeEntry(batch)
		} else {
			continue
		}
		changes = append(changes, leaderboard.Change{Before: st.before, After: st.after})
		err = errors.Join(err, s.noteChange(batch, st.rowKey, c.At))
	}
	return changes, removals, err
}

// unlist returns writes that remove the user from matches.
func (st *userState) unlist(ctx context.Context, acc *storage.Account) ([]storage.RowWrite, error) {
	if !st.bd.Matches {
		return nil, nil
	}
	i, err := st.s.incarnation(st.bd, st.season)
	var ids []leaderboard.MatchID
	for r, readErr := range st.s.results(ctx, st.bd, st.season, st.user) {
		err, ids = errors.Join(err, readErr), append(ids, r.Match)
	}
	return st.s.engine.Unlist(&i, st.user, ids, acc), err
}

// erase removes what the season has of the user, except the season note: see eraseFinals.
func (st *userState) erase(batch *pebble.Batch, acc *storage.Account) error {
	st.after = leaderboard.Entry{SeasonKey: leaderboard.SeasonKey{Board: st.bd.ID, Season: st.season}, User: st.user, Version: acc.Version()}
	return errors.Join(
		replaceRows(batch, st.bd.placements(st.rowKey, &st.before), nil),
		deletePrefix(batch, st.rowKey.records(st.user)),
		batch.Delete(st.rowKey.user(st.user), nil))
}

// eraseFinals removes an erased user from final standings, and then the user's season notes without
// a user row. A repeated Erase finds the seasons by these notes.
func (s *Store) eraseFinals(ctx context.Context, user leaderboard.UserID) error {
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
			err = s.engine.Erase(ctx, &i, user)
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

func deletePrefix(batch *pebble.Batch, prefix []byte) error {
	return batch.DeleteRange(prefix, keyAfter(prefix), nil)
}
