package pebble

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	leaderboard "github.com/open-leaderboard/leaderboard"
)

// The keys of the two records of an act end with 0 and one of these bytes.
const (
	outcomeRecord = 0
	intentRecord  = 1
)

// appendActKey appends an act's key without its first byte (see keys.go) and without its last two
// bytes. Newer acts have smaller keys.
func appendActKey(dst []byte, k leaderboard.ActKey) []byte {
	return append(binary.BigEndian.AppendUint64(dst, ^(uint64(k.At.UnixMicro())^1<<63)), k.ID...)
}

func appendRecordKey(dst []byte, a *leaderboard.Act) []byte {
	if a.IsOutcome() {
		return append(appendActKey(dst, a.Key()), 0, outcomeRecord)
	}
	return append(appendActKey(dst, a.Key()), 0, intentRecord)
}

func actsOf(user leaderboard.UserID) []byte {
	hash := hashOf(user)
	return append([]byte{kindUserAct}, hash[:]...)
}

// AppendAct implements [leaderboard.Store].
func (s *Store) AppendAct(ctx context.Context, a leaderboard.Act) error {
	a.At = leaderboard.Truncate(a.At)
	if a.IsOutcome() {
		a.CompletedAt = leaderboard.Truncate(a.CompletedAt)
	}
	// The lock prevents an erasure between appendAct's check for an erasure and the commit.
	unlock, err := s.lockUser(ctx, a.User)
	if err != nil {
		return err
	}
	batch := s.db.NewBatch()
	if err := s.appendAct(batch, a); err != nil {
		unlock()
		return fmt.Errorf("audit log: %w", err)
	}
	return s.commit(ctx, batch, unlock)
}

func (s *Store) appendAct(batch *pebble.Batch, a leaderboard.Act) error {
	if a.User != "" {
		var e erasure
		if _, err := s.get(erasedKey(hashOf(a.User)), e.decode); err != nil {
			return err
		}
		if !a.At.After(e.at) && !e.at.IsZero() {
			a = a.Redacted()
		} else if err := batch.Set(appendRecordKey(actsOf(a.User), &a), nil, nil); err != nil {
			return err
		}
	}
	return setJSON(batch, appendRecordKey([]byte{kindAct}, &a), &a)
}

func (s *Store) eraseActs(ctx context.Context, batch *pebble.Batch, user leaderboard.UserID) error {
	prefix := actsOf(user)
	if err := s.scan(ctx, prefix, keyAfter(prefix), func(key, _ []byte) (bool, error) {
		rowKey := append([]byte{kindAct}, key[len(prefix):]...)
		var a leaderboard.Act
		found, err := s.getJSON(rowKey, &a)
		if err != nil || !found {
			return true, err
		}
		a = a.Redacted()
		return true, setJSON(batch, rowKey, &a)
	}); err != nil {
		return err
	}
	return deletePrefix(batch, prefix)
}

// Acts implements [leaderboard.Store].
func (s *Store) Acts(ctx context.Context, after leaderboard.ActKey) iter.Seq2[leaderboard.Act, error] {
	return s.acts(ctx, []byte{kindAct}, after, func(_, value []byte, a *leaderboard.Act) (bool, error) { return true, decodeJSON(value, a) })
}

// UserActs implements [leaderboard.Store].
func (s *Store) UserActs(ctx context.Context, user leaderboard.UserID, after leaderboard.ActKey) iter.Seq2[leaderboard.Act, error] {
	prefix := actsOf(user)
	return s.acts(ctx, prefix, after, func(key, _ []byte, a *leaderboard.Act) (bool, error) {
		found, err := s.getJSON(append([]byte{kindAct}, key[len(prefix):]...), a)
		return found && !a.Erased, err // an erasure may remove the row meanwhile
	})
}

// acts yields an act for each key with the given prefix. Function read returns false for a key
// without an act.
func (s *Store) acts(ctx context.Context, prefix []byte, after leaderboard.ActKey, read func(key, value []byte, a *leaderboard.Act) (bool, error)) iter.Seq2[leaderboard.Act, error] {
	return func(yield func(leaderboard.Act, error) bool) {
		lower := prefix
		if after.ID != "" {
			lower = append(appendActKey(slices.Clone(prefix), after), 0, intentRecord+1)
		}
		err := s.scan(ctx, lower, keyAfter(prefix), func(key, value []byte) (bool, error) {
			var a leaderboard.Act
			found, err := read(key, value, &a)
			if err != nil {
				return false, err
			}
			return !found || yield(a, nil), nil
		})
		if err != nil {
			yield(leaderboard.Act{}, fmt.Errorf("audit log: %w", err))
		}
	}
}
