package pebble

import (
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/open-leaderboard/leaderboard/storage"
)

// Swap removes expired registers at most once a second. In the last case, the clock has gone back.
func TestExpiredRegistersAreRemoved(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	begin := now
	s := mustOpen(t, "data", Options{FS: vfs.NewMem(), Now: func() time.Time { return now }})
	defer mustClose(t, s)
	for i, tt := range []struct {
		elapsed time.Duration
		want    int
	}{{0, 1}, {500 * time.Millisecond, 2}, {time.Second, 1}, {1999 * time.Millisecond, 2}, {3 * time.Second, 1}, {time.Second, 2}} {
		now = begin.Add(tt.elapsed)
		r := storage.Register{Key: fmt.Sprint(i), Value: []byte{1}, TTL: time.Millisecond}
		if ok, err := s.Swap(t.Context(), "l", nil, r); err != nil || !ok {
			t.Fatalf("Swap after %v = %v, error %v; want true", tt.elapsed, ok, err)
		}
		if got := len(s.expiring); got != tt.want {
			t.Errorf("after %v, the store has %d registers, want %d", tt.elapsed, got, tt.want)
		}
	}
}
