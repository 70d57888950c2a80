package leaderboard

import (
	"cmp"
	"strings"
	"time"
)

// Act is a record of an administrative act: who did what, when, and what it changed.
type Act struct {
	// ID is unique. It orders the acts of one time.
	ID string    `json:"id"`
	At time.Time `json:"at"`
	// Actor is the administrator. It is empty if unknown, and for what the service does
	// by itself.
	Actor     string   `json:"actor,omitempty"`
	RequestID string   `json:"request_id,omitempty"`
	Action    string   `json:"action"` // such as "board.update"
	Board     BoardID  `json:"board,omitempty"`
	Season    SeasonID `json:"season,omitempty"`
	// Failed means that the act, which has a record of its own, did not succeed. Its
	// effect is unknown.
	Failed bool `json:"failed,omitempty"`
	// Erased means that the act concerned a user who was erased since.
	Erased bool `json:"erased,omitempty"`
	ActDetail
}

// ActDetail is the part of an [Act] that may name a user.
type ActDetail struct {
	User   UserID `json:"user_id,omitempty"` // the user that the act concerned
	Reason string `json:"reason,omitempty"`
	// Before and After are the changed object as JSON. They are empty if it did not
	// exist, or does not exist any more.
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
}

// Redacted returns the act without what may name a user.
func (a Act) Redacted() Act {
	a.ActDetail, a.Erased = ActDetail{}, true
	return a
}

// ActKey identifies an act, and its place in the audit log.
type ActKey struct {
	At time.Time
	ID string
}

// Key returns the key of a.
func (a *Act) Key() ActKey { return ActKey{a.At, a.ID} }

// Compare orders acts by age, the newest first.
func (k ActKey) Compare(o ActKey) int {
	return cmp.Or(o.At.Compare(k.At), strings.Compare(k.ID, o.ID))
}
