package leaderboard

import (
	"cmp"
	"crypto/sha256"
	"time"
)

// Status is the state of a submitted match result.
type Status int8

const (
	// Applied means that the result, or the retraction, now stands.
	Applied Status = iota
	// Duplicate means that the store already had the same content under the same revision.
	Duplicate
	// Superseded means that a higher revision stands.
	Superseded
	// Conflict means that the store already had different content under the same revision.
	// The greater payload stands: see [MatchResult.AppendPayload].
	Conflict
	// Rejected means that the result was refused for a [Reason]. While the store keeps the refusal
	// ([Reason.IsRecent]), a replay of the result is rejected again, or is superseded by a higher
	// revision.
	Rejected
	// Accepted means that the result is durable in a log and will be applied later.
	Accepted
	// Retracted means that the result was undone. Only queries return it.
	Retracted
	// Voided means that the match of the result is void. Only queries return it.
	Voided
)

var statusNames = []string{"APPLIED", "DUPLICATE", "SUPERSEDED", "CONFLICT", "REJECTED", "ACCEPTED", "RETRACTED", "VOIDED"}

func (s Status) String() string { return enumString(statusNames, int(s)) }

// Reason is the reason of a rejection.
type Reason string

const (
	// ReasonFloor means that the sum would fall below the board's floor.
	ReasonFloor Reason = "FLOOR"
	// ReasonRange means that a sum would leave ±2^53, or that the user would have more
	// results in the season than the store can keep.
	ReasonRange Reason = "OUT_OF_RANGE"
	// ReasonClosed means that the season was closed when the result was received.
	ReasonClosed Reason = "SEASON_CLOSED"
	// ReasonEnded means that the event time is at or after the early end of the season.
	ReasonEnded Reason = "SEASON_ENDED"
	// ReasonErased means that the user was erased when or after the result was received.
	ReasonErased Reason = "USER_ERASED"
	// ReasonDeleted means that the board or season was deleted when or after the result was
	// received.
	ReasonDeleted Reason = "DELETED"
	// ReasonInvalid means that the board does not allow the values of the result.
	ReasonInvalid Reason = "INVALID"
	// ReasonSeasons means that the result would begin another season of a board that already
	// has [MaxBoardSeasons].
	ReasonSeasons Reason = "SEASON_LIMIT"
)

// MaxBoardSeasons is the largest number of seasons of a board with results: 54 years of days.
const MaxBoardSeasons = 20_000

// RefusalTime is how long a store keeps a recent refusal: see [Reason.IsRecent]. A store may keep
// it ten days longer.
const RefusalTime = 30 * 24 * time.Hour

// IsRecent reports whether refusals with the reason are recent refusals: they do not depend on the
// user's other results. They are in no season, and a store keeps them for [RefusalTime]. Other
// refusals are a part of the user's data in the season, and a store keeps them with these data.
func (r Reason) IsRecent() bool { return r != ReasonFloor && r != ReasonRange }

// Refusal is the record of a rejected result.
type Refusal struct {
	Revision   int64
	Reason     Reason
	Content    ContentID
	ReceivedAt time.Time
}

// Compare orders refusals by Revision, then by ReceivedAt.
func (f Refusal) Compare(o Refusal) int {
	return cmp.Or(cmp.Compare(f.Revision, o.Revision), f.ReceivedAt.Compare(o.ReceivedAt))
}

// ContentID is the first 16 bytes of the SHA-256 of the payload
// ([MatchResult.AppendPayload]) without its last 16 bytes. Results with equal keys,
// revisions and content ids are one result that was sent twice.
type ContentID [16]byte

// ContentID returns the id of r's normalized content.
func (r *MatchResult) ContentID() ContentID {
	n := r.Normalize()
	payload := n.AppendPayload(nil)
	sum := sha256.Sum256(payload[:len(payload)-payloadTrailer])
	return ContentID(sum[:len(ContentID{})])
}

// Known is a store's data about the match and the user of an arriving result.
type Known struct {
	Result *MatchResult // the stored result of the match and the user, or nil
	// Refusals are those of the match, in any order. Merge ignores recent refusals if
	// [Board.NeedsRecent] is false.
	Refusals []Refusal
	Tally    Tally     // of the user's results in the season
	ErasedAt time.Time // the user's last erasure, or zero
	// DeletedAt is the last deletion of the season or of any board with the board's id, or zero.
	DeletedAt time.Time
}

// Decision is what a store must do about an arriving result.
type Decision struct {
	Status   Status
	Reason   Reason // set if Status is Rejected
	Repeated bool   // the same result was rejected before
	// Put is the result to write instead of Known.Result, or nil.
	Put *MatchResult
	// VoidsOnly means that Put differs from Known.Result in its Voids only.
	VoidsOnly bool
	// Refuse is the refusal to store. If it is set, Put is nil or VoidsOnly is true.
	Refuse *Refusal
	// Tally is the user's tally after the write of Put. If Recount is set, Tally is not
	// valid: the store must compute it with [Board.Count] from all of the user's results,
	// including Put.
	Tally   Tally
	Recount bool
}

// Merge decides whether r is applied. r must have valid ids and a valid revision.
//
// Of the results with one [ResultKey], the highest revision stands, and of equal revisions
// the greater payload. Neither the order of arrival nor repetition affects which result
// stands. This is a state-based CRDT: Shapiro et al., "Conflict-free Replicated Data Types",
// SSS 2011.
//
// Whether a result is refused depends on the order of arrival. For example, negative points
// may be refused because of the floor, but not if other points arrive first. The store keeps
// the refusal, so a replay of the result is not applied either.
//
// The result that stands has the greatest Voids of all its revisions, regardless of the
// order of arrival. Whether a result is refused does not depend on its own Voids.
func (b *Board) Merge(known Known, r MatchResult) Decision {
	voids := r.Voids
	if known.Result != nil {
		voids = max(voids, known.Result.Voids)
	}
	d := Decision{Tally: known.Tally, Status: Duplicate}
	if !r.VoidOnly {
		r.Voids = 0
		d = b.mergeContent(known, r, voids)
	}
	if stored := known.Result; d.Put == nil && stored != nil && voids > stored.Voids {
		put := *stored
		put.Voids = voids
		d.Put, d.Recount, d.VoidsOnly = &put, true, true
	}
	return d
}

// The parameter voids becomes Put.Voids.
func (b *Board) mergeContent(known Known, r MatchResult, voids int64) Decision {
	r = r.Normalize()
	d := Decision{Tally: known.Tally}
	stored := known.Result
	switch {
	case b.IsDeleted(known.DeletedAt, r.ReceivedAt):
		return d.reject(nil, ReasonDeleted)
	case !r.ReceivedAt.After(known.ErasedAt):
		return d.reject(nil, ReasonErased)
	case stored != nil && r.Revision < stored.Revision:
		d.Status = Superseded
		return d
	}
	content := r.ContentID()
	for i := range known.Refusals {
		f := &known.Refusals[i]
		repeats := f.Revision == r.Revision && f.Content == content && f.Reason != ReasonSeasons // the number of seasons may have fallen
		if repeats && !b.IsDeleted(known.DeletedAt, f.ReceivedAt) && (!f.Reason.IsRecent() || b.NeedsRecent(&r)) {
			d.Repeated = true
			return d.reject(nil, f.Reason)
		}
	}
	if stored != nil && r.Revision == stored.Revision {
		cmp, same := compareContent(&r, stored)
		if same {
			d.Status = Duplicate
			if r.Assigned && r.AchievedAt.Before(stored.AchievedAt) {
				r.Amends, r.Voids = false, voids
				d.Put, d.Recount = &r, true
			}
			return d
		}
		if d.Status = Conflict; cmp < 0 {
			return d
		}
	}
	if reason := b.refusalReasonGiven(known, &r); reason != "" {
		return d.reject(&Refusal{r.Revision, reason, content, r.ReceivedAt}, reason)
	}
	r.Amends, r.Voids = false, voids
	d.Put = &r
	// If the season was ended early after stored was counted, b.Counts(stored) is false, but
	// the tally may still include stored.
	if stored == nil || !b.countsUnlessEnded(stored) {
		d.Tally = b.Add(known.Tally, &r)
	} else {
		d.Recount = true
	}
	return d
}

// BeginsSeason reports whether a season has data after d: a result, or a refusal that is not recent.
func (d *Decision) BeginsSeason() bool {
	return d.Put != nil || d.Refuse != nil && !d.Reason.IsRecent()
}

// Outcome returns the outcome of the result that d decides. before and after are the user's
// rank keys directly before and after the result. The caller must set Outcome.Entry.
func (d *Decision) Outcome(before, after RankKey) Outcome {
	return Outcome{
		Status: d.Status, Reason: d.Reason, Repeated: d.Repeated, Stands: d.Status == Conflict && d.Put != nil && !d.VoidsOnly, Before: before, After: after,
	}
}

// IsDeleted reports whether the last deletion of a season, or of a board with the id of b, deleted
// results and refusals with a ReceivedAt. deletedAt is the time of the deletion, or zero.
//
// The results of a linked board come from its source. So the deletion of an earlier board
// with the linked board's id does not delete them.
func (b *Board) IsDeleted(deletedAt, receivedAt time.Time) bool {
	if deletedAt.IsZero() || b.Source != nil && !deletedAt.After(b.CreatedAt) {
		return false
	}
	return !receivedAt.After(deletedAt)
}

func (d Decision) reject(f *Refusal, reason Reason) Decision {
	d.Status, d.Reason, d.Refuse = Rejected, reason, f
	return d
}

func (b *Board) refusalReasonGiven(known Known, r *MatchResult) Reason {
	if reason := b.RefusalReason(r); reason != "" || !b.Counts(r) {
		return reason
	}
	old := MatchResult{}
	if known.Result != nil && b.Counts(known.Result) {
		old = *known.Result
	}
	return b.arithmetic().refuse(b, known.Tally, old, *r)
}

// RefusalReason returns the reason why b refuses r regardless of the user's other results,
// or "". b never refuses a retraction. If another result does not count, the only possible
// reason is [ReasonEnded]. On a linked board, the only possible reason is [ReasonClosed].
func (b *Board) RefusalReason(r *MatchResult) Reason {
	if b.Source == nil && b.EndedEarly(r) {
		return ReasonEnded
	}
	if !b.Counts(r) {
		return ""
	}
	if b.Source == nil && b.Check(r, r.ReceivedAt) != nil {
		return ReasonInvalid
	}
	if s, err := b.Season.ByID(r.Season); err == nil && !r.Amends && b.Closed(s, r.ReceivedAt) {
		return ReasonClosed
	}
	return ""
}

// NeedsRecent reports whether [Board.Merge] needs the recent refusals of r: b refuses r, or may have
// refused it before an amendment. Otherwise r is a copy, received in time, of a result that was also
// received too late.
func (b *Board) NeedsRecent(r *MatchResult) bool {
	if r.VoidOnly || r.Retracted {
		return false
	}
	n := r.Normalize()
	n.Voids = 0
	return !b.WidenedAt.IsZero() && n.ReceivedAt.Before(b.WidenedAt.Add(RefusalTime)) || b.RefusalReason(&n) != ""
}

// HasSeasonLimit reports whether b may have at most [MaxBoardSeasons]. Otherwise the settings of b name its
// seasons.
func (b *Board) HasSeasonLimit() bool {
	return b.Season.Kind != None && b.Season.Kind != Explicit
}

// RefuseSeason returns the decision about r if b has [MaxBoardSeasons] and none of them is r's.
func (b *Board) RefuseSeason(known Known, r MatchResult) Decision {
	d := b.Merge(known, r)
	if !d.BeginsSeason() {
		return d
	}
	r = r.Normalize()
	return Decision{Tally: known.Tally}.reject(&Refusal{r.Revision, ReasonSeasons, r.ContentID(), r.ReceivedAt}, ReasonSeasons)
}

// leavesRange reports whether newSum is outside ±MaxScore, and farther outside than oldSum.
func leavesRange(oldSum, newSum int64) bool {
	return newSum > int64(MaxScore) && newSum > oldSum || newSum < -int64(MaxScore) && newSum < oldSum
}

func valueAt(values []int64, i int) int64 {
	if i < len(values) {
		return values[i]
	}
	return 0
}
