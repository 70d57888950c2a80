package cql

import (
	"context"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/engine"
)

// A testStore is a store with the engine over it.
type testStore struct {
	*Store
	*engineStore
}

type engineStore = engine.Store

func openTest(c conn, o Options) *testStore {
	s := open(c, o)
	return &testStore{s, engine.New(s)}
}

// forgetPages empties the cache of final standings.
func (s *testStore) forgetPages() { s.engineStore = engine.New(s.Store) }

// Erase does not erase the details of acts.
func (s *testStore) Erase(ctx context.Context, user leaderboard.UserID, at time.Time) ([]leaderboard.Change, error) {
	return s.Store.Erase(ctx, user, at)
}

// FinishRankChange is ambiguous otherwise.
func (s *testStore) FinishRankChange(ctx context.Context, c leaderboard.RankChange, update func([]leaderboard.Entry) error) error {
	return s.engineStore.FinishRankChange(ctx, c, update)
}
