package cql

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/storage"
)

func (s *Store) userSeasons(ctx context.Context, user leaderboard.UserID) ([]userKey, error) {
	var board, season string
	var number int
	keys, err := gather(ctx, s.conn, op{selectUserSeasons, []any{userHash(user)}}, []any{&board, &season, &number}, func() (userKey, error) {
		return userKey{leaderboard.SeasonKey{Board: leaderboard.BoardID(board), Season: leaderboard.SeasonID(season)}, number, user}, nil
	})
	if err != nil {
		return nil, err
	}
	isOpen := make([]bool, len(keys))
	err = s.forEach(ctx, len(keys), func(ctx context.Context, i int) error {
		inc, err := s.incarnations.readAgain(ctx, keys[i].SeasonKey)
		isOpen[i] = inc.open && inc.number == keys[i].incarnation
		return err
	})
	var out []userKey
	for i, k := range keys {
		if isOpen[i] {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, func(x, y userKey) int { return compareSeasonKeys(x.SeasonKey, y.SeasonKey) })
	return out, err
}

// UserSeasons returns the seasons in which a user has results.
func (s *Store) UserSeasons(ctx context.Context, user leaderboard.UserID) ([]leaderboard.SeasonKey, error) {
	keys, err := s.userSeasons(ctx, user)
	return seasonKeys(keys), err
}

func seasonKeys(keys []userKey) (out []leaderboard.SeasonKey) {
	for _, k := range keys {
		out = append(out, k.SeasonKey)
	}
	return out
}

// HighestVersion returns the highest version of a user's entries.
func (s *Store) HighestVersion(ctx context.Context, user leaderboard.UserID) (uint64, error) {
	keys, err := s.userSeasons(ctx, user)
	if err != nil {
		return 0, err
	}
	highest := uint64(0)
	for i := range keys {
		inc, err := s.incarnations.cachedOrRead(ctx, keys[i].SeasonKey)
		if err != nil {
			return 0, err
		}
		stored, err := s.readEntry(ctx, &keys[i], inc)
		if err != nil {
			return 0, err
		}
		if stored.entry != nil {
			highest = max(highest, stored.entry.Version)
		}
	}
	return highest, nil
}

// readAccount returns a user's account for the seasons of a board.
func (s *Store) readAccount(ctx context.Context, user leaderboard.UserID, b *leaderboard.Board) (account, error) {
	acc, err := s.engine.Account(ctx, user, b)
	return account(acc), err
}

// ChangeAccount writes the account, and then changes the user's seasons. An erasure begins a new
// epoch. The deletions hide all writes of earlier epochs, but no write of the new epoch.
func (s *Store) ChangeAccount(ctx context.Context, c *storage.AccountChange) ([]leaderboard.Change, error) {
	unlock, err := s.lock(ctx, c.User)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := s.WriteRows(ctx, c.Writes...); err != nil {
		return nil, err
	}
	known, err := c.Read(s.Rows(ctx, c.List, nil))
	if err != nil {
		return nil, err
	}
	acc := account(known)
	if c.Erasure {
		if err := s.eraseRecent(ctx, c.User, &acc); err != nil {
			return nil, err
		}
	}
	// a writer that registers the user after this read finds the changed account
	keys, err := s.seasonsOf(ctx, c)
	if err != nil {
		return nil, err
	}
	changes := make([]leaderboard.Change, len(keys))
	return changes, s.forEach(ctx, len(keys), func(ctx context.Context, i int) (err error) {
		if c.Erasure && !c.Repeated {
			changes[i], err = s.eraseIn(ctx, &keys[i], &acc)
		} else {
			changes[i], err = s.updateSeason(ctx, &keys[i], c)
		}
		return err
	})
}

// seasonsOf returns the seasons of c and of the user.
func (s *Store) seasonsOf(ctx context.Context, c *storage.AccountChange) ([]userKey, error) {
	keys, err := s.userSeasons(ctx, c.User)
	if err != nil {
		return nil, err
	}
	all, err := c.Seasons(ctx, seasonKeys(keys))
	if err != nil {
		return nil, err
	}
	for _, season := range all {
		if slices.ContainsFunc(keys, func(k userKey) bool { return k.SeasonKey == season }) {
			continue
		}
		inc, err := s.incarnations.readAgain(ctx, season)
		if err != nil {
			return nil, err
		}
		keys = append(keys, userKey{season, inc.number, c.User})
	}
	return keys, nil
}

// If the change concerns the board, updateSeason updates the season's copy of the account, and
// the user's entry. If the season has data from before an erasure, updateSeason erases this
// data.
func (s *Store) updateSeason(ctx context.Context, key *userKey, c *storage.AccountChange) (leaderboard.Change, error) {
	for range maxTries {
		b, inc, err := s.boardOf(ctx, key)
		if err != nil {
			return leaderboard.Change{}, err
		}
		known, concerned := c.On(&b)
		if !inc.openFor(&b) || inc.number != key.incarnation || !concerned {
			return leaderboard.Change{}, nil
		}
		s.dropSummary(key)
		acc := account(known)
		st, err := s.readStatics(ctx, key)
		if err != nil {
			return leaderboard.Change{}, err
		}
		if st.registered && st.account.Epoch < acc.Epoch {
			// The season must not get an account of the new epoch while it has data from
			// before the erasure.
			if !c.Erasure {
				if err := s.engine.AnnounceErasure(ctx, key.SeasonKey, key.user); err != nil {
					return leaderboard.Change{}, err
				}
			}
			return s.eraseIn(ctx, key, &acc)
		}
		if !st.registered && acc.Serial > 0 {
			// Another writer is registering the user with the old account, or an erasure
			// has removed the season from the user's list. Register the user before writing
			// the account: a writer that finds an account does not register the user.
			st.account = acc
			if err := s.register(ctx, &b, key, inc, &st); err != nil {
				return leaderboard.Change{}, err
			}
			acc = st.account
		}
		if !st.registered || st.account.Epoch > acc.Epoch {
			return leaderboard.Change{}, nil // the user was erased after the ban
		}
		// A claim makes other stores drop their summaries, which may lack data from another
		// data center.
		if err := s.writeUser(ctx, append(key.setAccount(&acc), s.newClaim(key, &st))...); err != nil {
			return leaderboard.Change{}, err
		}
		_, change, live, err := s.derive(ctx, &b, key, inc, st.claim)
		if err != nil || live {
			return change, err
		}
	}
	return leaderboard.Change{}, fmt.Errorf("cql: season %q of board %q changed during %d attempts to change a user; repeat the call: %w", key.Season, key.Board, maxTries, leaderboard.ErrUnavailable)
}

// boardOf returns the board with the rules of the incarnation. If the board was deleted, it
// returns a zero board.
func (s *Store) boardOf(ctx context.Context, key *userKey) (leaderboard.Board, incarnation, error) {
	stored, err := s.readBoard(ctx, key.Board)
	if errors.Is(err, leaderboard.ErrBoardNotFound) {
		err = nil
	}
	if err != nil {
		return leaderboard.Board{}, incarnation{}, err
	}
	inc, err := s.incarnations.readAgain(ctx, key.SeasonKey)
	if err != nil || !inc.openFor(&stored.board) {
		return stored.board, inc, err
	}
	b, err := s.boardWithRules(ctx, &stored.board, inc)
	if err != nil {
		return leaderboard.Board{}, incarnation{}, err
	}
	return *b, inc, nil
}

func (s *Store) eraseIn(ctx context.Context, key *userKey, acc *account) (leaderboard.Change, error) {
	s.dropSummary(key)
	b, inc, err := s.boardOf(ctx, key)
	if err != nil || !inc.openFor(&b) {
		return leaderboard.Change{}, err // the season's deletion removes the data
	}
	st, stored, rows, err := s.inspect(ctx, &b, key, inc, claim{})
	if err != nil {
		return leaderboard.Change{}, err
	}
	if st.account.Epoch >= acc.Epoch {
		return leaderboard.Change{}, nil // the season only has data from after the erasure
	}
	after := leaderboard.Entry{SeasonKey: key.SeasonKey, User: key.user, Version: acc.version()}
	_, none := st.entries(&b, key)
	before := stored.entryOr(none)

	divisions := map[string][]op{"": nil}
	for _, rk := range append(rowKeysOf(rows), rowKeys(&before)...) {
		divisions[rk.division] = append(divisions[rk.division], key.deleteRow(inc, rk, acc.Base))
	}
	divisions[""] = append(divisions[""], op{deleteEntry, []any{deleteTime(acc.Base), string(key.Board), string(key.Season), key.incarnation,
		bucketOf(key.user, inc.buckets), string(key.user)}})
	names := slices.Sorted(maps.Keys(divisions))
	if err := s.forEach(ctx, len(names), func(ctx context.Context, i int) error { return s.conn.write(ctx, divisions[names[i]]...) }); err != nil {
		return leaderboard.Change{}, err
	}
	ofKey := (&incarnation{number: key.incarnation}).known(key.SeasonKey)
	if err := s.engine.Erase(ctx, &ofKey, key.user); err != nil {
		return leaderboard.Change{}, err
	}
	// A repeated Erase finds the rows by the divisions in the user's partition of the table
	// match_results. It finds the partition by the user's list of seasons. So delete the
	// rows, the partition and the list element in this order.
	timestamp := acc.Epoch << epochShift
	if b.Matches {
		known := storage.Account(*acc)
		if err := s.WriteAll(ctx, s.engine.Unlist(&ofKey, key.user, slices.Sorted(maps.Keys(st.matches)), &known)...); err != nil {
			return leaderboard.Change{}, err
		}
	}
	if err := s.conn.write(ctx, op{deleteUser, key.args(timestamp)}); err != nil {
		return leaderboard.Change{}, err
	}
	err = s.conn.write(ctx, op{deleteUserSeason, []any{timestamp, userHash(key.user), string(key.Board), string(key.Season), key.incarnation}})
	return leaderboard.Change{Before: before, After: after}, err
}

func compareSeasonKeys(x, y leaderboard.SeasonKey) int {
	return cmp.Or(cmp.Compare(x.Board, y.Board), cmp.Compare(x.Season, y.Season))
}
