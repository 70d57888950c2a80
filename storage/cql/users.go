package cql

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// readAccount returns a user's account, the zero one if there is none, and the
// ban as text.
func (s *Store) readAccount(ctx context.Context, user leaderboard.UserID) (account, string, error) {
	var body []byte
	var ban string
	err := s.conn.read(ctx, op{selectAccount, []any{userHash(user)}}, []any{&body, &ban}, func() bool { return true })
	if err != nil || body == nil {
		return account{}, "", err
	}
	a, err := decodeAccount(body)
	return a, ban, err
}

// changeAccounts changes a user's account to what change makes of it. change may
// be called several times.
func (s *Store) changeAccount(ctx context.Context, user leaderboard.UserID, change func(*account) (ban string, err error)) (account, error) {
	for {
		old, _, err := s.readAccount(ctx, user)
		if err != nil {
			return account{}, err
		}
		next := old
		ban, err := change(&next)
		if err != nil {
			return account{}, err
		}
		var text any // null removes it
		if ban != "" {
			text = ban
		}
		hash, body := userHash(user), next.append(nil)
		q := op{changeAccount, []any{body, text, hash, old.append(nil)}}
		ok, err := s.conn.swap(ctx, q, map[string]any{})
		if err == nil && !ok && old == (account{}) {
			ok, err = s.conn.swap(ctx, op{createAccount, []any{hash, body, text}}, map[string]any{})
		}
		if ok || err != nil {
			return next, err
		}
	}
}

// userScopes returns the open editions in which a user is registered.
func (s *Store) userScopes(ctx context.Context, user leaderboard.UserID) ([]userKey, error) {
	var board, season string
	var number int
	keys, err := gather(ctx, s.conn, op{selectUserScopes, []any{userHash(user)}}, []any{&board, &season, &number}, func() (userKey, error) {
		return userKey{leaderboard.Scope{Board: leaderboard.BoardID(board), Season: leaderboard.SeasonID(season)}, number, user}, nil
	})
	if err != nil {
		return nil, err
	}
	open := make([]bool, len(keys))
	err = s.each(ctx, len(keys), func(ctx context.Context, i int) error {
		e, err := s.editions.fresh(ctx, keys[i].Scope)
		open[i] = e.open && e.number == keys[i].edition
		return err
	})
	var out []userKey
	for i, k := range keys {
		if open[i] {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, func(x, y userKey) int { return compareScopes(x.Scope, y.Scope) })
	return out, err
}

// UserScopes returns the scopes in which a user has results.
func (s *Store) UserScopes(ctx context.Context, user leaderboard.UserID) ([]leaderboard.Scope, error) {
	keys, err := s.userScopes(ctx, user)
	var scopes []leaderboard.Scope
	for _, k := range keys {
		scopes = append(scopes, k.Scope)
	}
	return scopes, err
}

// Ban returns a user's ban.
func (s *Store) Ban(ctx context.Context, user leaderboard.UserID) (leaderboard.Ban, error) {
	ban := leaderboard.Ban{User: user}
	_, text, err := s.readAccount(ctx, user)
	if err == nil && text != "" {
		if err = json.Unmarshal([]byte(text), &ban); err != nil {
			err = fmt.Errorf("cql: ban: %w: %w", leaderboard.ErrFormat, err)
		}
	}
	return ban, err
}

// SetBan hides a user's entries or brings them back.
func (s *Store) SetBan(ctx context.Context, ban leaderboard.Ban) ([]leaderboard.Change, error) {
	unlock, err := s.lock(ctx, ban.User)
	if err != nil {
		return nil, err
	}
	defer unlock()
	ban.At = leaderboard.Truncate(ban.At)
	acc, err := s.changeAccount(ctx, ban.User, func(a *account) (string, error) {
		if a.Hidden != ban.Banned {
			a.Hidden = ban.Banned
			a.Serial++
		}
		if !ban.Banned {
			return "", nil
		}
		text, err := json.Marshal(&ban)
		return string(text), err
	})
	if err != nil {
		return nil, err
	}
	keys, err := s.userScopes(ctx, ban.User)
	if err != nil {
		return nil, err
	}
	changes := make([]leaderboard.Change, len(keys))
	err = s.each(ctx, len(keys), func(ctx context.Context, i int) (err error) {
		changes[i], err = s.hide(ctx, &keys[i], &acc)
		return err
	})
	return changed(changes), err
}

// changed returns the changes in which the version changed.
func changed(changes []leaderboard.Change) []leaderboard.Change {
	return slices.DeleteFunc(changes, func(c leaderboard.Change) bool { return c.Before.Version == c.After.Version })
}

// hide brings a user's entry in step with an account that was changed.
func (s *Store) hide(ctx context.Context, key *userKey, acc *account) (leaderboard.Change, error) {
	s.drop(key)
	b, e, err := s.boardOf(ctx, key)
	if err != nil {
		return leaderboard.Change{}, err
	}
	if !e.of(&b) {
		return leaderboard.Change{}, nil // deleted meanwhile
	}
	if err := s.conn.write(ctx, op{setAccount, key.args(acc.time(), acc.append(nil))}); err != nil {
		return leaderboard.Change{}, err
	}
	_, change, live, err := s.derive(ctx, &b, key, e, claim{})
	if !live {
		change = leaderboard.Change{}
	}
	return change, err
}

// boardOf returns the board and the edition of a user's results; the board is
// empty if it was deleted.
func (s *Store) boardOf(ctx context.Context, key *userKey) (leaderboard.Board, edition, error) {
	k, err := s.readBoard(ctx, key.Board)
	if errors.Is(err, leaderboard.ErrBoardNotFound) {
		err = nil
	}
	if err != nil {
		return leaderboard.Board{}, edition{}, err
	}
	e, err := s.editions.fresh(ctx, key.Scope)
	return k.board, e, err
}

// Erase removes all that is kept of a user. Cut short, it is gone on with by the
// next Erase of the user.
//
// Each erasure begins an epoch of the user. Its deletions cover every timestamp of
// the epochs before, whoever writes at those and however late, and all that is
// written later has timestamps above.
func (s *Store) Erase(ctx context.Context, user leaderboard.UserID, at time.Time) ([]leaderboard.Change, error) {
	unlock, err := s.lock(ctx, user)
	if err != nil {
		return nil, err
	}
	defer unlock()
	at = leaderboard.Truncate(at)
	keys, err := s.userScopes(ctx, user)
	if err != nil {
		return nil, err
	}
	highest := uint64(0)
	for i := range keys {
		e, err := s.editions.last(ctx, keys[i].Scope)
		if err != nil {
			return nil, err
		}
		have, err := s.readEntry(ctx, &keys[i], e)
		if err != nil {
			return nil, err
		}
		if have.entry != nil {
			highest = max(highest, have.entry.Version)
		}
	}
	acc, err := s.changeAccount(ctx, user, func(a *account) (string, error) {
		if at.After(a.ErasedAt) {
			a.ErasedAt = at
		}
		a.Base = max(a.version(), highest) + erasureStep
		if a.Base > maxVersion {
			return "", fmt.Errorf("cql: a user was erased more than %d times", uint64(maxVersion)/erasureStep)
		}
		a.Epoch++
		a.Serial, a.Hidden = 0, false
		return "", nil
	})
	if err != nil {
		return nil, err
	}
	// A writer that registers the user in a further scope from here on has
	// found the new epoch.
	if keys, err = s.userScopes(ctx, user); err != nil {
		return nil, err
	}
	changes := make([]leaderboard.Change, len(keys))
	err = s.each(ctx, len(keys), func(ctx context.Context, i int) (err error) {
		changes[i], err = s.eraseIn(ctx, &keys[i], &acc)
		return err
	})
	return changed(changes), err
}

// eraseIn removes what is kept of a user in a season.
func (s *Store) eraseIn(ctx context.Context, key *userKey, acc *account) (leaderboard.Change, error) {
	s.drop(key)
	b, e, err := s.boardOf(ctx, key)
	if err != nil || !e.of(&b) {
		return leaderboard.Change{}, err // it is being swept
	}
	st, have, rows, err := s.inspect(ctx, &b, key, e, claim{})
	if err != nil {
		return leaderboard.Change{}, err
	}
	if st.account.Epoch >= acc.Epoch {
		return leaderboard.Change{}, nil // what is there was put there since
	}
	after := leaderboard.Entry{Scope: key.Scope, User: key.user, Version: acc.version()}
	_, none := st.entries(&b, key)
	before := have.entryOr(none)

	divisions := map[string][]op{"": nil}
	for _, sp := range append(spotsOf(rows), spots(&before)...) {
		divisions[sp.division] = append(divisions[sp.division], op{deleteRow,
			append(key.ladder(e, sp.division, deleteTime(acc.Base)), []byte(sp.standing), string(key.user))})
	}
	divisions[""] = append(divisions[""], op{deleteEntry, []any{deleteTime(acc.Base), string(key.Board), string(key.Season), key.edition,
		bucketOf(key.user, e.buckets), string(key.user)}})
	names := slices.Sorted(maps.Keys(divisions))
	if err := s.each(ctx, len(names), func(ctx context.Context, i int) error { return s.conn.write(ctx, divisions[names[i]]...) }); err != nil {
		return leaderboard.Change{}, err
	}
	if err := s.eraseFinal(ctx, key); err != nil {
		return leaderboard.Change{}, err
	}
	// The results go last but one, as they say where the rest is; the scope goes
	// last, as it says where the results are.
	cover := acc.Epoch << epochShift
	if err := s.conn.write(ctx, op{deleteUser, key.args(cover)}); err != nil {
		return leaderboard.Change{}, err
	}
	err = s.conn.write(ctx, op{deleteUserScope, []any{cover, userHash(key.user), string(key.Board), string(key.Season), key.edition}})
	return leaderboard.Change{Before: before, After: after}, err
}
