package engine_test

import (
	"context"
	"errors"
	"testing"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/engine"
	"github.com/open-leaderboard/leaderboard/storage"
	"github.com/open-leaderboard/leaderboard/test/embedded"
)

// staleTags finds all registers of a list, whatever the tag.
type staleTags struct{ storage.Backend }

func (b staleTags) Registers(ctx context.Context, list string, _ []byte) ([]storage.Register, error) {
	return b.Backend.Registers(ctx, list, nil)
}

func TestAPIKeyIgnoresStaleTags(t *testing.T) {
	s := engine.New(staleTags{embedded.Store(t).Backend})
	key := leaderboard.APIKey{ID: "k", Hash: [32]byte{2}}
	if err := s.PutAPIKey(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if k, err := s.APIKey(t.Context(), [32]byte{1}); !errors.Is(err, leaderboard.ErrAPIKeyNotFound) {
		t.Errorf("APIKey with a former hash returned %+v, error %v; want %v", k, err, leaderboard.ErrAPIKeyNotFound)
	}
	if _, err := s.APIKey(t.Context(), key.Hash); err != nil {
		t.Errorf("APIKey: %v", err)
	}
}
