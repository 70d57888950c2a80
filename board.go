package leaderboard

import "time"

// Limits and defaults.
const (
	// MaxDivisions includes crossed divisions.
	MaxDivisions  = 8
	MaxDecimals   = 9
	MaxTitleBytes = 256
	MaxUnitBytes  = 32
	MaxShards     = 256
	MinHalfLife   = time.Second
	MaxHalfLife   = 100 * 365 * 24 * time.Hour
	MaxK          = 100 // also bounds Board.DropWorst
	// DefaultGrace is the [Schedule].Grace of a board that was created without a grace.
	DefaultGrace = 24 * time.Hour
)

// Policy is the rule that computes a user's entry from the user's results.
type Policy int8

// The policies.
const (
	Best    Policy = iota // the best result
	Sum                   // the sum of the results' points
	Latest                // the result with the latest event time
	Decay                 // the sum of the results' points, which halve with each half-life
	Count                 // the number of results
	First                 // the result with the earliest event time
	Average               // the mean of the results' points
	BestK                 // the sum of the points of the Board.K best results, or of all but the Board.DropWorst worst
)

var policyNames = []string{"BEST", "SUM", "LATEST", "DECAY", "COUNT", "FIRST", "AVERAGE", "BEST_K"}

func (p Policy) String() string { return enumString(policyNames, int(p)) }

// MarshalText writes BEST, SUM, LATEST, DECAY, COUNT, FIRST, AVERAGE or BEST_K.
func (p Policy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (p *Policy) UnmarshalText(text []byte) error { return parseEnum("policy", policyNames, text, p) }

// Board is a ranking with its rules. [Board.Amend] lists the settings that may change.
type Board struct {
	ID    BoardID `json:"board_id"`
	Title string  `json:"title,omitempty"` // for display, at most MaxTitleBytes
	Order Order   `json:"order"`

	Policy Policy `json:"policy"`
	// HalfLife is the time in which points lose half their value, on decay boards only.
	HalfLife time.Duration `json:"half_life,omitempty"`
	// K is the number of results that count, 1 to MaxK, on best-k boards only.
	K int `json:"k,omitempty"`
	// DropWorst is the number of results that do not count, 1 to MaxK, on best-k boards without K. At least one result
	// counts.
	DropWorst   int          `json:"drop_worst,omitempty"`
	TieBreakers []TieBreaker `json:"tie_breakers,omitempty"`
	Ties        TieRule      `json:"ties,omitempty"`
	// MinResults is the number of results that a ranked entry has at least, up to MaxMinResults. 0 means 1.
	MinResults int64 `json:"min_results,omitempty"`
	// Statuses are the finishes, besides Ranked, that results may have. In ladders, entries with these finishes follow the
	// ranked ones and those with too few results, in the order of Statuses.
	Statuses []Finish `json:"statuses,omitempty"`

	Unit     string `json:"unit,omitempty"` // for display: "s", "points"
	Decimals int    `json:"decimals"`

	Season Schedule `json:"season"`
	// Divisions are the attributes whose values slice the board. An element may be crossed:
	// two or three attributes, separated by "+".
	Divisions []string `json:"divisions,omitempty"`

	// AcceptedAttributes are attributes that submitted results may have, besides those of
	// the divisions. [AnyAttribute] means all.
	AcceptedAttributes []string `json:"attributes,omitempty"`
	// StrictSubmits makes [Board.CheckSubmit] stricter about attributes and tie-breakers. The
	// API sets it on new boards.
	StrictSubmits bool `json:"strict_submits,omitempty"`

	// MinScore and MaxScore bound the score, or the points, of one result. nil means ±2^53,
	// divided by K, or with DropWorst by 10,000, on best-k boards.
	MinScore *Score `json:"min_score,omitempty"`
	MaxScore *Score `json:"max_score,omitempty"`
	// Floor bounds a user's sum, on SUM boards only. A result that lowers the sum below Floor
	// is rejected. Retractions, voids and early ends may lower the sum below Floor.
	Floor *Score `json:"floor,omitempty"`

	// Retention is how long a sealed season is kept. 0 means for ever.
	Retention time.Duration `json:"retention,omitempty"`
	// Private hides the board from callers without credentials.
	Private bool `json:"private,omitempty"`
	// Shards is the number of shards of each season in a distributed index. 0 means the index's
	// default.
	Shards    int       `json:"shards,omitempty"`
	CreatedAt time.Time `json:"created_at"`

	// Matches means that matches can be voided: see [MatchStore]. It is false on a linked
	// board, because matches are voided on its source.
	Matches bool    `json:"matches,omitempty"`
	Source  *Source `json:"source,omitempty"`

	BoardState
}

// Source declares the source of a linked board. Every result of the source that matches
// also counts on the linked board, under the linked board's rules. Corrections,
// retractions, bans and erasures on the source also affect the linked board.
type Source struct {
	Board BoardID `json:"board_id"`
	// Match has attributes with values. A result matches if it has all of them.
	Match map[string]string `json:"match,omitempty"`
	// TieBreakers has, for each tie-breaker of the linked board, the index of the source's
	// tie-breaker with the same name.
	TieBreakers []int `json:"tie_breakers,omitempty"`
}

// SeasonKey identifies one season of one board.
type SeasonKey struct {
	Board  BoardID
	Season SeasonID
}

// maxCounted is the largest number of results of a user with [Board].DropWorst.
const maxCounted = 10_000

// largestScore bounds the points of a result so that no sum of best-k boards leaves ±2^53.
func (b *Board) largestScore() Score {
	if b.DropWorst > 0 {
		return MaxScore / maxCounted
	}
	return MaxScore / Score(max(b.K, 1))
}

func (b *Board) bounds() (lo, hi Score) {
	lo, hi = -b.largestScore(), b.largestScore()
	if b.MinScore != nil {
		lo = *b.MinScore
	}
	if b.MaxScore != nil {
		hi = *b.MaxScore
	}
	return lo, hi
}

// Filling reports whether b may still lack earlier results of its source.
func (b *Board) Filling() bool { return !b.FillDue.IsZero() }
