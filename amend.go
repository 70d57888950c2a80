package leaderboard

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

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
	maps.Copy(fields, b.Season.starts())
	var ties, windows, match, statuses []string
	for _, f := range b.Statuses {
		statuses = append(statuses, f.String())
	}
	if b.Ties != EarliestFirst {
		fields["ties"] = b.Ties.String()
	}
	for _, tie := range b.TieBreakers {
		ties = append(ties, strings.TrimSuffix(tie.Name+" "+tie.Order.String()+" "+tie.Combine.String(), " "+Added.String()))
	}
	for _, w := range b.Season.Windows {
		windows = append(windows, fmt.Sprintf("%s=%s/%s", w.ID, w.Start.UTC().Format(time.RFC3339), w.End.UTC().Format(time.RFC3339)))
	}
	if b.Source != nil {
		fields[fieldSource] = strconv.Quote(string(b.Source.Board))
		for _, name := range namesOf(b.Source.Match) {
			match = append(match, name+"="+b.Source.Match[name])
		}
	}
	for name, list := range map[string][]string{"tie_breakers": ties, "season.windows": windows, "source.match": match, "statuses": statuses} {
		if len(list) > 0 {
			fields[name] = strings.Join(list, ", ")
		}
	}
	for name, d := range map[string]time.Duration{"half_life": b.HalfLife, "retention": b.Retention} {
		if d != 0 {
			fields[name] = d.String()
		}
	}
	for name, n := range map[string]int{"k": b.K, "drop_worst": b.DropWorst, "min_results": int(b.MinResults), "season.days": b.Season.Days, "shards": b.Shards} {
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

// starts has the settings that say when seasons begin, without those that have their default.
func (s *Schedule) starts() map[string]string {
	fields := map[string]string{}
	if s.DayStart != 0 {
		fields["season.day_start"] = s.DayStart.String()
	}
	if s.WeekStart != Monday {
		fields["season.week_start"] = s.WeekStart.String()
	}
	if s.YearStart != 0 {
		fields["season.year_start"] = s.YearStart.String()
	}
	if s.Kind == Every {
		fields["season.every"], fields["season.from"] = s.Every.String(), s.From.UTC().Format(time.RFC3339)
	}
	return fields
}

// normalForm replaces equivalent settings by equal values, for [reflect.DeepEqual].
func (b Board) normalForm() Board {
	if len(b.TieBreakers) == 0 {
		b.TieBreakers = nil
	}
	if len(b.Statuses) == 0 {
		b.Statuses = nil
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
	b.Season.From = b.Season.From.UTC()
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
	c.Statuses = slices.Clone(b.Statuses)
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

// Amend returns a copy of b with the settings of proposal. These may change:
//   - Title, Unit, Decimals, MinScore, MaxScore, Season.Grace, Retention, Private and Shards
//   - Divisions and AcceptedAttributes
//   - Matches, from false to true
//   - Season.Windows: windows can be added, and can end at another time
//   - Season.Ends: early ends can be added, or moved to an earlier time
//   - Links, FillDue, Rolling, Unfilled, RecountDue, UnfilledMatches and WidenedAt, which the
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
	amended.Links, amended.FillDue, amended.Rolling = proposal.Links, proposal.FillDue, proposal.Rolling
	amended.RecountDue, amended.WidenedAt = proposal.RecountDue, proposal.WidenedAt
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
			return p.ID == w.ID && p.Start.Equal(w.Start)
		}) {
			return Board{}, fieldErrorf("season.windows", "window %q cannot be removed or start at another time; only add windows, or change their ends", w.ID)
		}
	}
	if err := errors.Join(b.Season.checkEnds(&proposal.Season), proposal.Season.validateNew(b.Season)); err != nil {
		return Board{}, err
	}
	amended.Season.Windows, amended.Season.Ends = proposal.Season.Windows, proposal.Season.Ends
	proposal.CreatedAt, proposal.Divisions, proposal.AcceptedAttributes = b.CreatedAt, amended.Divisions, amended.AcceptedAttributes
	if !amended.SameAs(&proposal) {
		return Board{}, fieldErrorf("board", "board_id, order, policy, half_life, k, drop_worst, tie_breakers, ties, min_results, statuses, season schedule with its time_zone, days, starts and length, floor and source are fixed, and matches cannot be switched off; create a new board instead")
	}
	return amended, amended.Validate()
}
