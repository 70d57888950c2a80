package leaderboard

import (
	"cmp"
	"strings"
	"time"
)

// Ban is the state of a user's ban on one board, or on every board. A lifted ban is a
// state too, in which Banned is false.
//
// States of one user and board are merged by [Ban.Compare]: the greatest stands. So any
// number of states, in any order and any number of times, lead to the same one.
type Ban struct {
	User UserID
	// Board is empty for the ban on every board.
	Board BoardID `json:",omitempty"`
	// Revision orders the states. States that an older version stored have revision 0.
	Revision int64 `json:",omitempty"`
	Banned   bool
	Reason   string // for operators, at most 256 bytes
	// Actor is the administrator who made the state. It is empty if unknown.
	Actor string `json:",omitempty"`
	At    time.Time
	// Until is when the ban ends; zero means never. The store does not end the ban
	// itself: see [UserStore].BansEnding. A lifted ban has an Until while the ranks may
	// still lack the user.
	Until time.Time `json:",omitzero"`
}

// BanKey identifies a ban. The empty Board means the ban on every board.
type BanKey struct {
	User  UserID
	Board BoardID
}

// Key returns the key of b.
func (b *Ban) Key() BanKey { return BanKey{b.User, b.Board} }

// InForce reports whether b hides the user at the time t.
func (b *Ban) InForce(t time.Time) bool {
	return b.Banned && (b.Until.IsZero() || t.Before(b.Until))
}

// Compare orders the states of one user and board. The greater state stands: that with
// the higher revision, then a ban rather than a lifted ban, then the later end.
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

// MergeBan returns the state that stands after next, and reports whether it is next.
// have is the state that stands, or nil. If next has revision 0, MergeBan assigns the
// revision with which next stands, unless next lifts a ban that is not there. A next with
// a revision has no effect if it was made at erasedAt or earlier.
func MergeBan(have *Ban, next Ban, erasedAt time.Time) (Ban, bool) {
	next.At, next.Until = Truncate(next.At), Truncate(next.Until)
	none := Ban{User: next.User, Board: next.Board}
	if have != nil {
		none = *have
	}
	if next.Revision == 0 {
		if !next.Banned && !none.Banned {
			return none, false
		}
		next.Revision = max(none.Revision+1, next.At.UnixMicro())
		return next, true
	}
	if !erasedAt.IsZero() && !next.At.After(erasedAt) || have != nil && next.Compare(have) <= 0 {
		return none, false
	}
	return next, true
}
