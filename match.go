package leaderboard

import (
	"cmp"
	"strings"
	"time"
)

// MatchKey identifies a match in a season of a board.
type MatchKey struct {
	SeasonKey
	Match MatchID
}

// MatchState is the state of a match on a board whose [Board].Matches is true.
//
// The store merges the states of one match by [MergeMatch].
type MatchState struct {
	MatchKey
	// Voids counts how often the match was voided or restored. If it is odd, the match is
	// void.
	Voids int64
	// Applied is the value of Voids that the service has set in all results of the match. If
	// Applied is less than Voids, a process is still setting Voids in the results, or died
	// before it had set all. In a store with several regions, each region has its own
	// Applied.
	Applied int64
	Reason  string // for operators, at most 256 bytes
	Actor   string
	At      time.Time
}

// IsVoid reports whether the match is void.
func (m *MatchState) IsVoid() bool { return isVoid(m.Voids) }

// IsVoid reports whether the result does not count because its match is void.
func (r *MatchResult) IsVoid() bool { return isVoid(r.Voids) }

func isVoid(voids int64) bool { return voids%2 == 1 }

// DeletedBy reports whether a deletion of the season or of the board at deletedAt also
// deletes the state. A zero deletedAt means no deletion.
func (m *MatchState) DeletedBy(deletedAt time.Time) bool {
	return !deletedAt.IsZero() && !m.At.After(deletedAt)
}

// Compare orders the states of one match by Voids, At, Actor and Reason.
func (m *MatchState) Compare(o *MatchState) int {
	return cmp.Or(cmp.Compare(m.Voids, o.Voids), m.At.Compare(o.At), strings.Compare(m.Actor, o.Actor), strings.Compare(m.Reason, o.Reason))
}

// MergeMatch returns the greater of two states by [MatchState.Compare], with the greater
// Applied of both.
func MergeMatch(x, y MatchState) MatchState {
	applied := max(x.Applied, y.Applied)
	if x.Compare(&y) < 0 {
		x = y
	}
	x.Applied = applied
	return x
}
