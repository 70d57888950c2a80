package leaderboard

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Score is an integer. Its last [Board].Decimals digits are decimal places: with the unit
// "EUR" and 2 decimals, 1234 is 12.34 EUR.
type Score int64

// Limits and defaults.
const (
	// MaxScore also bounds points and tie-breakers. JSON clients and Redis hold integers
	// exactly up to 2^53.
	MaxScore       Score = 1 << 53
	MaxTieBreakers       = 24
	// MaxDivisions includes crossed divisions.
	MaxDivisions  = 8
	MaxDecimals   = 9
	MaxTitleBytes = 256
	MaxUnitBytes  = 32
	MaxShards     = 256
	MinHalfLife   = time.Second
	MaxHalfLife   = 100 * 365 * 24 * time.Hour
	// DefaultGrace is the [Schedule].Grace of a board that was created without a grace.
	DefaultGrace = 24 * time.Hour
)

// Order is the direction in which a board ranks scores.
type Order int8

// The orders.
const (
	HigherFirst Order = iota
	LowerFirst
)

// Policy is the rule that computes a user's entry from the user's results.
type Policy int8

// The policies.
const (
	Best   Policy = iota // the best result
	Sum                  // the sum of the results' points
	Latest               // the result with the latest event time
	Decay                // the sum of the results' points, which halve with each half-life
)

// Method is a rule for the ranks of standings with equal rank keys. See
// https://en.wikipedia.org/wiki/Ranking.
type Method int8

// In the examples below, the second and the third of four standings have equal rank keys.
const (
	// Competition gives 1-2-2-4: 1 plus the number of standings with a better rank key.
	Competition Method = iota
	// Dense gives 1-2-2-3: 1 plus the number of distinct better rank keys.
	Dense
	// Ordinal gives 1-2-3-4: the position in the ladder.
	Ordinal
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
		return fieldErrorf(field, "%.64q is unknown; it must be one of %s", text, strings.Join(names, ", "))
	}
	*dst = E(i)
	return nil
}

// TieBreaker is an additional integer of each result. It ranks standings with equal scores
// and equal earlier tie-breakers.
type TieBreaker struct {
	Name  string `json:"name"`
	Order Order  `json:"order"`
}

// Board is a ranking with its rules. [Board.Amend] lists the settings that may change.
type Board struct {
	ID    BoardID `json:"board_id"`
	Title string  `json:"title,omitempty"` // for display, at most MaxTitleBytes
	Order Order   `json:"order"`

	Policy Policy `json:"policy"`
	// HalfLife is the time in which points lose half their value, on decay boards only.
	HalfLife    time.Duration `json:"half_life,omitempty"`
	TieBreakers []TieBreaker  `json:"tie_breakers,omitempty"`

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

	// MinScore and MaxScore bound the score, or the points, of one result. nil means ±2^53.
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

// BoardState is what only the service sets on a board. It is no rule: see [Board.SameAs].
type BoardState struct {
	// Links are the boards linked to this board, ordered by id. After an interrupted creation
	// or deletion, a board in Links may not exist, or may have another source.
	Links []BoardID `json:"links,omitempty"`
	// FillLease is not zero while this linked board may lack earlier results of its source.
	// Until FillLease, only one process adds these results.
	FillLease time.Time      `json:"fill_lease,omitzero"`
	Rolling   RollingWindows `json:"rolling,omitzero"`
	// PastDivisions has the former values of Divisions, the oldest first. [Board.Amend] sets
	// PastDivisions.
	PastDivisions [][]string `json:"past_divisions,omitempty"`
	// Unfilled are the elements of Divisions whose ladders may lack users. If RecountLease is
	// zero, [Board.Amend] first clears Unfilled. Amend adds the new elements of Divisions.
	Unfilled []string `json:"unfilled,omitempty"`
	// RecountLease is not zero while the recount after a change of Divisions is incomplete.
	// Until RecountLease, only one process recounts. If RecountLease is zero, every entry of
	// an unsealed season was computed with the present Divisions.
	RecountLease time.Time `json:"recount_lease,omitzero"`
	// WidenedAt is when an amendment last changed a setting so that the board may accept results that
	// it has refused: see [Board.NoteWidening] and [Board.NeedsRecent].
	WidenedAt time.Time `json:"widened_at,omitzero"`
	// KeptAttributes are the elements of AcceptedAttributes that [Board.Accept] added,
	// because stored results may have them.
	KeptAttributes []string `json:"kept_attributes,omitempty"`
	// UnfilledMatches means that [MatchStore].MatchUsers and MatchIDs may lack results from
	// before Matches was set. [Board.Amend] sets it together with RecountLease's recount.
	UnfilledMatches bool `json:"unfilled_matches,omitempty"`
}

// Filling reports whether b may still lack earlier results of its source.
func (b *Board) Filling() bool { return !b.FillLease.IsZero() }

// Validate returns all faults of b's rules, joined by [errors.Join], each a [FieldError].
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
			errs = append(errs, fieldErrorf(fmt.Sprintf("tie_breakers[%d].order", i), "must be one of %s", strings.Join(orderNames, ", ")))
		}
	}
	errs = append(errs, b.validateDivisions()...)
	errs = append(errs, b.validateAttributes()...)
	lo, hi := b.bounds()
	for field, s := range map[string]Score{"min_score": lo, "max_score": hi} {
		if s < -MaxScore || s > MaxScore {
			errs = append(errs, fieldErrorf(field, "%d is outside ±2^53", s))
		}
	}
	if lo > hi {
		errs = append(errs, fieldErrorf("min_score", "%d is above max_score %d", lo, hi))
	}
	if b.Shards < 0 || b.Shards > MaxShards {
		errs = append(errs, fieldErrorf("shards", "%d is not in the range 0 to %d", b.Shards, MaxShards))
	}
	if b.Retention < 0 {
		errs = append(errs, fieldErrorf("retention", "%v is negative", b.Retention))
	}
	if b.Season.Kind == Rolling && b.Retention == 0 {
		errs = append(errs, fieldErrorf("retention", "is required on a board with a ROLLING schedule, which gets a new season every day"))
	}
	return errors.Join(append(errs, b.validateSource()...)...)
}

func (b *Board) validateTexts() error {
	var errs []error
	for _, text := range []struct {
		field, s string
		max      int
	}{{"title", b.Title, MaxTitleBytes}, {"unit", b.Unit, MaxUnitBytes}} {
		errs = append(errs, CheckText(text.field, text.s, text.max))
	}
	if b.Decimals < 0 || b.Decimals > MaxDecimals {
		errs = append(errs, fieldErrorf("decimals", "%d is not in the range 0 to %d", b.Decimals, MaxDecimals))
	}
	return errors.Join(errs...)
}

func (b *Board) validatePolicy() error {
	var errs []error
	if b.Order != HigherFirst && b.Order != LowerFirst {
		errs = append(errs, fieldErrorf("order", "must be one of %s", strings.Join(orderNames, ", ")))
	}
	if b.Policy < 0 || int(b.Policy) >= len(arithmetics) {
		errs = append(errs, fieldErrorf("policy", "must be one of %s", strings.Join(policyNames, ", ")))
	} else {
		errs = append(errs, b.arithmetic().validate(b))
	}
	return errors.Join(errs...)
}

func (b *Board) bounds() (lo, hi Score) {
	lo, hi = -MaxScore, MaxScore
	if b.MinScore != nil {
		lo = *b.MinScore
	}
	if b.MaxScore != nil {
		hi = *b.MaxScore
	}
	return lo, hi
}

// SameAs reports whether b and o have the same rules and settings. It ignores CreatedAt,
// StrictSubmits, the early ends of seasons, the attributes in KeptAttributes of b or o, and
// the fields that only the service sets.
func (b *Board) SameAs(o *Board) bool {
	x, y := *b, *o
	x.BoardState, y.BoardState = BoardState{}, BoardState{}
	x.CreatedAt, y.CreatedAt, x.StrictSubmits, y.StrictSubmits = time.Time{}, time.Time{}, false, false
	x.AcceptedAttributes, y.AcceptedAttributes = b.comparedAttributes(o)
	x.Season.Ends, y.Season.Ends = nil, nil
	return reflect.DeepEqual(x.normalForm(), y.normalForm())
}

// Differences returns a text for each rule or setting that differs between b and o. The text about
// the source has no ids, because not every caller may see both sources.
func (b *Board) Differences(o *Board) []string {
	x, y := *b, *o
	x.AcceptedAttributes, y.AcceptedAttributes = b.comparedAttributes(o)
	fields, others := x.fields(), y.fields()
	for name := range fields {
		if _, ok := others[name]; !ok {
			others[name] = noValue
		}
	}
	var differences []string
	for _, name := range slices.Sorted(maps.Keys(others)) {
		value, ok := fields[name]
		if !ok {
			value = noValue
		}
		if other := others[name]; name == fieldSource && value != other {
			differences = append(differences, name)
		} else if value != other {
			differences = append(differences, fmt.Sprintf("%s (%.100s, not %.100s)", name, value, other))
		}
	}
	return differences
}

const (
	noValue     = "none"
	fieldSource = "source.board_id"
)

func (b *Board) fields() map[string]string {
	plain := b.normalForm()
	fields := map[string]string{
		"title": strconv.Quote(b.Title), "order": b.Order.String(), "policy": b.Policy.String(), "unit": strconv.Quote(b.Unit),
		"decimals": strconv.Itoa(b.Decimals), "season.schedule": b.Season.Kind.String(), "season.time_zone": plain.Season.TimeZone,
		"season.grace": b.Season.Grace.String(),
	}
	if len(b.Divisions) > 0 {
		fields["divisions"] = strings.Join(plain.Divisions, ",")
	}
	if len(b.AcceptedAttributes) > 0 {
		fields["attributes"] = strings.Join(b.AcceptedAttributes, ",")
	}
	var ties, windows, match []string
	for _, tie := range b.TieBreakers {
		ties = append(ties, tie.Name+" "+tie.Order.String())
	}
	for _, w := range b.Season.Windows {
		windows = append(windows, fmt.Sprintf("%s=%s/%s", w.ID, w.Start.UTC().Format(time.RFC3339), w.End.UTC().Format(time.RFC3339)))
	}
	if b.Source != nil {
		fields[fieldSource] = strconv.Quote(string(b.Source.Board))
		for _, name := range slices.Sorted(maps.Keys(b.Source.Match)) {
			match = append(match, name+"="+b.Source.Match[name])
		}
	}
	for name, list := range map[string][]string{"tie_breakers": ties, "season.windows": windows, "source.match": match} {
		if len(list) > 0 {
			fields[name] = strings.Join(list, ", ")
		}
	}
	for name, d := range map[string]time.Duration{"half_life": b.HalfLife, "retention": b.Retention} {
		if d != 0 {
			fields[name] = d.String()
		}
	}
	for name, n := range map[string]int{"season.days": b.Season.Days, "shards": b.Shards} {
		if n != 0 {
			fields[name] = strconv.Itoa(n)
		}
	}
	for name, set := range map[string]bool{"private": b.Private, "matches": b.Matches} {
		if set {
			fields[name] = "true"
		}
	}
	for name, score := range map[string]*Score{"min_score": b.MinScore, "max_score": b.MaxScore, "floor": b.Floor} {
		if score != nil {
			fields[name] = strconv.FormatInt(int64(*score), 10)
		}
	}
	return fields
}

// normalForm replaces equivalent settings by equal values, for [reflect.DeepEqual].
func (b Board) normalForm() Board {
	if len(b.TieBreakers) == 0 {
		b.TieBreakers = nil
	}
	b.Divisions = slices.Sorted(slices.Values(b.Divisions)) // nil if empty
	if len(b.AcceptedAttributes) == 0 {
		b.AcceptedAttributes = nil
	}
	if len(b.Season.Windows) == 0 {
		b.Season.Windows = nil
	}
	if b.Season.TimeZone == "" {
		b.Season.TimeZone = "UTC"
	}
	if b.Source != nil {
		source := &Source{Board: b.Source.Board} // without TieBreakers, which LinkTo computes
		if len(b.Source.Match) > 0 {
			source.Match = b.Source.Match
		}
		b.Source = source
	}
	return b
}

// Clone returns a deep copy of b.
func (b *Board) Clone() Board {
	c := *b
	c.TieBreakers = slices.Clone(b.TieBreakers)
	c.Divisions = slices.Clone(b.Divisions)
	c.AcceptedAttributes, c.KeptAttributes = slices.Clone(b.AcceptedAttributes), slices.Clone(b.KeptAttributes)
	c.Season.Windows = slices.Clone(b.Season.Windows)
	c.Season.Ends = slices.Clone(b.Season.Ends)
	c.Links, c.Unfilled = slices.Clone(b.Links), slices.Clone(b.Unfilled)
	c.PastDivisions = slices.Clone(b.PastDivisions)
	if b.Source != nil {
		c.Source = &Source{Board: b.Source.Board, Match: maps.Clone(b.Source.Match), TieBreakers: slices.Clone(b.Source.TieBreakers)}
	}
	for _, p := range []**Score{&c.MinScore, &c.MaxScore, &c.Floor} {
		if *p != nil {
			v := **p
			*p = &v
		}
	}
	return c
}

// Revise calls edit with a copy of b, and returns the result of [Board.Amend] for this
// copy. It ignores a new ID. Errors: those of the function edit and of Amend.
func (b *Board) Revise(edit func(*Board) error) (Board, error) {
	edited := b.Clone()
	if err := edit(&edited); err != nil {
		return Board{}, err
	}
	edited.ID = b.ID
	return b.Amend(edited)
}

// NoteWidening sets b.WidenedAt to now, if b has another schedule or other score bounds than before.
func (b *Board) NoteWidening(before *Board, now time.Time) {
	settings := func(b *Board) any { return []any{b.Season, b.MinScore, b.MaxScore} }
	if !reflect.DeepEqual(settings(b), settings(before)) {
		b.WidenedAt = Truncate(now)
	}
}

// ValidateNew checks the ids of b and of its windows, and the values of Source.Match. It
// returns a [FieldError] for each text that new boards must not use, joined by [errors.Join].
// b must be valid.
func (b *Board) ValidateNew() error {
	errs := []error{checkNewText("board_id", string(b.ID)), b.Season.validateNew(Schedule{})}
	if b.Source != nil {
		for _, name := range slices.Sorted(maps.Keys(b.Source.Match)) {
			errs = append(errs, checkVisible("source.match."+name, b.Source.Match[name]))
		}
	}
	return errors.Join(errs...)
}

// Amend returns a copy of b with the settings of proposal. These may change:
//   - Title, Unit, Decimals, MinScore, MaxScore, Season.Grace, Retention, Private and Shards
//   - Divisions and AcceptedAttributes
//   - Matches, from false to true
//   - Season.Windows: windows can be added
//   - Season.Ends: early ends can be added, or moved to an earlier time
//   - Links, FillLease, Rolling, Unfilled, RecountLease, UnfilledMatches and WidenedAt, which the
//     service sets
//
// Amend ignores changes of CreatedAt, StrictSubmits and PastDivisions. If proposal changes
// anything else, Amend returns a [FieldError]. Amend also returns the errors of Validate
// for the amended board.
func (b *Board) Amend(proposal Board) (Board, error) {
	amended := *b
	amended.Title, amended.Unit, amended.Decimals = proposal.Title, proposal.Unit, proposal.Decimals
	amended.MinScore, amended.MaxScore = proposal.MinScore, proposal.MaxScore
	amended.Season.Grace, amended.Retention, amended.Private = proposal.Season.Grace, proposal.Retention, proposal.Private
	amended.Shards = proposal.Shards
	amended.Links, amended.FillLease, amended.Rolling = proposal.Links, proposal.FillLease, proposal.Rolling
	amended.RecountLease, amended.WidenedAt = proposal.RecountLease, proposal.WidenedAt
	if err := amended.amendDivisions(&proposal); err != nil {
		return Board{}, err
	}
	amended.UnfilledMatches = b.UnfilledMatches && proposal.UnfilledMatches
	if proposal.Matches && !b.Matches {
		amended.Matches, amended.UnfilledMatches = true, true
		// New Rules make every process read the board again before it applies results.
		if err := amended.changeRules(amended.Divisions); err != nil {
			return Board{}, err
		}
	}
	if !b.equalByDefault(&proposal) {
		amended.AcceptedAttributes, amended.KeptAttributes = proposal.AcceptedAttributes, nil
		for _, name := range proposal.KeptAttributes {
			if slices.Contains(proposal.AcceptedAttributes, name) {
				amended.KeptAttributes = append(amended.KeptAttributes, name)
			}
		}
		// Stored results may have the attributes of removed divisions.
		amended.Accept(amended.talliedAttributes())
	}
	for _, w := range b.Season.Windows {
		if !slices.ContainsFunc(proposal.Season.Windows, func(p Season) bool {
			return p.ID == w.ID && p.Start.Equal(w.Start) && p.End.Equal(w.End)
		}) {
			return Board{}, fieldErrorf("season.windows", "window %q cannot be changed or removed; only add windows", w.ID)
		}
	}
	if err := errors.Join(b.Season.checkEnds(&proposal.Season), proposal.Season.validateNew(b.Season)); err != nil {
		return Board{}, err
	}
	amended.Season.Windows, amended.Season.Ends = proposal.Season.Windows, proposal.Season.Ends
	proposal.CreatedAt, proposal.Divisions, proposal.AcceptedAttributes = b.CreatedAt, amended.Divisions, amended.AcceptedAttributes
	if !amended.SameAs(&proposal) {
		return Board{}, fieldErrorf("board", "board_id, order, policy, half_life, tie_breakers, season schedule, days and time_zone, floor and source are fixed, and matches cannot be switched off; create a new board instead")
	}
	return amended, amended.Validate()
}

// ClosesAt returns the time from which s accepts no more results. The grace counts from the
// latest of these times: the end of s, the creation of the board, and the decision to end s
// early. The zero time means that s never closes.
func (b *Board) ClosesAt(s Season) time.Time {
	if s.End.IsZero() {
		return time.Time{}
	}
	end := s.End
	if b.CreatedAt.After(end) {
		end = b.CreatedAt
	}
	if early, ok := b.Season.EarlyEnd(s.ID); ok && early.DecidedAt.After(end) {
		end = early.DecidedAt
	}
	if b.Season.Grace > time.Duration(math.MaxInt64)-time.Hour {
		return time.Time{}
	}
	return end.Add(b.Season.Grace)
}

// Closed reports whether s accepts no more results at the time now.
func (b *Board) Closed(s Season, now time.Time) bool {
	closes := b.ClosesAt(s)
	return !closes.IsZero() && !now.Before(closes)
}
