package leaderboard

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"time"
)

// Score is a result in its board's unit, which [Board].Unit names, times 10 to
// the power of [Board].Decimals. It is an integer so that every store sorts it
// alike. Its magnitude stays within [MaxScore].
type Score int64

const (
	// MaxScore bounds a score, points and tie-breakers in magnitude: 2^53, up
	// to which JSON clients and Redis hold integers exactly.
	MaxScore Score = 1 << 53
	// MaxTieBreakers bounds a board's tie-breakers.
	MaxTieBreakers = 24
	// MaxDivisions bounds the attributes that slice a board.
	MaxDivisions = 8
	// MaxDecimals bounds the decimals of a board's display.
	MaxDecimals = 9
	// MaxTitleBytes and MaxUnitBytes bound a board's texts.
	MaxTitleBytes = 256
	MaxUnitBytes  = 32
	// MinHalfLife and MaxHalfLife bound a decay board's half-life.
	MinHalfLife = time.Second
	MaxHalfLife = 100 * 365 * 24 * time.Hour
	// DefaultGrace is the grace of a season whose board states none.
	DefaultGrace = 24 * time.Hour
)

// Order says which of two scores stands better.
type Order int8

const (
	HigherFirst Order = iota // the greater score stands better
	LowerFirst               // the smaller score stands better: race times
)

// Policy says how a user's results make the user's entry.
type Policy int8

const (
	Best   Policy = iota // the best result
	Sum                  // the sum of the results' points
	Latest               // the result achieved last
	Decay                // the sum of points, each halved after every half-life
)

// Method says how ranks are numbered.
type Method int8

const (
	Competition Method = iota // 1-2-2-4: the same rank key, the same rank
	Dense                     // 1-2-2-3
	Ordinal                   // 1-2-3-4: inside a tie the earlier achieved_at, then the smaller user id
)

var (
	orderNames  = []string{"HIGHER_FIRST", "LOWER_FIRST"}
	policyNames = []string{"BEST", "SUM", "LATEST", "DECAY"}
	methodNames = []string{"competition", "dense", "ordinal"}
)

func (o Order) String() string  { return enumString(orderNames, int(o)) }
func (p Policy) String() string { return enumString(policyNames, int(p)) }
func (m Method) String() string { return enumString(methodNames, int(m)) }

// MarshalText writes HIGHER_FIRST or LOWER_FIRST.
func (o Order) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (o *Order) UnmarshalText(text []byte) error { return parseEnum("order", orderNames, text, o) }

// MarshalText writes BEST, SUM, LATEST or DECAY.
func (p Policy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (p *Policy) UnmarshalText(text []byte) error { return parseEnum("policy", policyNames, text, p) }

// MarshalText writes competition, dense or ordinal.
func (m Method) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (m *Method) UnmarshalText(text []byte) error { return parseEnum("method", methodNames, text, m) }

func enumString(names []string, i int) string {
	if i < 0 || i >= len(names) {
		return fmt.Sprintf("%%!(%d)", i)
	}
	return names[i]
}

func parseEnum[E ~int8](field string, names []string, text []byte, dst *E) error {
	i := slices.Index(names, string(text))
	if i < 0 {
		return fieldErrorf(field, "%q is none of %v", text, names)
	}
	*dst = E(i)
	return nil
}

// TieBreaker is a further integer column of a board's score.
type TieBreaker struct {
	Name  string `json:"name"`
	Order Order  `json:"order"`
}

// Board is a ranking with its rules. Order, Policy, HalfLife, TieBreakers, the
// season's kind and time zone, Divisions and Floor are fixed when it is made;
// the rest may be changed by [Board.Amend].
type Board struct {
	ID    BoardID `json:"board_id"`
	Title string  `json:"title,omitempty"` // for display, at most MaxTitleBytes
	Order Order   `json:"order"`

	Policy Policy `json:"policy"`
	// HalfLife is for decay boards, in which a result is worth half after each.
	HalfLife    time.Duration `json:"half_life,omitempty"`
	TieBreakers []TieBreaker  `json:"tie_breakers,omitempty"`

	Unit     string `json:"unit,omitempty"` // for display: "s", "points"
	Decimals int    `json:"decimals"`       // a score of 1234 with 2 decimals is shown as 12.34

	Season    Schedule `json:"season"`
	Divisions []string `json:"divisions,omitempty"` // attributes whose values slice the board

	// MinScore and MaxScore bound each result's score or points; nil is ±2^53.
	MinScore *Score `json:"min_score,omitempty"`
	MaxScore *Score `json:"max_score,omitempty"`
	// Floor is for sum boards: a submit that lowers a sum below it is refused.
	Floor *Score `json:"floor,omitempty"`

	// Retention is how long a season's data is kept after it is sealed; 0 is
	// for good.
	Retention time.Duration `json:"retention,omitempty"`
	CreatedAt time.Time     `json:"created_at"`
}

// Validate returns every fault of b's rules, joined, each a [FieldError].
func (b *Board) Validate() error {
	errs := []error{b.ID.Validate(), b.validateTexts(), b.validatePolicy(), b.Season.Validate()}
	if len(b.TieBreakers) > MaxTieBreakers {
		errs = append(errs, fieldErrorf("tie_breakers", "%d given, at most %d are allowed", len(b.TieBreakers), MaxTieBreakers))
	}
	seen := map[string]bool{}
	for i, tb := range b.TieBreakers {
		field := fmt.Sprintf("tie_breakers[%d].name", i)
		errs = append(errs, checkName(field, tb.Name))
		if seen[tb.Name] {
			errs = append(errs, fieldErrorf(field, "%q is given twice", tb.Name))
		}
		seen[tb.Name] = true
		if tb.Order != HigherFirst && tb.Order != LowerFirst {
			errs = append(errs, fieldErrorf(fmt.Sprintf("tie_breakers[%d].order", i), "is none of %v", orderNames))
		}
	}
	if len(b.Divisions) > MaxDivisions {
		errs = append(errs, fieldErrorf("divisions", "%d given, at most %d are allowed", len(b.Divisions), MaxDivisions))
	}
	for i, name := range b.Divisions {
		field := fmt.Sprintf("divisions[%d]", i)
		errs = append(errs, checkName(field, name))
		if slices.Index(b.Divisions, name) < i {
			errs = append(errs, fieldErrorf(field, "%q is given twice", name))
		}
	}
	lo, hi := b.Bounds()
	for field, s := range map[string]Score{"min_score": lo, "max_score": hi} {
		if s < -MaxScore || s > MaxScore {
			errs = append(errs, fieldErrorf(field, "%d is outside ±2^53", s))
		}
	}
	if lo > hi {
		errs = append(errs, fieldErrorf("min_score", "%d is above max_score %d", lo, hi))
	}
	if b.Retention < 0 {
		errs = append(errs, fieldErrorf("retention", "%v is negative", b.Retention))
	}
	return errors.Join(errs...)
}

func (b *Board) validateTexts() error {
	var errs []error
	for _, text := range []struct {
		field, s string
		max      int
	}{{"title", b.Title, MaxTitleBytes}, {"unit", b.Unit, MaxUnitBytes}} {
		if len(text.s) > text.max {
			errs = append(errs, fieldErrorf(text.field, "is %d bytes long, at most %d are allowed", len(text.s), text.max))
		}
		errs = append(errs, checkPrintable(text.field, text.s))
	}
	if b.Decimals < 0 || b.Decimals > MaxDecimals {
		errs = append(errs, fieldErrorf("decimals", "%d is not 0 to %d", b.Decimals, MaxDecimals))
	}
	return errors.Join(errs...)
}

func (b *Board) validatePolicy() error {
	var errs []error
	if b.Order != HigherFirst && b.Order != LowerFirst {
		errs = append(errs, fieldErrorf("order", "is none of %v", orderNames))
	}
	switch {
	case b.Policy < Best || b.Policy > Decay:
		errs = append(errs, fieldErrorf("policy", "is none of %v", policyNames))
	case b.Policy != Decay && b.HalfLife != 0:
		errs = append(errs, fieldErrorf("half_life", "is for DECAY boards only"))
	case b.Policy == Decay && (b.HalfLife < MinHalfLife || b.HalfLife > MaxHalfLife || b.HalfLife%time.Microsecond != 0):
		errs = append(errs, fieldErrorf("half_life", "%v is not %v to %v in whole microseconds", b.HalfLife, MinHalfLife, MaxHalfLife))
	}
	if b.Floor != nil && b.Policy != Sum {
		errs = append(errs, fieldErrorf("floor", "is for SUM boards only"))
	}
	if b.Floor != nil && (*b.Floor < -MaxScore || *b.Floor > 0) {
		errs = append(errs, fieldErrorf("floor", "%d is not -2^53 to 0: a user starts at 0", *b.Floor))
	}
	return errors.Join(errs...)
}

// Bounds returns the least and the greatest score or points of one result.
func (b *Board) Bounds() (lo, hi Score) {
	lo, hi = -MaxScore, MaxScore
	if b.MinScore != nil {
		lo = *b.MinScore
	}
	if b.MaxScore != nil {
		hi = *b.MaxScore
	}
	return lo, hi
}

// AddsUp says whether results carry points that are added up, rather than
// scores of which one is taken.
func (b *Board) AddsUp() bool { return b.Policy == Sum || b.Policy == Decay }

// SameAs says whether o has b's rules and settings, whatever their times of
// creation.
func (b *Board) SameAs(o *Board) bool {
	x, y := *b, *o
	x.CreatedAt, y.CreatedAt = time.Time{}, time.Time{}
	return reflect.DeepEqual(x.normal(), y.normal())
}

// normal returns b with empty lists nil, so that equal boards are deeply equal.
func (b Board) normal() Board {
	if len(b.TieBreakers) == 0 {
		b.TieBreakers = nil
	}
	if len(b.Divisions) == 0 {
		b.Divisions = nil
	}
	if len(b.Season.Windows) == 0 {
		b.Season.Windows = nil
	}
	if b.Season.TimeZone == "" {
		b.Season.TimeZone = "UTC"
	}
	return b
}

// Amend returns b changed to next's settings. Title, unit, decimals, score
// bounds, grace and retention may change, and explicit windows may be added. It
// returns a [FieldError] if next changes anything that standings were made by.
func (b *Board) Amend(next Board) (Board, error) {
	amended := *b
	amended.Title, amended.Unit, amended.Decimals = next.Title, next.Unit, next.Decimals
	amended.MinScore, amended.MaxScore = next.MinScore, next.MaxScore
	amended.Season.Grace, amended.Retention = next.Season.Grace, next.Retention
	for _, w := range b.Season.Windows {
		if !slices.ContainsFunc(next.Season.Windows, func(n Season) bool {
			return n.ID == w.ID && n.Start.Equal(w.Start) && n.End.Equal(w.End)
		}) {
			return Board{}, fieldErrorf("season.windows", "window %q may not be changed or removed", w.ID)
		}
	}
	amended.Season.Windows = next.Season.Windows
	next.CreatedAt = b.CreatedAt
	if !amended.SameAs(&next) {
		return Board{}, fieldErrorf("board", "order, policy, half_life, tie_breakers, season schedule and time_zone, divisions and floor are fixed; make a new board instead")
	}
	return amended, amended.Validate()
}

// ClosesAt returns when s takes no more results: its grace after its end, or
// after the board was made if that is later, so that a new board can be filled
// with history. The zero time is never.
func (b *Board) ClosesAt(s Season) time.Time {
	if s.End.IsZero() {
		return time.Time{}
	}
	end := s.End
	if b.CreatedAt.After(end) {
		end = b.CreatedAt
	}
	if b.Season.Grace > time.Duration(math.MaxInt64)-time.Hour {
		return time.Time{}
	}
	return end.Add(b.Season.Grace)
}

// Closed says whether s, at now, takes no more results.
func (b *Board) Closed(s Season, now time.Time) bool {
	closes := b.ClosesAt(s)
	return !closes.IsZero() && !now.Before(closes)
}
