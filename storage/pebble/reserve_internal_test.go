package pebble

import (
	"testing"
	"time"

	leaderboard "github.com/open-leaderboard/leaderboard"
)

// Reserve removes ended reservations at most once a second. In the last case, the caller's clock
// has gone back to a time before the end of the stored reservation.
func TestEndedReservationsAreRemoved(t *testing.T) {
	s := mustOpen(t, t.TempDir(), Options{})
	defer mustClose(t, s)
	begin := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for i, tt := range []struct {
		elapsed time.Duration
		want    int
	}{{0, 1}, {500 * time.Millisecond, 2}, {time.Second, 1}, {1999 * time.Millisecond, 2}, {3 * time.Second, 1}, {time.Second, 2}} {
		key, at := testResult("u", leaderboard.MatchID(rune('a'+i)), 0, 1).ResultKey, begin.Add(tt.elapsed)
		if ok, err := s.Reserve(t.Context(), leaderboard.Reservation{Key: key, Holder: "a", At: at, Until: at.Add(time.Millisecond)}); err != nil || !ok {
			t.Fatalf("Reserve after %v = %v, error %v; want true", tt.elapsed, ok, err)
		}
		if got := len(s.reserved); got != tt.want {
			t.Errorf("after %v, the store has %d reservations, want %d", tt.elapsed, got, tt.want)
		}
	}
}
