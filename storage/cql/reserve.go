package cql

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// reservation is the column `body` of the table reservations.
type reservation struct {
	Revision int64     `json:"revision"`
	Holder   string    `json:"holder"`
	Until    time.Time `json:"until"`
}

// Reserve stores r, unless a stored reservation forbids r: see
// [leaderboard.Reservation.Grants].
func (s *Store) Reserve(ctx context.Context, r leaderboard.Reservation) (bool, error) {
	text, err := json.Marshal(reservation{r.Revision, r.Holder, leaderboard.Truncate(r.Until)})
	if err != nil {
		return false, fmt.Errorf("cql: reservation: %w", err)
	}
	body, match := string(text), matchHash(r.Key)
	for range maxTries {
		var old string
		if err := s.conn.read(ctx, op{selectReservation, []any{match}}, []any{&old}, func() bool { return true }); err != nil {
			return false, err
		}
		write := op{createReservation, []any{match, body}}
		if old != "" {
			var current reservation
			if err := json.Unmarshal([]byte(old), &current); err != nil {
				return false, fmt.Errorf("cql: reservation: %w: %w", leaderboard.ErrFormat, err)
			}
			if !r.Grants(&leaderboard.Reservation{Revision: current.Revision, Holder: current.Holder, Until: current.Until}) {
				return false, nil
			}
			write = op{changeReservation, []any{body, match, old}}
		}
		if ok, err := s.conn.swap(ctx, write, map[string]any{}); ok || err != nil {
			return ok, err
		}
	}
	return false, fmt.Errorf("cql: reservation in season %q of board %q: other calls changed it in each of %d attempts; repeat the call: %w", r.Key.Season, r.Key.Board, maxTries, leaderboard.ErrUnavailable)
}

func matchHash(key leaderboard.ResultKey) []byte {
	var text []byte
	for _, part := range []string{string(key.Board), string(key.Season), string(key.User), string(key.Match)} {
		text = appendString(text, part)
	}
	sum := sha256.Sum256(text)
	return sum[:]
}
