package pebble

import (
	"context"
	"time"

	leaderboard "github.com/open-leaderboard/leaderboard"
)

// purgeInterval is the shortest time between two searches for reservations that have ended.
const purgeInterval = time.Second

// Reserve implements [leaderboard.Store]. Only this process uses the data, so it keeps the
// reservations in memory.
func (s *Store) Reserve(ctx context.Context, r leaderboard.Reservation) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if err := s.failure(); err != nil {
		return false, err
	}
	s.reservedMu.Lock()
	defer s.reservedMu.Unlock()
	if have, ok := s.reserved[r.Key]; ok && !r.Grants(&have) {
		return false, nil
	}
	if r.At.Sub(s.purgedAt).Abs() >= purgeInterval {
		s.purgedAt = r.At
		for key, have := range s.reserved {
			if !have.Until.After(r.At) {
				delete(s.reserved, key)
			}
		}
	}
	s.reserved[r.Key] = r
	return true, nil
}
