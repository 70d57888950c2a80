package leaderboard

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"time"
)

// Score is an integer. Its last [Board].Decimals digits are decimal places: with the unit
// "EUR" and 2 decimals, 1234 is 12.34 EUR.
type Score int64

// Limits of scores.
const (
	// MaxScore also bounds points and tie-breakers. JSON clients and Redis hold integers
	// exactly up to 2^53.
	MaxScore       Score = 1 << 53
	MaxTieBreakers       = 24
)

// Order is the direction in which a board ranks scores.
type Order int8

// The orders.
const (
	HigherFirst Order = iota
	LowerFirst
)

var orderNames = []string{"HIGHER_FIRST", "LOWER_FIRST"}

func (o Order) String() string { return enumString(orderNames, int(o)) }

// MarshalText writes HIGHER_FIRST or LOWER_FIRST.
func (o Order) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (o *Order) UnmarshalText(text []byte) error { return parseEnum("order", orderNames, text, o) }

// compare returns a negative number if x is better than y, and a positive number if it is worse.
func (o Order) compare(x, y int64) int {
	if o == HigherFirst {
		return cmp.Compare(y, x)
	}
	return cmp.Compare(x, y)
}

// TieBreaker is an additional integer of each result. It ranks standings with equal scores
// and equal earlier tie-breakers.
type TieBreaker struct {
	Name    string      `json:"name"`
	Order   Order       `json:"order"`
	Combine Combination `json:"combine,omitempty"`
}

func valueAt(values []int64, i int) int64 {
	if i < len(values) {
		return values[i]
	}
	return 0
}

// RankKey is a score followed by its tie-breakers, as bytes. If [Board.HasUnranked] is true, a class precedes them. Of two rank keys of one board,
// the smaller ranks better. All rank keys of a board have the same length. The RankKey of a
// user without a standing is empty.
type RankKey string

// SortKey is a rank key, then [Entry].AchievedAt, then the user id. The standings of a ladder are
// ordered by sort key, the smallest first.
type SortKey string

const columnBytes = 8

// appendColumn appends v to dst. The better of two values has the smaller bytes.
func appendColumn(dst []byte, order Order, v int64) []byte {
	u := biased(v)
	if order == HigherFirst {
		u = ^u
	}
	return binary.BigEndian.AppendUint64(dst, u)
}

func columnValue(order Order, b string) int64 {
	u := binary.BigEndian.Uint64([]byte(b))
	if order == HigherFirst {
		u = ^u
	}
	return unbiased(u)
}

// MakeSortKey returns the sort key of a standing.
func MakeSortKey(k RankKey, achievedAt time.Time, user UserID) SortKey {
	b := make([]byte, 0, len(k)+columnBytes+len(user))
	b = append(b, k...)
	b = binary.BigEndian.AppendUint64(b, biased(achievedAt.UnixMicro()))
	return SortKey(append(b, user...))
}

// Split is the inverse of [MakeSortKey]. It returns [ErrFormat] if k is too short for
// rankKeyBytes, the length of the board's rank keys, or if its user id is invalid.
func (k SortKey) Split(rankKeyBytes int) (RankKey, time.Time, UserID, error) {
	if len(k) < rankKeyBytes+columnBytes {
		return "", time.Time{}, "", fmt.Errorf("leaderboard: sort key of %d bytes: %w", len(k), ErrFormat)
	}
	user := UserID(k[rankKeyBytes+columnBytes:])
	if err := user.Validate(); err != nil {
		return "", time.Time{}, "", fmt.Errorf("leaderboard: sort key: %w: %w", ErrFormat, err)
	}
	micros := unbiased(binary.BigEndian.Uint64([]byte(k[rankKeyBytes:][:columnBytes])))
	return RankKey(k[:rankKeyBytes]), time.UnixMicro(micros).UTC(), user, nil
}
