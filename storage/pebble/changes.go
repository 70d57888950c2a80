package pebble

import (
	"context"
	"encoding/binary"
	"maps"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"

	leaderboard "github.com/open-leaderboard/leaderboard"
)

// data is the key prefix of a season or a board. changeKey returns the key of the season's change
// time, or the prefix of these keys of the board's seasons.
func changeKey(data []byte) []byte { return append([]byte{kindChange}, data[1:]...) }

// ChangedAt implements [leaderboard.Store].
func (s *Store) ChangedAt(ctx context.Context, seasonKey leaderboard.SeasonKey) (time.Time, error) {
	bd := s.board(seasonKey.Board)
	if err := ctx.Err(); err != nil || bd == nil {
		return time.Time{}, err
	}
	s.changesMu.Lock()
	defer s.changesMu.Unlock()
	return s.changes[string(changeKey(makeSeasonRowKey(bd.number, seasonKey.Season)))], nil
}

// NoteChange implements [leaderboard.Store]. The store keeps the time of each change itself.
func (s *Store) NoteChange(ctx context.Context, _ leaderboard.SeasonKey, _ time.Time) error {
	return ctx.Err()
}

// noteChange sets a season's change time, in memory and in the batch, to at or a later known time.
//
// Concurrent callers may commit their batches in another order. So the disk may have an earlier
// time than the memory until the season's next change.
func (s *Store) noteChange(batch *pebble.Batch, season seasonRowKey, at time.Time) error {
	key := changeKey(season)
	s.changesMu.Lock()
	defer s.changesMu.Unlock()
	if last := s.changes[string(key)]; last.After(at) {
		at = last
	}
	s.changes[string(key)] = at
	return batch.Set(key, binary.BigEndian.AppendUint64(nil, uint64(at.UnixMicro())), nil)
}

// For data, see changeKey.
func (s *Store) forgetChanges(data []byte) {
	s.changesMu.Lock()
	defer s.changesMu.Unlock()
	prefix := string(changeKey(data))
	maps.DeleteFunc(s.changes, func(key string, _ time.Time) bool { return strings.HasPrefix(key, prefix) })
}

func (s *Store) loadChanges() error {
	s.changes = map[string]time.Time{}
	prefix := []byte{kindChange}
	return s.scan(context.Background(), prefix, keyAfter(prefix), func(key, value []byte) (bool, error) {
		if len(value) != 8 {
			return false, errFormat("time of a change")
		}
		s.changes[string(key)] = time.UnixMicro(int64(binary.BigEndian.Uint64(value))).UTC()
		return true, nil
	})
}
