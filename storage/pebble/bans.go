package pebble

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"

	leaderboard "github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/codec"
)

func (s *Store) bansOf(user leaderboard.UserID) (bans []leaderboard.Ban, err error) {
	_, err = s.getJSON(banKey(user), &bans)
	return bans, err
}

func isHidden(bans []leaderboard.Ban, board *leaderboard.Board) bool {
	return slices.ContainsFunc(bans, func(b leaderboard.Ban) bool { return b.Hides(board) })
}

// UserBans implements [leaderboard.Store].
func (s *Store) UserBans(ctx context.Context, user leaderboard.UserID) ([]leaderboard.Ban, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return s.bansOf(user)
}

// Bans implements [leaderboard.Store]. Users are ordered by id.
func (s *Store) Bans(ctx context.Context, from leaderboard.BanKey) iter.Seq2[leaderboard.Ban, error] {
	return func(yield func(leaderboard.Ban, error) bool) {
		prefix := []byte{kindBan}
		err := s.scan(ctx, banKey(from.User), keyAfter(prefix), func(_, value []byte) (bool, error) {
			var bans []leaderboard.Ban
			if err := decodeJSON(value, &bans); err != nil {
				return false, err
			}
			for _, b := range bans {
				if from.User != "" && b.User == from.User && b.Board <= from.Board {
					continue
				}
				if !yield(b, nil) {
					return false, nil
				}
			}
			return true, nil
		})
		if err != nil {
			yield(leaderboard.Ban{}, fmt.Errorf("bans: %w", err))
		}
	}
}

// banEndsBefore returns the prefix of the keys of bans that end at t. Bans that end before t have
// smaller keys.
func banEndsBefore(t time.Time) []byte {
	return binary.BigEndian.AppendUint64([]byte{kindBanEnd}, uint64(t.UnixMicro())^1<<63)
}

func banEndKey(b *leaderboard.Ban) []byte {
	return append(codec.AppendText(banEndsBefore(b.Until), b.User), b.Board...)
}

func hasEnd(b *leaderboard.Ban) bool { return !b.Until.IsZero() }

// BansEnding implements [leaderboard.Store].
func (s *Store) BansEnding(ctx context.Context, before time.Time) iter.Seq2[leaderboard.Ban, error] {
	return func(yield func(leaderboard.Ban, error) bool) {
		err := s.scan(ctx, []byte{kindBanEnd}, banEndsBefore(leaderboard.Truncate(before)), func(key, _ []byte) (bool, error) {
			d := codec.Decoder{Rest: key[len(banEndsBefore(before)):]}
			user := leaderboard.UserID(d.Text())
			if d.Bad {
				return false, errFormat("key of a ban's end")
			}
			bans, err := s.bansOf(user)
			if errors.Is(err, leaderboard.ErrFormat) {
				return yield(leaderboard.Ban{}, fmt.Errorf("bans of user %q: %w", user, err)), nil
			}
			i := slices.IndexFunc(bans, func(b leaderboard.Ban) bool { return b.Board == leaderboard.BoardID(d.Rest) })
			if err != nil || i < 0 {
				return true, err // i < 0: the user was erased after the scan began
			}
			return !hasEnd(&bans[i]) || !bans[i].Until.Before(before) || yield(bans[i], nil), nil
		})
		if err != nil {
			yield(leaderboard.Ban{}, fmt.Errorf("bans that end: %w", err))
		}
	}
}

// SetBan implements [leaderboard.Store].
func (s *Store) SetBan(ctx context.Context, ban leaderboard.Ban) ([]leaderboard.Change, error) {
	unlock, err := s.lockUser(ctx, ban.User)
	if err != nil {
		return nil, err
	}
	batch := s.db.NewBatch()
	changes, err := s.setBan(ctx, batch, ban)
	if err != nil {
		unlock()
		return nil, fmt.Errorf("ban of user %q: %w", ban.User, err)
	}
	if err := s.commit(ctx, batch, unlock); err != nil {
		return nil, err
	}
	return changes, nil
}

// setBan returns the changes of entries that the ban hides or shows.
func (s *Store) setBan(ctx context.Context, batch *pebble.Batch, ban leaderboard.Ban) ([]leaderboard.Change, error) {
	var e erasure
	if _, err := s.get(erasedKey(hashOf(ban.User)), e.decode); err != nil {
		return nil, err
	}
	bans, err := s.bansOf(ban.User)
	if err != nil {
		return nil, err
	}
	i, found := slices.BinarySearchFunc(bans, ban.Board, func(b leaderboard.Ban, board leaderboard.BoardID) int {
		return strings.Compare(string(b.Board), string(board))
	})
	var stored *leaderboard.Ban
	if found {
		stored = &bans[i]
	}
	ban, changed := leaderboard.MergeBan(stored, ban, e.at)
	if !changed {
		return nil, nil
	}
	if found && hasEnd(stored) {
		if err := batch.Delete(banEndKey(stored), nil); err != nil {
			return nil, err
		}
	}
	if hasEnd(&ban) {
		if err := batch.Set(banEndKey(&ban), nil, nil); err != nil {
			return nil, err
		}
	}
	if found {
		bans[i] = ban
	} else {
		bans = slices.Insert(bans, i, ban)
	}
	value, err := json.Marshal(bans)
	if err != nil {
		return nil, fmt.Errorf("pebble: encode: %w", err)
	}
	if err := batch.Set(banKey(ban.User), value, nil); err != nil {
		return nil, err
	}
	return s.setHidden(ctx, batch, ban.User, bans, ban.At)
}

// setHidden sets Hidden, with at as the change time.
func (s *Store) setHidden(ctx context.Context, batch *pebble.Batch, user leaderboard.UserID, bans []leaderboard.Ban, at time.Time) ([]leaderboard.Change, error) {
	states, danglingNotes, err := s.userStates(ctx, user)
	if err != nil {
		return nil, err
	}
	for _, key := range danglingNotes {
		if err := batch.Delete(key, nil); err != nil {
			return nil, err
		}
	}
	var changes []leaderboard.Change
	for _, st := range states {
		hidden := isHidden(bans, &st.bd.Board)
		if st.row.hidden == hidden {
			continue
		}
		st.row.hidden = hidden
		st.row.version++
		st.after = st.entry()
		if err := errors.Join(st.writeEntry(batch), s.noteChange(batch, st.rowKey, at)); err != nil {
			return nil, err
		}
		changes = append(changes, leaderboard.Change{Before: st.before, After: st.after})
	}
	return changes, nil
}

func (s *Store) eraseBans(batch *pebble.Batch, user leaderboard.UserID) error {
	bans, err := s.bansOf(user)
	if err != nil {
		return err
	}
	for i := range bans {
		if hasEnd(&bans[i]) {
			if err := batch.Delete(banEndKey(&bans[i]), nil); err != nil {
				return err
			}
		}
	}
	return batch.Delete(banKey(user), nil)
}
