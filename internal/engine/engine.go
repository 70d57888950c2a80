// Package engine is the [leaderboard.Store] over any [storage.Backend]. It has the rules that are
// the same for all backends.
package engine

import (
	"context"
	"encoding/json"
	"fmt"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/finals"
	"github.com/open-leaderboard/leaderboard/storage"
)

// Store is a [leaderboard.Store]. Methods that Store does not define are the backend's, and those
// of the final standings.
type Store struct {
	storage.Backend
	*finalStore
	profiles  *profileCache
	announced *lru.Cache[announcement, struct{}]
	matchIDs  *lru.Cache[string, struct{}] // see addMatchID
}

type finalStore = finals.Store

var _ leaderboard.Store = (*Store)(nil)

// New returns the store over a backend. Close closes the backend.
func New(b storage.Backend) *Store {
	announced, _ := lru.New[announcement, struct{}](maxAnnounced) // New fails only if the size is below 1
	matchIDs, _ := lru.New[string, struct{}](maxMatchIDs)
	s := &Store{b, finals.New(b), newProfileCache(), announced, matchIDs}
	b.Use(hooks{finals.Hooks{Store: s.finalStore}, accounts{s}, matches{s}})
	return s
}

// hooks implements [storage.Engine].
type hooks struct {
	finals.Hooks
	accounts
	matches
}

// Remove implements [storage.Engine].
func (h hooks) Remove(ctx context.Context, i *storage.Incarnation) error {
	s := h.accounts.Store
	regions, err := s.regions(ctx)
	if err == nil {
		err = s.announce(ctx, &storedChange{Seasons: []leaderboard.SeasonKey{i.SeasonKey}, Ended: i.Deletions}, regions)
	}
	if err == nil {
		err = h.Hooks.Remove(ctx, i)
	}
	if err == nil {
		err = h.matches.remove(ctx, i)
	}
	return err
}

func decode(subject string, text []byte, dst any) error {
	if err := json.Unmarshal(text, dst); err != nil {
		return fmt.Errorf("engine: %s: %w: %w", subject, leaderboard.ErrFormat, err)
	}
	return nil
}
