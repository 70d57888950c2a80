package leaderboard

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

const (
	// AnyAttribute in Board.AcceptedAttributes means that submitted results may have any
	// attribute.
	AnyAttribute = "*"
	// MaxAcceptedAttributes is the largest number of Board.AcceptedAttributes.
	MaxAcceptedAttributes = 64
)

func (b *Board) validateAttributes() (errs []error) {
	if len(b.AcceptedAttributes) > MaxAcceptedAttributes {
		errs = append(errs, fieldErrorf("attributes", "%d given, at most %d are allowed", len(b.AcceptedAttributes), MaxAcceptedAttributes))
	}
	if len(b.AcceptedAttributes) > 0 && b.Source != nil {
		errs = append(errs, fieldErrorf("attributes", "is not allowed on a linked board; the source decides which results are accepted"))
	}
	for i, name := range b.AcceptedAttributes {
		field := fmt.Sprintf("attributes[%d]", i)
		switch {
		case name != AnyAttribute:
			errs = append(errs, checkName(field, name))
		case len(b.AcceptedAttributes) > 1:
			errs = append(errs, fieldErrorf(field, "%q means any attribute and cannot be combined with others", name))
		}
		if slices.Index(b.AcceptedAttributes, name) < i {
			errs = append(errs, fieldErrorf(field, "%q is given twice", name))
		}
	}
	return errs
}

// equalByDefault reports whether b and o have equal attributes for SameAs, because b accepts any
// attribute by default. This is the case if b has neither StrictSubmits nor AcceptedAttributes,
// and if o has AnyAttribute or no AcceptedAttributes.
func (b *Board) equalByDefault(o *Board) bool {
	return !b.StrictSubmits && len(b.AcceptedAttributes) == 0 && (len(o.AcceptedAttributes) == 0 || slices.Contains(o.AcceptedAttributes, AnyAttribute))
}

// comparedAttributes returns the AcceptedAttributes of b and those of o that SameAs compares.
// It omits attributes in KeptAttributes of b or o. If equalByDefault is true for b and o, in
// either order, both lists are empty.
func (b *Board) comparedAttributes(o *Board) (x, y []string) {
	isKept := func(name string) bool {
		return slices.Contains(b.KeptAttributes, name) || slices.Contains(o.KeptAttributes, name)
	}
	if b.equalByDefault(o) || o.equalByDefault(b) {
		return nil, nil
	}
	return slices.DeleteFunc(slices.Clone(b.AcceptedAttributes), isKept), slices.DeleteFunc(slices.Clone(o.AcceptedAttributes), isKept)
}

// AcceptsAny reports whether results that are submitted to b may have any attribute. This is the
// case if AcceptedAttributes has [AnyAttribute], or if b has neither AcceptedAttributes nor
// StrictSubmits. It returns false if b is linked, because no results are submitted to b then.
func (b *Board) AcceptsAny() bool {
	return b.Source == nil && (slices.Contains(b.AcceptedAttributes, AnyAttribute) || !b.StrictSubmits && len(b.AcceptedAttributes) == 0)
}

// Accept adds names to AcceptedAttributes and to KeptAttributes, except names that are already in
// AcceptedAttributes or in [Board.Attributes]. If b is linked or accepts any attribute, Accept
// adds no names. It adds no more than MaxAcceptedAttributes allows.
func (b *Board) Accept(names []string) {
	if b.Source != nil || b.AcceptsAny() {
		return
	}
	for _, name := range names {
		if len(b.AcceptedAttributes) < MaxAcceptedAttributes && !slices.Contains(b.AcceptedAttributes, name) && !slices.Contains(b.Attributes(), name) {
			b.AcceptedAttributes = append(slices.Clone(b.AcceptedAttributes), name)
			b.KeptAttributes = append(slices.Clone(b.KeptAttributes), name)
		}
	}
}

// Declared returns the attributes that b uses: those of its divisions, removed divisions
// included, and on a linked board those of Source.Match.
func (b *Board) Declared() []string {
	if b.Source == nil {
		return b.talliedAttributes()
	}
	return slices.Concat(b.talliedAttributes(), slices.Sorted(maps.Keys(b.Source.Match)))
}

// declares reports whether b uses an attribute, or accepts it in submitted results. The
// attributes of removed divisions stay declared, because game servers and imports of stored
// results may still send them.
func (b *Board) declares(attribute string) bool {
	matched := false
	if b.Source != nil {
		_, matched = b.Source.Match[attribute]
	}
	return matched || b.AcceptsAny() || slices.Contains(b.AcceptedAttributes, attribute) || slices.Contains(b.talliedAttributes(), attribute)
}

// CheckAttributes returns a [FieldError] for each attribute that neither b nor a board linked
// to b declares, joined by [errors.Join]. A board declares its accepted attributes and the attributes of its divisions
// and of Source.Match. Any other attribute is probably misspelled.
func (b *Board) CheckAttributes(attributes map[string]string, linked []*Board) error {
	if len(attributes) == 0 || b.AcceptsAny() {
		return nil
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		if b.declares(name) || slices.ContainsFunc(linked, func(l *Board) bool { return l.declares(name) }) {
			continue
		}
		errs = append(errs, fieldErrorf("attributes", "%.128q is not declared by board %q, which declares %s; add it to the board's attributes, or set the board's attributes to [%q] to accept all",
			name, b.ID, b.declaredText(), AnyAttribute))
	}
	return errors.Join(errs...)
}

// declaredText lists the accepted attributes and those of the current divisions, for error messages.
func (b *Board) declaredText() string {
	names := slices.Concat(b.Attributes(), b.AcceptedAttributes)
	if len(names) == 0 {
		return "none"
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}

// CheckSubmit returns a [FieldError] for each reason why a caller must not submit r to b, joined by
// [errors.Join]. [Board.Merge] does not refuse results for these reasons, because the Kafka topic may contain
// such results. The fields of r must be as the caller gave them: AchievedAt and Season are zero if
// the caller gave none. Parameter linked has the boards that are linked to b.
func (b *Board) CheckSubmit(r *MatchResult, linked []*Board) error {
	errs := []error{b.CheckAttributes(r.Attributes, linked)}
	// A correction without a time would belong to the season in which it arrives. The old
	// result would still count in its own season.
	if r.Revision > 0 && r.AchievedAt.IsZero() && r.Season == "" && b.Season.Kind != None {
		errs = append(errs, fieldErrorf("achieved_at", "this field or season is required with a revision above 0, because the board has seasons; to change some fields of a stored result, use PATCH /v1/boards/{board}/results/{user_id}/{match_id}"))
	}
	for i, tie := range b.TieBreakers {
		if b.StrictSubmits && tie.Order == LowerFirst && i >= len(r.TieBreakers) {
			errs = append(errs, fieldErrorf("tie_breakers", "value %d, %q, is required: lower is better, and a missing value would count as 0", i+1, tie.Name))
		}
	}
	return errors.Join(errs...)
}
