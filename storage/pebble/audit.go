package pebble

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"

	"github.com/cockroachdb/pebble/v2"

	leaderboard "github.com/open-leaderboard/leaderboard"
)

// appendActKey appends an act's key without its first byte (see keys.go). Newer acts have smaller
// keys.
func appendActKey(dst []byte, k leaderboard.ActKey) []byte {
	return append(binary.BigEndian.AppendUint64(dst, ^(uint64(k.At.UnixMicro())^1<<63)), k.ID...)
}

func actKey(k leaderboard.ActKey) []byte { return appendActKey([]byte{kindAct}, k) }

func actsOf(user leaderboard.UserID) []byte {
	hash := hashOf(user)
	return append([]byte{kindUserAct}, hash[:]...)
}

// AppendAct implements [leaderboard.Store].
func (s *Store) AppendAct(ctx context.Context, a leaderboard.Act) error {
	a.At = leaderboard.Truncate(a.At)
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
		} else if err := batch.Set(appendActKey(actsOf(a.User), a.Key()), nil, nil); err != nil {
			return err
		}
	}
	return setJSON(batch, actKey(a.Key()), &a)
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
	return batch.DeleteRange(prefix, keyAfter(prefix), nil)
}

// Acts implements [leaderboard.Store].
func (s *Store) Acts(ctx context.Context, from leaderboard.ActKey) iter.Seq2[leaderboard.Act, error] {
	return func(yield func(leaderboard.Act, error) bool) {
		lower := []byte{kindAct}
		if from.ID != "" {
			lower = append(actKey(from), 0)
		}
		err := s.scan(ctx, lower, keyAfter([]byte{kindAct}), func(_, value []byte) (bool, error) {
			var a leaderboard.Act
			if err := decodeJSON(value, &a); err != nil {
				return false, err
			}
			return yield(a, nil), nil
		})
		if err != nil {
			yield(leaderboard.Act{}, fmt.Errorf("audit log: %w", err))
		}
	}
}
