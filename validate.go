package leaderboard

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

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
		if field := fmt.Sprintf("tie_breakers[%d].combine", i); tb.Combine < Added || tb.Combine > Last {
			errs = append(errs, fieldErrorf(field, "must be one of %s", strings.Join(combinationNames, ", ")))
		} else if tb.Combine != Added && !b.AddsUp() {
			errs = append(errs, fieldErrorf(field, "is not allowed on %s boards, whose tie-breakers are those of one result", b.Policy))
		}
	}
	errs = append(errs, b.validateFinishes()...)
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

func (b *Board) validateFinishes() []error {
	var errs []error
	if b.Ties < EarliestFirst || b.Ties > Shared {
		errs = append(errs, fieldErrorf("ties", "must be one of %s", strings.Join(tieRuleNames, ", ")))
	}
	if b.MinResults < 0 || b.MinResults > MaxMinResults {
		errs = append(errs, fieldErrorf("min_results", "%d is not in the range 0 to %d", b.MinResults, MaxMinResults))
	}
	for i, f := range b.Statuses {
		field := fmt.Sprintf("statuses[%d]", i)
		if f <= Ranked || f >= TooFew {
			errs = append(errs, fieldErrorf(field, "must be one of %s", strings.Join(finishNames[DNF:TooFew], ", ")))
		}
		if slices.Contains(b.Statuses[:i], f) {
			errs = append(errs, fieldErrorf(field, "%s is given twice", f))
		}
	}
	return errs
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
	for field, n := range map[string]int{"k": b.K, "drop_worst": b.DropWorst} {
		if n != 0 && b.Policy != BestK {
			errs = append(errs, fieldErrorf(field, "is allowed on BEST_K boards only"))
		}
	}
	return errors.Join(errs...)
}

// ValidateNew checks the ids of b and of its windows, and the values of Source.Match. It
// returns a [FieldError] for each text that new boards must not use, joined by [errors.Join].
// b must be valid.
func (b *Board) ValidateNew() error {
	errs := []error{checkNewText("board_id", string(b.ID)), b.Season.validateNew(Schedule{})}
	if b.Source != nil {
		for _, name := range namesOf(b.Source.Match) {
			errs = append(errs, checkVisible("source.match."+name, b.Source.Match[name]))
		}
	}
	return errors.Join(errs...)
}

// Check returns all faults of the values of r on b at the time now, joined by
// [errors.Join], each a [FieldError]. It ignores r's season.
func (b *Board) Check(r *MatchResult, now time.Time) error {
	errs := []error{r.CheckKey()}
	if r.Retracted {
		return errors.Join(errs...)
	}
	name := "score"
	if b.AddsUp() {
		name = "points"
	}
	if r.Reset && b.Policy != Sum {
		errs = append(errs, fieldErrorf("reset", "is allowed on SUM boards only; this board has the policy %s", b.Policy))
	}
	if !b.accepts(r.Finish) {
		errs = append(errs, b.statusError(r.Finish))
	}
	// A result without a rank may have no score.
	if lo, hi := b.bounds(); (r.Score < lo || r.Score > hi) && (r.Finish == Ranked || r.Score != 0) {
		errs = append(errs, fieldErrorf(name, "%d is not in the range %d to %d", r.Score, lo, hi))
	}
	if len(r.TieBreakers) > len(b.TieBreakers) {
		errs = append(errs, fieldErrorf("tie_breakers", "%d given, but the board has %d", len(r.TieBreakers), len(b.TieBreakers)))
	}
	for i, v := range r.TieBreakers {
		if v < -int64(MaxScore) || v > int64(MaxScore) {
			errs = append(errs, fieldErrorf(fmt.Sprintf("tie_breakers[%d]", i), "%d is outside ±2^53", v))
		}
	}
	switch achievedAt := r.AchievedAt; {
	case achievedAt.Before(minAchievedAt) || achievedAt.After(maxAchievedAt):
		errs = append(errs, fieldErrorf("achieved_at", "is outside the years 1 to 9999"))
	case achievedAt.After(now.Add(MaxAhead)):
		errs = append(errs, fieldErrorf("achieved_at", "%s is more than %v ahead of the server's clock, %s",
			achievedAt.Format(time.RFC3339), MaxAhead, now.UTC().Format(time.RFC3339)))
	}
	if len(r.Attributes) > MaxAttributes {
		errs = append(errs, fieldErrorf("attributes", "%d given, at most %d are allowed", len(r.Attributes), MaxAttributes))
	}
	for _, k := range namesOf(r.Attributes) {
		errs = append(errs, checkName("attributes", k), checkID("attributes."+k, r.Attributes[k]))
	}
	if m, err := CanonicalMetadata([]byte(r.Metadata)); err != nil {
		errs = append(errs, err)
	} else if m != r.Metadata {
		errs = append(errs, fieldErrorf("metadata", "is not in canonical form"))
	}
	return errors.Join(errs...)
}

func (b *Board) statusError(f Finish) error {
	if len(b.Statuses) == 0 {
		return fieldErrorf("status", "%s is not allowed, because the board has no statuses", f)
	}
	return fieldErrorf("status", "%s must be RANKED or one of the board's statuses, %s", f, strings.Trim(fmt.Sprint(b.Statuses), "[]"))
}

// CheckSubmit returns a [FieldError], joined by [errors.Join], for each reason why a client
// must not submit r to b. [Board.Merge] accepts such results, because the log may contain
// them. If the client omitted AchievedAt or Season, the field must be zero. linked has the
// boards linked to b.
func (b *Board) CheckSubmit(r *MatchResult, linked []*Board) error {
	errs := []error{b.CheckAttributes(r.Attributes, linked)}
	for _, name := range namesOf(r.Attributes) {
		errs = append(errs, checkVisible("attributes."+name, r.Attributes[name]))
	}
	// A correction without a time would belong to the season in which it arrives. If the old
	// result is in another season, it would still count there.
	if r.Revision > 0 && r.AchievedAt.IsZero() && r.Season == "" && b.Season.Kind != None {
		errs = append(errs, fieldErrorf("achieved_at", "this field or season is required with a revision above 0, because the board has seasons; to change some fields of a stored result, use PATCH /v1/boards/{board}/results/{user_id}/{match_id}"))
	}
	for i, tie := range b.TieBreakers {
		if b.StrictSubmits && tie.Order == LowerFirst && i >= len(r.TieBreakers) && r.Finish == Ranked {
			errs = append(errs, fieldErrorf("tie_breakers", "value %d, %q, is required: lower is better, and a missing value would count as 0", i+1, tie.Name))
		}
	}
	return errors.Join(errs...)
}
