// Package engine is the [leaderboard.Store] over any [storage.Backend]. It has the rules that are
// the same for all backends.
package engine

import (
	"context"
	"encoding/json"
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
}

type finalStore = finals.Store

var _ leaderboard.Store = (*Store)(nil)

// New returns the store over a backend. Close closes the backend.
func New(b storage.Backend) *Store { return &Store{b, finals.New(b)} }

// Erase removes all data of a user.
func (s *Store) Erase(ctx context.Context, user leaderboard.UserID, erasedAt time.Time) ([]leaderboard.Change, error) {
	changes, err := s.Backend.Erase(ctx, user, erasedAt)
	if err != nil {
		return nil, err
	}
	return changes, s.eraseActs(ctx, user)
}

func decode(subject string, text []byte, dst any) error {
	if err := json.Unmarshal(text, dst); err != nil {
		return fmt.Errorf("engine: %s: %w: %w", subject, leaderboard.ErrFormat, err)
	}
	return nil
}
