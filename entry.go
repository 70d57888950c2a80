package leaderboard

import (
	"iter"
	"slices"
	"strings"
	"time"
)

// Entry is one user's score in one season, without ranks.
type Entry struct {
	SeasonKey
	User UserID
	// Key is empty if no result of the user counts.
	Key RankKey
	// AchievedAt orders the entries with equal rank keys: it is the event time of the deciding result, as
	// [Board.TieTime] changes it. [Board.AchievedAt] returns the event time.
	AchievedAt time.Time
	// Match is the match of the deciding result. If Board.AddsUp is false, this is the
	// result whose score is the entry's score. If AddsUp is true, it is the last result
	// that changed the score or a sum of tie-breakers, or else the first result. On best-k boards,
	// it is the best result or, with DropWorst, the latest; but AchievedAt follows from all that count.
	Match     MatchID
	Metadata  string
	Divisions []Division
	Results   int64
	Hidden    bool // by a ban
	// Version grows with every change of the entry, and may grow without a change. Entries
	// of one season and user with equal versions are equal.
	Version uint64
}

// Ranked reports whether e has a place in its ladders. [Board.FinishOf] tells whether this place is a rank.
func (e *Entry) Ranked() bool { return e.Key != "" && !e.Hidden }

// SortKey returns e's sort key.
func (e *Entry) SortKey() SortKey { return MakeSortKey(e.Key, e.AchievedAt, e.User) }

// Add returns t extended by r, if b counts r. t must not include a result of r's match yet.
func (b *Board) Add(t Tally, r *MatchResult) Tally {
	if !b.Counts(r) {
		return t
	}
	t = b.arithmetic().add(b, t, r)
	t.results++
	t.attributes = b.addAttributes(t.attributes, r)
	return t
}

func (b *Board) addAttributes(values []attributeValue, r *MatchResult) []attributeValue {
	if len(r.Attributes) == 0 {
		return values
	}
	copied, attributes := false, b.talliedAttributes()
	for i, name := range attributes {
		value, ok := r.Attributes[name]
		if !ok || i < len(values) && values[i].value != "" && !isLater(r.AchievedAt, r.Match, values[i].achievedAt, values[i].match) {
			continue
		}
		if !copied { // a Tally is immutable
			all := make([]attributeValue, len(attributes))
			copy(all, values)
			values, copied = all, true
		}
		values[i] = attributeValue{value, r.AchievedAt, r.Match}
	}
	return values
}

// Count returns the tally of results, or their first error. Results may have any order, but
// at most one result per match. If a result has Reset, Count reads the results twice.
func (b *Board) Count(results iter.Seq2[MatchResult, error]) (Tally, error) {
	t, reset, err := b.countFrom(position{}, results)
	if err == nil && reset.match != "" {
		t, _, err = b.countFrom(reset, results)
	}
	return t, err
}

// countFrom counts only the points of results from a position on. It also returns the latest result with Reset.
func (b *Board) countFrom(from position, results iter.Seq2[MatchResult, error]) (t Tally, reset position, err error) {
	t.reset = from
	var r MatchResult // one allocation, not one per result
	for next, err := range results {
		if err != nil {
			return Tally{}, reset, err
		}
		r = next
		t = b.Add(t, &r)
		if b.resets(&r) && b.Counts(&r) && positionOf(&r).isAfter(reset) {
			reset = positionOf(&r)
		}
	}
	return t, reset, nil
}

// RankKey returns the rank key of a user with the tally t, or "" if no result counts.
func (b *Board) RankKey(t *Tally) RankKey {
	if t.results == 0 {
		return ""
	}
	return b.rankKey(*t)
}

// Entry returns the entry of a user with the tally t. The store must set Hidden and Version.
func (b *Board) Entry(t *Tally, season SeasonID, user UserID) Entry {
	e := Entry{SeasonKey: SeasonKey{b.ID, season}, User: user, Key: b.RankKey(t)}
	if e.Key == "" {
		return e
	}
	e.AchievedAt, e.Match, e.Metadata, e.Results = b.TieTime(t.achievedAt), t.match, t.metadata, t.results
	e.Divisions = b.divisionsOf(t.attributes)
	return e
}

// values are a user's values of b.talliedAttributes. The last values may be missing.
// Missing values are empty.
func (b *Board) divisionsOf(values []attributeValue) []Division {
	if len(values) == 0 {
		return nil
	}
	attributes := b.talliedAttributes()
	value := func(name string) string {
		if i := slices.Index(attributes, name); i < len(values) {
			return values[i].value
		}
		return ""
	}
	var all []Division
	for _, division := range b.Divisions {
		if !strings.Contains(division, crossing) {
			if v := value(division); v != "" {
				all = append(all, Division{division, v})
			}
			continue
		}
		var parts []Division
		for _, name := range attributesIn(division) {
			if v := value(name); v != "" {
				parts = append(parts, Division{name, v})
			}
		}
		if d := Cross(parts...); d.Attribute == division {
			all = append(all, d)
		}
	}
	return all
}

// AssignRanks yields the standings of entries, which must be in standing order from the
// top of the ladder. If entries yields an error, AssignRanks yields this error and stops.
func AssignRanks(entries iter.Seq2[Entry, error]) iter.Seq2[Standing, error] {
	return func(yield func(Standing, error) bool) {
		var previous Standing
		for e, err := range entries {
			if err != nil {
				yield(Standing{}, err)
				return
			}
			s := Standing{User: e.User, Key: e.Key, AchievedAt: e.AchievedAt}
			s.RankAfter(&previous)
			if !yield(s, nil) {
				return
			}
			previous = s
		}
	}
}
