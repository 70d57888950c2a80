package leaderboard

import "time"

// BoardState is what only the service sets on a board. It is no rule: see [Board.SameAs].
type BoardState struct {
	// Links are the boards linked to this board, ordered by id. After an interrupted creation
	// or deletion, a board in Links may not exist, or may have another source.
	Links []BoardID `json:"links,omitempty"`
	// FillDue is not zero while this linked board may lack earlier results of its source. It is a time at which these
	// had to be added, and distinguishes the fill from later ones.
	FillDue time.Time      `json:"fill_due,omitzero"`
	Rolling RollingWindows `json:"rolling,omitzero"`
	// PastDivisions has the former values of Divisions, the oldest first. [Board.Amend] sets
	// PastDivisions.
	PastDivisions [][]string `json:"past_divisions,omitempty"`
	// Unfilled are the elements of Divisions whose ladders may lack users. If RecountDue is
	// zero, [Board.Amend] first clears Unfilled. Amend adds the new elements of Divisions.
	Unfilled []string `json:"unfilled,omitempty"`
	// RecountDue is not zero while the recount after a change of Divisions is incomplete. If RecountDue is zero, every
	// entry of an unsealed season was computed with the present Divisions.
	RecountDue time.Time `json:"recount_due,omitzero"`
	// WidenedAt is when an amendment last changed a setting so that the board may accept results that
	// it has refused: see [Board.NoteWidening] and [Board.NeedsRecent].
	WidenedAt time.Time `json:"widened_at,omitzero"`
	// KeptAttributes are the elements of AcceptedAttributes that [Board.Accept] added,
	// because stored results may have them.
	KeptAttributes []string `json:"kept_attributes,omitempty"`
	// UnfilledMatches means that [MatchStore].MatchUsers and MatchIDs may lack results from
	// before Matches was set. [Board.Amend] sets it together with RecountDue's recount.
	UnfilledMatches bool `json:"unfilled_matches,omitempty"`
}

// RollingWindows is the state of a rolling board. A window with a greater id ends later.
type RollingWindows struct {
	// First and Opened are the first and the last open window. The service copies results
	// only to open windows. First never changes.
	First  SeasonID `json:"first,omitempty"`
	Opened SeasonID `json:"opened,omitempty"`
	// Filled is the last filled window: this window and all earlier open windows have all
	// results of the source. Filled is empty until the first fill has ended.
	Filled SeasonID `json:"filled,omitempty"`
}
