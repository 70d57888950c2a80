package leaderboard

import (
	"cmp"
	"strings"
	"time"
)

// SystemActor is the actor of acts that the service performs by itself.
const SystemActor = "system"

// Act is a record of an administrative act.
type Act struct {
	ID string `json:"id"`
	// At is the time of the act. For an act of SystemActor, At is when the act was due.
	At time.Time `json:"at"`
	// Actor is the administrator, SystemActor, or empty if unknown.
	Actor     string   `json:"actor,omitempty"`
	RequestID string   `json:"request_id,omitempty"`
	Action    string   `json:"action"` // such as "board.update"
	Board     BoardID  `json:"board,omitempty"`
	Season    SeasonID `json:"season,omitempty"`
	// Failed means that the act returned an error, so its effect is unknown. The service
	// records an act before it performs the act, and records a failure in a second Act.
	Failed bool `json:"failed,omitempty"`
	// Erased means that the user of the act has since been erased.
	Erased bool `json:"erased,omitempty"`
	ActDetail
}

// ActDetail is the part of an [Act] that may name a user.
type ActDetail struct {
	User   UserID `json:"user_id,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Before and After are the changed object as JSON. Before is empty if the act created
	// the object. After is empty if the act deleted the object.
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
}

// Redacted returns the act without ActDetail and with Erased set.
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
