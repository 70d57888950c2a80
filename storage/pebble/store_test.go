package pebble_test

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	leaderboard "github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/engine"
	"github.com/open-leaderboard/leaderboard/storage"
	"github.com/open-leaderboard/leaderboard/storage/pebble"
	"github.com/open-leaderboard/leaderboard/storage/storagetest"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

func openMem(t testing.TB) leaderboard.Store {
	t.Helper()
	s, err := pebble.Open("data", pebble.Options{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	return engine.New(s)
}

func TestBackend(t *testing.T) {
	storagetest.RunBackend(t, func(t testing.TB) storage.Backend {
		t.Helper()
		s, err := pebble.Open("data", pebble.Options{FS: vfs.NewMem()})
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}

func TestRandomHistories(t *testing.T) {
	needs.NoRace(t, "one call follows another")
	storagetest.RunHistories(t, openMem, storagetest.Sizes{Histories: needs.More(t, 12)})
}

// The contract allows RankChanges to yield nothing if one process holds the store and its only index.
var limits = storagetest.Limits{NoRankChanges: "each start of the process loads the index from the store"}

func TestContract(t *testing.T) {
	// TestContractOnDisk has all rows and rounds.
	storagetest.Run(t, openMem, limits, storagetest.Sizes{RowsDivisor: 5, RoundsDivisor: 2})
}

func TestRefusalsExpire(t *testing.T) {
	storagetest.RunExpiry(t, func(t testing.TB, now func() time.Time) leaderboard.Store {
		t.Helper()
		s, err := pebble.Open("data", pebble.Options{FS: vfs.NewMem(), Now: now})
		if err != nil {
			t.Fatal(err)
		}
		return engine.New(s)
	})
}

func TestContractOnDisk(t *testing.T) {
	needs.NoRace(t, "the contract runs under the detector in memory")
	storagetest.Run(t, func(t testing.TB) leaderboard.Store {
		t.Helper()
		s, err := pebble.Open(t.TempDir(), pebble.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return engine.New(s)
	}, limits, storagetest.Sizes{})
}
