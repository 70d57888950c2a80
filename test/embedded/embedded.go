// Package embedded opens the embedded engine in memory, for tests.
package embedded

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/open-leaderboard/leaderboard/cache/memory"
	"github.com/open-leaderboard/leaderboard/internal/engine"
	"github.com/open-leaderboard/leaderboard/storage/pebble"
)

// New returns an empty store on an in-memory file system. The caller must close it.
func New(t testing.TB) *engine.Store {
	t.Helper()
	store, err := pebble.Open("data", pebble.Options{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	return engine.New(store)
}

// Store returns an empty store. It is closed when t ends.
func Store(t testing.TB) *engine.Store {
	t.Helper()
	store := New(t)
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

// Open returns a store from [Store], and an empty index.
func Open(t testing.TB) (*engine.Store, *memory.Index) {
	t.Helper()
	return Store(t), memory.New()
}
