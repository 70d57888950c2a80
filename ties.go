package leaderboard

// TieRule is the order of users with equal rank keys.
type TieRule int8

// The rules. Of equal times, and without times, the smaller user id is first.
const (
	EarliestFirst TieRule = iota
	LatestFirst
	ByUserID
	// Shared is ByUserID for boards whose users share their ranks: there are no ordinal ranks.
	Shared
)

var tieRuleNames = []string{"EARLIEST_FIRST", "LATEST_FIRST", "USER_ID", "SHARED"}

func (r TieRule) String() string { return enumString(tieRuleNames, int(r)) }

// MarshalText writes EARLIEST_FIRST, LATEST_FIRST, USER_ID or SHARED.
func (r TieRule) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (r *TieRule) UnmarshalText(text []byte) error { return parseEnum("ties", tieRuleNames, text, r) }

// Combination is the way in which the values of a tie-breaker become one value.
type Combination int8

// The combinations. On a board that does not add up ([Board.AddsUp]), a tie-breaker has the value of the deciding
// result, and its Combination is Added.
const (
	Added Combination = iota
	Greatest
	Least
	Last // of the latest result that counts
)

var combinationNames = []string{"SUM", "MAX", "MIN", "LAST"}

func (c Combination) String() string { return enumString(combinationNames, int(c)) }

// MarshalText writes SUM, MAX, MIN or LAST.
func (c Combination) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (c *Combination) UnmarshalText(text []byte) error {
	return parseEnum("combine", combinationNames, text, c)
}
