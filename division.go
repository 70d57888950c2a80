package leaderboard

import (
	"errors"
	"slices"
	"strconv"
	"strings"
)

// MaxCrossed is the largest number of attributes of one crossed division.
const MaxCrossed = 3

// Division is the part of a board whose users share the value of one attribute, such as
// "gender:F". A crossed division, such as "gender+age:F+30-34", is for two or three
// attributes. The zero Division is the overall board.
//
// Attribute is an element of [Board].Divisions. In a crossed division, "+" separates the
// names in Attribute and the values in Value. A backslash precedes each "+" and each
// backslash inside a value.
type Division struct {
	Attribute string
	Value     string
}

// Cross returns the division with the attributes and values of all parts, in this order.
// Each part must have a single attribute.
func Cross(parts ...Division) Division {
	switch len(parts) {
	case 0:
		return Division{}
	case 1:
		return parts[0]
	}
	names, values := make([]string, len(parts)), make([]string, len(parts))
	for i, p := range parts {
		names[i], values[i] = p.Attribute, escapeValue.Replace(p.Value)
	}
	return Division{strings.Join(names, crossing), strings.Join(values, crossing)}
}

const crossing = "+"

var escapeValue = strings.NewReplacer(`\`, `\\`, crossing, `\`+crossing)

// Parts returns the divisions from which [Cross] makes d.
func (d Division) Parts() []Division {
	if d.Overall() {
		return nil
	}
	names := attributesIn(d.Attribute)
	if len(names) == 1 {
		return []Division{d}
	}
	values, _ := splitValues(d.Value)
	parts := make([]Division, len(names))
	for i, name := range names {
		parts[i].Attribute = name
		if i < len(values) {
			parts[i].Value = values[i]
		}
	}
	return parts
}

func attributesIn(name string) []string { return strings.Split(name, crossing) }

// splitValues returns false if a backslash precedes neither "+" nor a backslash.
func splitValues(s string) (values []string, ok bool) {
	var value strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == crossing[0]:
			values = append(values, value.String())
			value.Reset()
			continue
		case s[i] == '\\':
			if i++; i == len(s) || s[i] != '\\' && s[i] != crossing[0] {
				return nil, false
			}
		}
		value.WriteByte(s[i])
	}
	return append(values, value.String()), true
}

// ParseDivision is the inverse of [Division.String]. It returns a [FieldError] if s is
// invalid.
func ParseDivision(s string) (Division, error) {
	if s == "" {
		return Division{}, nil
	}
	attribute, value, ok := strings.Cut(s, ":")
	if !ok {
		return Division{}, fieldErrorf("division", "%.256q does not have the form attribute:value", s)
	}
	if n := strings.Count(attribute, crossing) + 1; n > MaxCrossed {
		return Division{}, fieldErrorf("division", "%.256q has %d attributes, at most %d are allowed", attribute, n, MaxCrossed)
	}
	d, names, values := Division{attribute, value}, attributesIn(attribute), []string{value}
	if len(names) > 1 {
		values, ok = splitValues(value)
		if !ok || len(values) != len(names) {
			return Division{}, fieldErrorf("division", "%.256q must have a value for each of its %d attributes, separated by %q; write a backslash before each %[3]q and each backslash inside a value",
				s, len(names), crossing)
		}
	}
	for i, name := range names {
		if err := checkName("division", name); err != nil {
			return Division{}, err
		}
		if err := checkID("division", values[i]); err != nil {
			return Division{}, err
		}
	}
	return d, nil
}

// Overall reports whether d is the overall board.
func (d Division) Overall() bool { return d == Division{} }

// String returns "attribute:value", or "attribute+attribute:value+value" with the
// backslashes of [Division].Value, or "" for the overall board.
func (d Division) String() string {
	if d.Overall() {
		return ""
	}
	return d.Attribute + ":" + d.Value
}

// Division returns d with its attributes in the order of [Board].Divisions. It returns a
// [FieldError] if b has no division with these attributes.
func (b *Board) Division(d Division) (Division, error) {
	parts := d.Parts()
	if len(parts) == 0 {
		return d, nil
	}
	for _, division := range b.Divisions {
		names := attributesIn(division)
		if len(names) != len(parts) {
			continue
		}
		ordered := make([]Division, 0, len(names))
		for _, name := range names {
			if i := slices.IndexFunc(parts, func(p Division) bool { return p.Attribute == name }); i >= 0 {
				ordered = append(ordered, parts[i])
			}
		}
		if len(ordered) == len(names) {
			return Cross(ordered...), nil
		}
	}
	declared := "; the board declares no divisions"
	if len(b.Divisions) > 0 {
		declared = "; the board declares " + quoted(b.Divisions)
	}
	if len(parts) > MaxCrossed {
		return Division{}, fieldErrorf("division", "%d attributes given, at most %d are allowed%s", len(parts), MaxCrossed, declared)
	}
	for i, p := range parts {
		if slices.ContainsFunc(parts[:i], func(o Division) bool { return o.Attribute == p.Attribute }) {
			return Division{}, fieldErrorf("division", "the attribute %q is given twice%s", p.Attribute, declared)
		}
	}
	return Division{}, fieldErrorf("division", "%.256q is not a division of the board%s", d.Attribute, declared)
}

func quoted(names []string) string {
	var all []string
	for _, name := range names {
		all = append(all, strconv.Quote(name))
	}
	return strings.Join(all, ", ")
}

func (b *Board) validateDivisions() (errs []error) {
	if len(b.Divisions) > MaxDivisions {
		errs = append(errs, fieldErrorf("divisions", "%d given, at most %d are allowed", len(b.Divisions), MaxDivisions))
	}
	sortedName := func(name string) string {
		names := attributesIn(name)
		slices.Sort(names)
		return strings.Join(names, crossing)
	}
	for i, division := range b.Divisions {
		field, names := "divisions["+strconv.Itoa(i)+"]", attributesIn(division)
		if len(names) > MaxCrossed {
			errs = append(errs, fieldErrorf(field, "%.256q has %d attributes, at most %d are allowed", division, len(names), MaxCrossed))
			continue
		}
		for j, name := range names {
			errs = append(errs, checkName(field, name))
			if slices.Index(names, name) < j {
				errs = append(errs, fieldErrorf(field, "%q has %q twice", division, name))
			}
		}
		if slices.ContainsFunc(b.Divisions[:i], func(o string) bool { return sortedName(o) == sortedName(division) }) {
			errs = append(errs, fieldErrorf(field, "%q is given twice", division))
		}
	}
	return errs
}

// MaxDivisionChanges is the largest number of changes of a board's divisions.
const MaxDivisionChanges = 30

// Rules returns the number of changes of b's divisions. The number identifies the present
// divisions.
func (b *Board) Rules() int { return len(b.PastDivisions) }

// WithRules returns b with the divisions after the given number of changes, or b itself
// if there were no later changes.
func (b *Board) WithRules(rules int) *Board {
	if rules >= len(b.PastDivisions) {
		return b
	}
	earlier := *b
	earlier.Divisions, earlier.PastDivisions = b.PastDivisions[rules], b.PastDivisions[:rules]
	return &earlier
}

// amendDivisions keeps b's order of the divisions, and appends new divisions. A different
// order alone is no change. If proposal.RecountDue is zero, all recounts have ended, so
// only the new divisions are unfilled.
func (b *Board) amendDivisions(proposal *Board) error {
	if errs := proposal.validateDivisions(); errors.Join(errs...) != nil {
		return errors.Join(errs...)
	}
	var divisions, added []string
	for _, name := range b.Divisions {
		if slices.Contains(proposal.Divisions, name) {
			divisions = append(divisions, name)
		}
	}
	common := len(divisions)
	for _, name := range proposal.Divisions {
		if !slices.Contains(b.Divisions, name) {
			added = append(added, name)
		}
	}
	divisions = append(divisions, added...)
	b.Unfilled = nil
	for _, name := range divisions[:common] {
		if slices.Contains(proposal.Unfilled, name) && !proposal.RecountDue.IsZero() {
			b.Unfilled = append(b.Unfilled, name)
		}
	}
	b.Unfilled = append(b.Unfilled, added...)
	if common == len(b.Divisions) && len(added) == 0 {
		return nil
	}
	return b.changeRules(divisions)
}

func (b *Board) changeRules(divisions []string) error {
	if len(b.PastDivisions) >= MaxDivisionChanges {
		return fieldErrorf("divisions", "were already changed %d times, and more changes are not allowed; create a new board instead", MaxDivisionChanges)
	}
	b.PastDivisions = append(slices.Clone(b.PastDivisions), b.Divisions)
	b.Divisions = divisions
	return nil
}

// IsFilling reports whether the ladders of name, an element of Divisions, may lack users:
// see [Board].Unfilled.
func (b *Board) IsFilling(name string) bool { return slices.Contains(b.Unfilled, name) }

// EveryDivision returns the elements that Divisions has or had, in the order in which they
// were added.
func (b *Board) EveryDivision() []string {
	if len(b.PastDivisions) == 0 {
		return b.Divisions
	}
	var all []string
	for _, divisions := range append(slices.Clone(b.PastDivisions), b.Divisions) {
		for _, name := range divisions {
			if !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	return all
}

// Attributes returns the attributes of b's divisions, each once, in the order of first use.
func (b *Board) Attributes() []string { return attributesOf(b.Divisions) }

// talliedAttributes returns the attributes whose values a tally keeps, in the order of
// first use.
func (b *Board) talliedAttributes() []string { return attributesOf(b.EveryDivision()) }

func attributesOf(divisions []string) []string {
	if !slices.ContainsFunc(divisions, func(name string) bool { return strings.Contains(name, crossing) }) {
		return divisions
	}
	var all []string
	for _, division := range divisions {
		for _, name := range attributesIn(division) {
			if !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	return all
}
