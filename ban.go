package leaderboard

import (
	"cmp"
	"strings"
	"time"
)

// Ban is the state of a user's ban on one board, or on every board. Banned is false if the
// ban was lifted.
//
// Of all states of one user and board, the store keeps the greatest by [Ban.Compare]. So
// the order and the repetition of writes do not matter.
type Ban struct {
	User UserID
	// Board is empty for the ban on every board.
	Board BoardID `json:",omitempty"`
	// Revision is 0 in a new state until [MergeBan] assigns it.
	Revision int64 `json:",omitempty"`
	Banned   bool
	Reason   string // for operators, at most 256 bytes
	Actor    string `json:",omitempty"`
	At       time.Time
	// Until is when the ban ends; zero means never. At the end, the service lifts the ban,
	// not the store: see [UserStore].BansEnding. Until stays set until the ranks include the
	// user again.
	Until time.Time `json:",omitzero"`
}

// BanKey identifies a ban.
type BanKey struct {
	User  UserID
	Board BoardID
}

// Key identifies the ban.
func (b *Ban) Key() BanKey { return BanKey{b.User, b.Board} }

// InForce reports whether b hides the user at the time t.
func (b *Ban) InForce(t time.Time) bool {
	return b.Banned && (b.Until.IsZero() || t.Before(b.Until))
}

// Concerns reports whether b is a ban on the board, on its source, or on every board.
func (b *Ban) Concerns(board *Board) bool {
	return b.Board == "" || b.Board == board.ID || board.Source != nil && b.Board == board.Source.Board
}

// Hides reports whether b hides the user's entries on a board, regardless of b.Until.
func (b *Ban) Hides(board *Board) bool { return b.Banned && b.Concerns(board) }

// Compare orders the states of one user and board by Revision, then Banned, then Until. A
// zero Until is the latest. The other fields decide the remaining ties.
func (b *Ban) Compare(o *Ban) int {
	return cmp.Or(
		cmp.Compare(b.Revision, o.Revision), compareBool(b.Banned, o.Banned),
		compareBool(b.Until.IsZero(), o.Until.IsZero()), b.Until.Compare(o.Until), b.At.Compare(o.At),
		strings.Compare(b.Actor, o.Actor), strings.Compare(b.Reason, o.Reason))
}

func compareBool(x, y bool) int {
	switch {
	case x == y:
		return 0
	case x:
		return 1
	default:
		return -1
	}
}

// MergeBan merges the state b of a ban into the stored state, which may be nil. It
// returns the state to store, and reports whether that state is b. erasedAt is the time
// of the user's last erasure, or zero.
//
// If b has revision 0, b is new, and MergeBan assigns a revision above the stored one. A new
// state that lifts a ban has no effect if the user is not banned. A state with a revision
// has no effect if it was set at erasedAt or earlier, or if it is not greater than the
// stored state.
func MergeBan(stored *Ban, b Ban, erasedAt time.Time) (Ban, bool) {
	b.At, b.Until = Truncate(b.At), Truncate(b.Until)
	old := Ban{User: b.User, Board: b.Board}
	if stored != nil {
		old = *stored
	}
	if b.Revision == 0 {
		if !b.Banned && !old.Banned {
			return old, false
		}
		b.Revision = max(old.Revision+1, b.At.UnixMicro())
		return b, true
	}
	if !erasedAt.IsZero() && !b.At.After(erasedAt) || stored != nil && b.Compare(stored) <= 0 {
		return old, false
	}
	return b, true
}
