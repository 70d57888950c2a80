package engine

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/storage"
)

// reservation is the value of a register that expires with the reservation. Each Key has a list,
// because swaps of one list wait for each other.
type reservation struct {
	Revision int64     `json:"revision"`
	Holder   string    `json:"holder"`
	Until    time.Time `json:"until"`
}

// Reserve stores r, unless a stored reservation forbids r: see [leaderboard.Reservation.Grants].
// Grants allows a caller to repeat a Reserve whose outcome is unknown.
func (s *Store) Reserve(ctx context.Context, r leaderboard.Reservation) (bool, error) {
	value, err := json.Marshal(reservation{r.Revision, r.Holder, leaderboard.Truncate(r.Until)})
	if err != nil {
		return false, fmt.Errorf("engine: reservation: %w", err)
	}
	list := reservationsOf(&r.Key)
	next := storage.Register{Value: value, TTL: max(r.Until.Sub(r.At), 0) + time.Second}
	for {
		old, err := s.Register(ctx, list, next.Key)
		if err != nil {
			return false, err
		}
		if old != nil {
			var stored reservation
			if err := decode("reservation", old, &stored); err != nil {
				return false, err
			}
			if !r.Grants(&leaderboard.Reservation{Revision: stored.Revision, Holder: stored.Holder, Until: stored.Until}) {
				return false, nil
			}
		}
		if ok, err := s.Swap(ctx, list, old, next); ok || err != nil {
			return ok, err
		}
	}
}

func reservationsOf(key *leaderboard.ResultKey) string {
	var text []byte
	for _, part := range []string{string(key.Board), string(key.Season), string(key.User), string(key.Match)} {
		text = append(binary.AppendUvarint(text, uint64(len(part))), part...)
	}
	sum := sha256.Sum256(text)
	return "reservation/" + hex.EncodeToString(sum[:])
}
