package pebble

import (
	"context"
	"time"

	leaderboard "github.com/open-leaderboard/leaderboard"
)

// purgeInterval is the shortest time between two removals of ended reservations (see
// [leaderboard.Reservation]).
const purgeInterval = time.Second

// Reserve implements [leaderboard.Store]. It keeps the reservations in memory, because no other
// process can open the store.
func (s *Store) Reserve(ctx context.Context, r leaderboard.Reservation) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if err := s.failure(); err != nil {
		return false, err
	}
	s.reservedMu.Lock()
	defer s.reservedMu.Unlock()
	if stored, ok := s.reserved[r.Key]; ok && !r.Grants(&stored) {
		return false, nil
	}
	if r.At.Sub(s.purgedAt).Abs() >= purgeInterval {
		s.purgedAt = r.At
		for key, stored := range s.reserved {
			if !stored.Until.After(r.At) {
				delete(s.reserved, key)
			}
		}
	}
	s.reserved[r.Key] = r
	return true, nil
}
