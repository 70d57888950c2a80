package leaderboard

import (
	"bytes"
	"crypto/sha256"
	"time"
)

// Status says what became of a submitted match result.
type Status int8

const (
	// Applied: the result stands and counts, or is a retraction that stands.
	Applied Status = iota
	// Duplicate: the same content of the same revision was known.
	Duplicate
	// Superseded: a higher revision stands.
	Superseded
	// Conflict: other content was known under the revision. Which of the two
	// stands is decided by their contents alone, unless a result may not stand at
	// all, and is rejected.
	Conflict
	// Rejected: the result was refused for a [Reason], and will always be.
	Rejected
	// Accepted: the result is durable in the log and will be applied.
	Accepted
	// Pending: the result is in the log and not yet applied.
	Pending
	// Retracted: the result was undone. It is the answer to a query only.
	Retracted
)

var statusNames = []string{"APPLIED", "DUPLICATE", "SUPERSEDED", "CONFLICT", "REJECTED", "ACCEPTED", "PENDING", "RETRACTED"}

func (s Status) String() string { return enumString(statusNames, int(s)) }

// Reason says why a result was rejected.
type Reason string

const (
	// ReasonFloor: the sum would have gone below the board's floor.
	ReasonFloor Reason = "FLOOR"
	// ReasonRange: a sum would have left ±2^53.
	ReasonRange Reason = "OUT_OF_RANGE"
	// ReasonClosed: the result came after the season's grace.
	ReasonClosed Reason = "SEASON_CLOSED"
	// ReasonErased: the user was erased after the result was received.
	ReasonErased Reason = "USER_ERASED"
	// ReasonInvalid: the result breaks a limit of the board.
	ReasonInvalid Reason = "INVALID"
)

// Refusal is the record of a rejected result, kept so that a replay is rejected
// too, whatever the board has become since.
type Refusal struct {
	Revision   int64
	Reason     Reason
	Content    ContentID
	ReceivedAt time.Time
}

// ContentID tells contents of results apart: the first bytes of the SHA-256 of
// a payload without its trailer.
type ContentID [16]byte

// ContentID returns the id of r's content.
func (r *MatchResult) ContentID() ContentID {
	n := r.Normalize()
	payload := n.AppendPayload(nil)
	sum := sha256.Sum256(payload[:len(payload)-payloadTrailer])
	return ContentID(sum[:len(ContentID{})])
}

// Known is what a store holds about the match and the user of a result that
// arrives.
type Known struct {
	Result   *MatchResult // the one that stands; nil if none is known
	Refusals []Refusal    // of the match, in any order
	Tally    Tally        // of the user's results in the scope
	ErasedAt time.Time    // when the user was erased last, or zero
}

// Decision is what a store has to do about a result that arrives. At most one
// of Put and Refuse is set.
type Decision struct {
	Status Status
	Reason Reason // if rejected
	// Put is the row to write in place of Known.Result.
	Put *MatchResult
	// Refuse is the refusal to keep.
	Refuse *Refusal
	// Tally is the user's with Put in it. If Recount is set it is not, and has to
	// be made by [Board.Count] of all of the user's results, Put among them.
	Tally   Tally
	Recount bool
}

// Merge decides what becomes of r, given all that is known of its match and
// user. It is the one place where the rules of revisions, conflicts, floors and
// closed seasons are. What stands after any sequence of results does not depend
// on their order, but for those that a floor, a range or a closed season
// refused; those decisions are kept as refusals and so repeat.
// r's ids and revision must be valid. A result that breaks another limit of the
// board is refused too, so that whoever asks what became of it is answered.
func (b *Board) Merge(known Known, r MatchResult) Decision {
	r = r.Normalize()
	d := Decision{Tally: known.Tally}
	have := known.Result
	switch {
	case !r.ReceivedAt.After(known.ErasedAt):
		return d.reject(nil, ReasonErased)
	case have != nil && r.Revision < have.Revision:
		d.Status = Superseded
		return d
	}
	content := r.ContentID()
	for i := range known.Refusals {
		if f := &known.Refusals[i]; f.Revision == r.Revision && f.Content == content {
			return d.reject(nil, f.Reason)
		}
	}
	if have != nil && r.Revision == have.Revision {
		cmp, same := compareContent(&r, have)
		if same {
			d.Status = Duplicate
			if r.Assigned && r.AchievedAt.Before(have.AchievedAt) {
				d.Put, d.Recount = &r, true
			}
			return d
		}
		if d.Status = Conflict; cmp < 0 {
			return d
		}
	}
	if reason := b.refuse(known, &r); reason != "" {
		return d.reject(&Refusal{r.Revision, reason, content, r.ReceivedAt}, reason)
	}
	d.Put = &r
	if have == nil || have.Retracted {
		d.Tally = b.Add(known.Tally, &r)
	} else {
		d.Recount = true
	}
	return d
}

func (d Decision) reject(f *Refusal, reason Reason) Decision {
	d.Status, d.Reason, d.Refuse = Rejected, reason, f
	return d
}

// refuse returns why r may not be applied, or "". A retraction always may.
func (b *Board) refuse(known Known, r *MatchResult) Reason {
	if r.Retracted {
		return ""
	}
	if b.Check(r, r.ReceivedAt) != nil {
		return ReasonInvalid
	}
	if s, err := b.Season.ByID(r.Season); err == nil && b.Closed(s, r.ReceivedAt) {
		return ReasonClosed
	}
	if !b.AddsUp() {
		return ""
	}
	old := MatchResult{}
	if known.Result != nil && !known.Result.Retracted {
		old = *known.Result
	}
	if b.Policy == Sum {
		now, next := known.Tally.score, known.Tally.score-old.Score+r.Score
		if b.Floor != nil && next < *b.Floor && next < now {
			return ReasonFloor
		}
		if beyond(int64(now), int64(next)) {
			return ReasonRange
		}
	}
	for i := range b.TieBreakers {
		now := at(known.Tally.ties, i)
		if beyond(now, now-at(old.TieBreakers, i)+at(r.TieBreakers, i)) {
			return ReasonRange
		}
	}
	return ""
}

// beyond says whether going from now to next leaves ±MaxScore, or goes further
// out there.
func beyond(now, next int64) bool {
	return next > int64(MaxScore) && next > now || next < -int64(MaxScore) && next < now
}

func at(values []int64, i int) int64 {
	if i < len(values) {
		return values[i]
	}
	return 0
}

// SameContent says whether r and o, of one key and revision, are one result
// sent twice.
func (r *MatchResult) SameContent(o *MatchResult) bool {
	x, y := r.Normalize(), o.Normalize()
	_, same := compareContent(&x, &y)
	return same
}

// Equal says whether all of r and o is equal.
func (r *MatchResult) Equal(o *MatchResult) bool {
	return r.ResultKey == o.ResultKey && r.Revision == o.Revision &&
		bytes.Equal(r.AppendPayload(nil), o.AppendPayload(nil))
}
