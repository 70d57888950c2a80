// Package engine is the [leaderboard.Store] over any [storage.Backend]. It has the rules that are
// the same for all backends.
package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/finals"
	"github.com/open-leaderboard/leaderboard/storage"
)

// Store is a [leaderboard.Store]. Methods that Store does not define are the backend's, and those
// of the final standings.
type Store struct {
	storage.Backend
	*finalStore
	profiles *profileCache
}

type finalStore = finals.Store

var _ leaderboard.Store = (*Store)(nil)

// New returns the store over a backend. Close closes the backend.
func New(b storage.Backend) *Store { return &Store{b, finals.New(b), newProfileCache()} }

// Erase removes all data of a user.
func (s *Store) Erase(ctx context.Context, user leaderboard.UserID, erasedAt time.Time) ([]leaderboard.Change, error) {
	changes, err := s.Backend.Erase(ctx, user, erasedAt)
	if err != nil {
		return nil, err
	}
	return changes, errors.Join(s.eraseActs(ctx, user), s.eraseProfile(ctx, user, leaderboard.Truncate(erasedAt)))
}

// FinishRankChange also repeats the erasure of a profile, which another region may have written
// during the erasure.
func (s *Store) FinishRankChange(ctx context.Context, c leaderboard.RankChange, update func([]leaderboard.Entry) error) error {
	if c.User != "" {
		erasedAt, err := s.ErasedAt(ctx, c.User)
		if err == nil && !erasedAt.IsZero() {
			err = s.eraseProfile(ctx, c.User, erasedAt)
		}
		if err != nil {
			return err
		}
	}
	return s.Backend.FinishRankChange(ctx, c, update)
}

func decode(subject string, text []byte, dst any) error {
	if err := json.Unmarshal(text, dst); err != nil {
		return fmt.Errorf("engine: %s: %w: %w", subject, leaderboard.ErrFormat, err)
	}
	return nil
}
