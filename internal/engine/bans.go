package engine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/storage"
)

// # Lists of bans
//
// The users who were ever banned are rows of one of the bannedBuckets lists. A key is the hash of the
// user's id. List banEnds has the bans by their end, and the revision as value and version. SetBan
// writes both rows before the ban. A row without a ban has no effect, because readers compare
// it with the account.
//
// SetBan removes no row of banEnds: a concurrent SetBan may set the same ban again.
const (
	bannedBuckets = 16
	banEnds       = storage.Transient + "ban ends"

	// staleBanEnd is the time after the end for which BansEnding keeps a row without a ban. The
	// SetBan that wrote the row may still be running.
	staleBanEnd = time.Hour
	// accountsPerRead is the number of accounts that Bans reads together.
	accountsPerRead = 64
)

func bannedBucket(userHash []byte) int { return int(userHash[0]) % bannedBuckets }

func bannedList(bucket int) string { return fmt.Sprintf("banned/%x", bucket) }

func hasEnd(b *leaderboard.Ban) bool { return b != nil && !b.Until.IsZero() }

func banEndTime(t time.Time) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(t.UnixMicro())^1<<63)
}

// setBan adds the writes of a ban. acc is the account before the ban.
func (c *accountChange) setBan(acc *userAccount, ban *leaderboard.Ban, element storage.Row) {
	hash := hashOf(ban.User)
	if len(acc.bans) == 0 {
		c.writes = append(c.writes, storage.RowWrite{List: bannedList(bannedBucket(hash)), Row: storage.Row{Key: hash, Value: []byte{1}}, Version: elementAdded})
	}
	if hasEnd(ban) {
		key := append(append(banEndTime(ban.Until), hash...), ban.Board...)
		c.writes = append(c.writes, storage.RowWrite{List: banEnds, Row: storage.Row{Key: key, Value: binary.AppendUvarint(nil, uint64(ban.Revision))}, Version: ban.Revision})
	}
	c.add(element)
	c.Ban, c.at = element.Value, ban.At
}

// SetBan merges the state of a ban into the account, and hides or shows the user's entries.
func (s *Store) SetBan(ctx context.Context, ban leaderboard.Ban) ([]leaderboard.Change, error) {
	for {
		acc, err := s.account(ctx, hashOf(ban.User))
		if err != nil {
			return nil, err
		}
		c := accountChange{Store: s, storedChange: storedChange{User: ban.User}, ban: ban, at: ban.At}
		merged, stands := leaderboard.MergeBan(acc.ban(ban.Board), ban, acc.ErasedAt)
		var element storage.Row
		if stands {
			if element, err = newBanElement(acc.Epoch, &merged); err != nil {
				return nil, err
			}
			c.setBan(&acc, &merged, element)
			if err := s.announceAccount(ctx, &c.storedChange); err != nil {
				return nil, err
			}
		}
		changes, err := c.run(ctx)
		erased := slices.ContainsFunc(c.acc.outdated, func(key []byte) bool { return bytes.Equal(key, element.Key) })
		if err != nil || !erased {
			return withNewVersion(changes), err
		}
		// the user was erased meanwhile, so run has removed the ban
	}
}

// UserBans returns the bans of a user.
func (s *Store) UserBans(ctx context.Context, user leaderboard.UserID) ([]leaderboard.Ban, error) {
	acc, err := s.account(ctx, hashOf(user))
	var bans []leaderboard.Ban
	for i := range acc.bans {
		bans = append(bans, acc.bans[i].Ban)
	}
	return bans, err
}

// Bans yields the bans of all users, ordered by bucket and hash of the user.
func (s *Store) Bans(ctx context.Context, after leaderboard.BanKey) iter.Seq2[leaderboard.Ban, error] {
	return func(yield func(leaderboard.Ban, error) bool) {
		first, position := 0, []byte(nil)
		if after.User != "" {
			position = hashOf(after.User)
			first = bannedBucket(position)
			bans, err := s.UserBans(ctx, after.User)
			bans = slices.DeleteFunc(bans, func(b leaderboard.Ban) bool { return b.Board <= after.Board })
			if !yieldAll(bans, err, yield) {
				return
			}
		}
		for bucket := first; bucket < bannedBuckets; bucket++ {
			var hashes [][]byte
			flush := func() bool {
				bans, err := s.bansOf(ctx, hashes)
				hashes = hashes[:0]
				return yieldAll(bans, err, yield)
			}
			for row, err := range s.Rows(ctx, bannedList(bucket), position) {
				if err != nil {
					yield(leaderboard.Ban{}, err)
					return
				}
				if hashes = append(hashes, row.Key); len(hashes) == accountsPerRead && !flush() {
					return
				}
			}
			if len(hashes) > 0 && !flush() {
				return
			}
			position = nil
		}
	}
}

func yieldAll(bans []leaderboard.Ban, err error, yield func(leaderboard.Ban, error) bool) bool {
	for _, b := range bans {
		if !yield(b, nil) {
			return false
		}
	}
	if err != nil {
		yield(leaderboard.Ban{}, err)
	}
	return err == nil
}

// bansOf returns the bans of users, in the order of their hashes. After an error, it also returns the
// bans of the users before.
func (s *Store) bansOf(ctx context.Context, hashes [][]byte) ([]leaderboard.Ban, error) {
	var lists []string
	for _, hash := range hashes {
		lists = append(lists, accountList(hash))
	}
	rowsOf := map[string][]storage.Row{}
	for row, err := range s.ListRows(ctx, lists, nil) {
		if err != nil {
			return nil, err
		}
		rowsOf[row.List] = append(rowsOf[row.List], row.Row)
	}
	var bans []leaderboard.Ban
	for _, list := range lists {
		acc, err := decodeAccount(func(yield func(storage.Row, error) bool) {
			for _, row := range rowsOf[list] {
				if !yield(row, nil) {
					return
				}
			}
		})
		if err != nil {
			return bans, err
		}
		for i := range acc.bans {
			bans = append(bans, acc.bans[i].Ban)
		}
	}
	return bans, nil
}

// A banEnd is a row of list banEnds.
type banEnd struct {
	key   []byte
	until time.Time
	hash  []byte
	board leaderboard.BoardID
	value []byte
}

func (s *Store) banEndsBefore(ctx context.Context, before time.Time) ([]banEnd, error) {
	end := banEndTime(leaderboard.Truncate(before))
	var ends []banEnd
	for row, err := range s.Rows(ctx, banEnds, nil) {
		if err != nil {
			return nil, err
		}
		if bytes.Compare(row.Key, end) >= 0 {
			break
		}
		if len(row.Key) < 8+sha256.Size {
			return nil, fmt.Errorf("engine: end of a ban: %w", leaderboard.ErrFormat)
		}
		until, rest := binary.BigEndian.Uint64(row.Key)^1<<63, row.Key[8:]
		e := banEnd{row.Key, time.UnixMicro(int64(until)).UTC(), rest[:sha256.Size], leaderboard.BoardID(rest[sha256.Size:]), row.Value}
		ends = append(ends, e)
	}
	return ends, nil
}

// BansEnding yields the bans that end before a time, and removes stale rows.
func (s *Store) BansEnding(ctx context.Context, before time.Time) iter.Seq2[leaderboard.Ban, error] {
	return func(yield func(leaderboard.Ban, error) bool) {
		ends, err := s.banEndsBefore(ctx, before)
		for i := 0; i < len(ends) && err == nil; i++ {
			e := &ends[i]
			var acc userAccount
			if acc, err = s.account(ctx, e.hash); errors.Is(err, leaderboard.ErrFormat) {
				if !yield(leaderboard.Ban{}, fmt.Errorf("engine: account of a user whose ban ends: %w", err)) {
					return
				}
				err = nil
				continue
			}
			if b := acc.ban(e.board); err == nil && hasEnd(b) && b.Until.Equal(e.until) {
				if !yield(*b, nil) {
					return
				}
			} else if err == nil && s.Environment().Now().Sub(e.until) > staleBanEnd {
				err = s.removeBanEnd(ctx, e)
			}
		}
		if err != nil {
			yield(leaderboard.Ban{}, err)
		}
	}
}

// A later SetBan of the same end writes the row at a greater version.
func (s *Store) removeBanEnd(ctx context.Context, e *banEnd) error {
	revision, n := binary.Uvarint(e.value)
	if n <= 0 {
		return fmt.Errorf("engine: end of a ban: %w", leaderboard.ErrFormat)
	}
	return s.WriteRows(ctx, storage.RowWrite{List: banEnds, Row: storage.Row{Key: e.key}, Version: int64(revision), Forget: true})
}
