package leaderboard

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

// IsRecent reports whether refusals with the reason are recent refusals: they do not depend on the
// user's other results. They are in no season, and a store keeps them for [RefusalTime]. Other
// refusals are a part of the user's data in the season, and a store keeps them with these data.
func (r Reason) IsRecent() bool { return r != ReasonFloor && r != ReasonRange }
