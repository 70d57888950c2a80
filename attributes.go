package leaderboard

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Constants of Board.AcceptedAttributes.
const (
	// AnyAttribute means that the board accepts all attributes.
	AnyAttribute          = "*"
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

// If equalByDefault returns true, comparisons ignore AcceptedAttributes: b has none and
// therefore accepts any attribute, and o has none or AnyAttribute.
func (b *Board) equalByDefault(o *Board) bool {
	return !b.StrictSubmits && len(b.AcceptedAttributes) == 0 && (len(o.AcceptedAttributes) == 0 || slices.Contains(o.AcceptedAttributes, AnyAttribute))
}

func (b *Board) comparedAttributes(o *Board) (x, y []string) {
	isKept := func(name string) bool {
		return slices.Contains(b.KeptAttributes, name) || slices.Contains(o.KeptAttributes, name)
	}
	if b.equalByDefault(o) || o.equalByDefault(b) {
		return nil, nil
	}
	return slices.DeleteFunc(slices.Clone(b.AcceptedAttributes), isKept), slices.DeleteFunc(slices.Clone(o.AcceptedAttributes), isKept)
}

// AcceptsAny reports whether submitted results may have any attribute. It is false if b is
// linked.
func (b *Board) AcceptsAny() bool {
	return b.Source == nil && (slices.Contains(b.AcceptedAttributes, AnyAttribute) || !b.StrictSubmits && len(b.AcceptedAttributes) == 0)
}

// Accept adds names to AcceptedAttributes, up to MaxAcceptedAttributes, and to
// KeptAttributes. It omits attributes that b already has. If b is linked or accepts any
// attribute, it adds nothing.
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

// Declared returns the attributes of b's divisions, including removed divisions. On a
// linked board, it also returns the attributes of Source.Match.
func (b *Board) Declared() []string {
	if b.Source == nil {
		return b.talliedAttributes()
	}
	return slices.Concat(b.talliedAttributes(), namesOf(b.Source.Match))
}

// namesOf returns the names of attributes, sorted. Most results have none, so namesOf makes nothing for these.
func namesOf(attributes map[string]string) []string {
	if len(attributes) == 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(attributes))
}

// declares reports whether b uses or accepts an attribute. Attributes of removed divisions
// count, because results may still have them.
func (b *Board) declares(attribute string) bool {
	matched := false
	if b.Source != nil {
		_, matched = b.Source.Match[attribute]
	}
	return matched || b.AcceptsAny() || slices.Contains(b.AcceptedAttributes, attribute) || slices.Contains(b.talliedAttributes(), attribute)
}

// CheckAttributes returns a [FieldError], joined by [errors.Join], for each attribute that
// neither b nor a linked board uses or accepts.
func (b *Board) CheckAttributes(attributes map[string]string, linked []*Board) error {
	if len(attributes) == 0 || b.AcceptsAny() {
		return nil
	}
	var errs []error
	for _, name := range namesOf(attributes) {
		if b.declares(name) || slices.ContainsFunc(linked, func(l *Board) bool { return l.declares(name) }) {
			continue
		}
		errs = append(errs, fieldErrorf("attributes", "%.128q is not declared by board %q, which declares %s; add it to the board's attributes, or set the board's attributes to [%q] to accept all",
			name, b.ID, b.declaredText(), AnyAttribute))
	}
	return errors.Join(errs...)
}

func (b *Board) declaredText() string {
	names := slices.Concat(b.Attributes(), b.AcceptedAttributes)
	if len(names) == 0 {
		return "none"
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}
