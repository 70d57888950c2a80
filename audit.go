package leaderboard

import (
	"cmp"
	"strings"
	"time"
)

// SystemActor is the actor of acts that the service performs by itself.
const SystemActor = "system"

// Act is a record of an administrative act. An administrator's act has two records with the same
// [ActKey]. The service writes the first one, the intent, after it has checked the request and
// before it performs the act. It writes the second one, the outcome, afterwards. An act of
// SystemActor has an intent only.
type Act struct {
	ID string `json:"id"`
	// At is the time of the intent, in both records. For an act of SystemActor, At is when the
	// act was due.
	At time.Time `json:"at"`
	// CompletedAt is the time of the outcome. It is zero in an intent.
	CompletedAt time.Time `json:"completed_at,omitzero"`
	// Actor is the administrator, SystemActor, or empty if unknown.
	Actor string `json:"actor,omitempty"`
	// ActorName is the name that the actor's API key had at the time of the act.
	ActorName string   `json:"actor_name,omitempty"`
	RequestID string   `json:"request_id,omitempty"`
	Action    string   `json:"action"` // such as "board.update"
	Board     BoardID  `json:"board,omitempty"`
	Season    SeasonID `json:"season,omitempty"`
	// Failed marks the outcome of an act that returned an error, so its effect is unknown.
	Failed bool `json:"failed,omitempty"`
	// Erased means that the user of the act has since been erased.
	Erased bool `json:"erased,omitempty"`
	// UserHash is the [UserID.Digest] of an erased user, in the records of the erasure itself. It is not a part
	// of ActDetail, so it remains.
	UserHash string `json:"user_hash,omitempty"`
	ActDetail
}

// ActDetail is the part of an [Act] that may name a user.
type ActDetail struct {
	User   UserID  `json:"user_id,omitempty"`
	Match  MatchID `json:"match_id,omitempty"`
	Reason string  `json:"reason,omitempty"`
	// Before and After are the changed object as JSON. Before is empty if the act created
	// the object. After is empty if the act deleted the object.
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
}

// IsOutcome reports whether a is the second record of its act.
func (a *Act) IsOutcome() bool { return !a.CompletedAt.IsZero() }

// Redacted returns the record without ActDetail and with Erased set.
func (a Act) Redacted() Act {
	a.ActDetail, a.Erased = ActDetail{}, true
	return a
}

// ActKey identifies an act and orders the audit log.
type ActKey struct {
	At time.Time
	ID string
}

// Key identifies the act.
func (a *Act) Key() ActKey { return ActKey{a.At, a.ID} }

// Compare orders acts by time, the newest first, then by id.
func (k ActKey) Compare(o ActKey) int {
	return cmp.Or(o.At.Compare(k.At), strings.Compare(k.ID, o.ID))
}
