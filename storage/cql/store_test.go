package cql

import (
	"context"
	"fmt"

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

// StartRecount is ambiguous otherwise.
func (s *testStore) StartRecount(ctx context.Context, b *leaderboard.Board) ([]leaderboard.SeasonID, error) {
	return s.engineStore.StartRecount(ctx, b)
}

// Apply is ambiguous otherwise.
func (s *testStore) Apply(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) (leaderboard.ApplyReport, error) {
	return s.engineStore.Apply(ctx, b, results)
}

// accountList returns the name of the list of a user's account.
func accountList(user leaderboard.UserID) string { return fmt.Sprintf("account/%x", userHash(user)) }
