package cql

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// SetBan merges the state of a ban into the account, and hides or shows the user's entries.
func (s *Store) SetBan(ctx context.Context, ban leaderboard.Ban) ([]leaderboard.Change, error) {
	unlock, err := s.lock(ctx, ban.User)
	if err != nil {
		return nil, err
	}
	defer unlock()
	c := &storedChange{User: ban.User}
	acc, err := s.storeBan(ctx, ban, func(value []byte) error {
		c.Ban = value
		return s.announceAccount(ctx, c)
	})
	if err != nil {
		return nil, err
	}
	keys, err := s.seasonsOf(ctx, c)
	if err != nil {
		return nil, err
	}
	changes := make([]leaderboard.Change, len(keys))
	err = s.forEach(ctx, len(keys), func(ctx context.Context, i int) (err error) {
		changes[i], err = s.updateSeason(ctx, &keys[i], &ban, &acc, false)
		return err
	})
	return withNewVersion(changes), err
}

// storeBan merges a state of a ban into the account. Before it adds the element (see
// account.go), it calls announce.
func (s *Store) storeBan(ctx context.Context, ban leaderboard.Ban, announce func(value []byte) error) (userAccount, error) {
	for {
		acc, err := s.readAccount(ctx, ban.User)
		if err != nil {
			return userAccount{}, err
		}
		merged, stands := leaderboard.MergeBan(banOf(&acc, ban.Board), ban, acc.ErasedAt)
		if !stands {
			return acc, nil
		}
		element, err := newBanElement(acc.Epoch, &merged)
		if err != nil {
			return userAccount{}, err
		}
		if err := announce(element.value); err != nil {
			return userAccount{}, err
		}
		updated, err := s.addBan(ctx, &merged, element)
		if err != nil || updated.Epoch == acc.Epoch {
			return updated, err
		}
		// the user was erased meanwhile, so addBan has removed the ban
	}
}

// addBan adds a state of a ban to the account. If the user was erased meanwhile, it removes
// the state again.
func (s *Store) addBan(ctx context.Context, ban *leaderboard.Ban, e element) (userAccount, error) {
	// every ban with an end must have a row in table ban_ends
	if err := s.putBanEnd(ctx, ban); err != nil {
		return userAccount{}, err
	}
	hash := userHash(ban.User)
	if err := s.conn.write(ctx, op{setBan, []any{elementAdded, e.name, e.value, hash}}); err != nil {
		return userAccount{}, err
	}
	acc, err := s.readAccount(ctx, ban.User)
	if err == nil && slices.Contains(acc.outdated, e.name) {
		// the erasure may not have found the ban
		err = s.conn.write(ctx, removeBans(hash, []string{e.name})...)
	}
	return acc, err
}

// repeatBan adds a state of a ban that another process has set. The serial depends on all
// states, so repeatBan adds the state even if a greater one stands. It ignores a state of
// an earlier epoch.
func (s *Store) repeatBan(ctx context.Context, user leaderboard.UserID, value []byte) (userAccount, error) {
	epoch, ban, err := decodeBanElement(value)
	if err != nil {
		return userAccount{}, err
	}
	acc, err := s.readAccount(ctx, user)
	if err == nil && acc.Epoch <= epoch {
		acc, err = s.addBan(ctx, &ban, newElement(value))
	}
	return acc, err
}

// UserBans returns the bans of a user.
func (s *Store) UserBans(ctx context.Context, user leaderboard.UserID) ([]leaderboard.Ban, error) {
	acc, err := s.readAccount(ctx, user)
	if err != nil {
		return nil, err
	}
	var bans []leaderboard.Ban
	for i := range acc.bans {
		bans = append(bans, acc.bans[i].Ban)
	}
	return bans, nil
}

// Bans yields the bans of all users, in the order of Cassandra's tokens of the user hashes.
func (s *Store) Bans(ctx context.Context, after leaderboard.BanKey) iter.Seq2[leaderboard.Ban, error] {
	return func(yield func(leaderboard.Ban, error) bool) {
		query := op{selectAccounts, nil}
		if after.User != "" {
			query = op{selectAccountsFrom, []any{userHash(after.User)}}
		}
		var row accountRow
		var decodeErr error
		stopped := false
		err := s.conn.read(ctx, query, row.dest(), func() bool {
			var acc userAccount
			if acc, decodeErr = row.decode(); decodeErr != nil {
				return false
			}
			for i := range acc.bans {
				b := &acc.bans[i].Ban
				if after.User != "" && b.User == after.User && b.Board <= after.Board {
					continue
				}
				if stopped = !yield(*b, nil); stopped {
					return false
				}
			}
			return true
		})
		if err == nil {
			err = decodeErr
		}
		if err != nil && !stopped {
			yield(leaderboard.Ban{}, err)
		}
	}
}

// # The ends of bans
//
// Table ban_ends has the bans by their end. SetBan writes the row before the ban. A row
// without a ban has no effect, because BansEnding compares each row with the account.
// SetBan never removes a row: if the same ban is set again after an erasure, the deletion
// would hide the new row.

func hasEnd(b *leaderboard.Ban) bool { return b != nil && !b.Until.IsZero() }

func (s *Store) putBanEnd(ctx context.Context, b *leaderboard.Ban) error {
	if !hasEnd(b) {
		return nil
	}
	return s.conn.write(ctx, op{insertBanEnd, []any{b.Until.UnixMicro(), userHash(b.User), string(b.Board), insertTime(uint64(b.Revision))}})
}

// staleBanEnd is the time after the end for which BansEnding keeps a row without a ban. The
// SetBan that wrote the row may still be running.
const staleBanEnd = time.Hour

// BansEnding yields the bans that end before a time, and removes stale rows.
func (s *Store) BansEnding(ctx context.Context, before time.Time) iter.Seq2[leaderboard.Ban, error] {
	return func(yield func(leaderboard.Ban, error) bool) {
		type end struct {
			until int64
			hash  []byte
			board string
		}
		var e end
		ends, err := gather(ctx, s.conn, op{selectBanEnds, []any{leaderboard.Truncate(before).UnixMicro()}}, []any{&e.until, &e.hash, &e.board},
			func() (end, error) { return end{e.until, take(&e.hash), e.board}, nil })
		if err != nil {
			yield(leaderboard.Ban{}, err)
			return
		}
		for _, e := range ends {
			var acc userAccount
			if acc, err = s.readAccountHash(ctx, e.hash); errors.Is(err, leaderboard.ErrFormat) {
				if !yield(leaderboard.Ban{}, fmt.Errorf("cql: decode the account of a user whose ban ends: %w", err)) {
					return
				}
				err = nil
				continue
			}
			if err != nil {
				break
			}
			b := banOf(&acc, leaderboard.BoardID(e.board))
			if hasEnd(b) && b.Until.UnixMicro() == e.until {
				if !yield(*b, nil) {
					return
				}
				continue
			}
			if s.now().UnixMicro()-e.until > staleBanEnd.Microseconds() {
				if err = s.conn.write(ctx, op{deleteBanEnd, []any{sweepTime, e.until, e.hash, e.board}}); err != nil {
					break
				}
			}
		}
		if err != nil {
			yield(leaderboard.Ban{}, err)
		}
	}
}
