package leaderboard

import "time"

// Outcome is the effect of one result of an Apply.
type Outcome struct {
	Status   Status
	Reason   Reason
	Repeated bool // the same result was rejected before
	// Stands is set if Status is Conflict and this result stands.
	Stands bool
	// Before and After are the user's rank keys directly before and directly after this
	// result, regardless of later results of the same Apply. An empty key means that no
	// result of the user counted.
	Before, After RankKey
	// Entry is the user's entry in the result's season after the whole Apply.
	Entry Entry
	// Linked are the effects on linked boards, ordered by board and season. Stores leave it
	// empty.
	Linked []LinkedEffect
	// Err is set, and the other fields are zero, if the store failed on this result only.
	// The result may or may not have taken effect. The caller may apply it again.
	Err error
}

// Changed reports whether the result is now stored and was not before.
func (o *Outcome) Changed() bool {
	return o.Err == nil && (o.Status == Applied || o.Status == Conflict && o.Stands)
}

// Change is a user's entry before and after a write. Both have a SeasonKey and a User, even
// if the Key is empty.
type Change struct{ Before, After Entry }

// LinkedEffect is the effect of a result of the source on a season of a linked board.
type LinkedEffect struct {
	// Change is the effect of all results that were applied together.
	Change
	// Skipped is set if the result that stands on the source came too late for the season.
	Skipped Reason
}

// PersonalBest reports whether the result with the outcome o is better than all earlier
// results of its user in the season. ok is false if the policy is not Best, or if the Apply
// did not change the stored result. A result without a rank is no personal best.
func (b *Board) PersonalBest(o *Outcome) (best, ok bool) {
	before, after := b.unlessStatus(o.Before), b.unlessStatus(o.After)
	return after != "" && (before == "" || after < before), b.arithmetic().keepsBest() && o.Changed()
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
	if (stored == nil || !b.countsUnlessEnded(stored)) && !b.resets(&r) {
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

// MaxBoardSeasons is the largest number of seasons of a board with results: 54 years of days.
const MaxBoardSeasons = 20_000

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
