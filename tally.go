package leaderboard

import (
	"encoding/binary"
	"fmt"
	"iter"
	"time"
)

// Tally is an immutable summary of one user's results in one season. It depends on the set
// of results, not on their order. The zero Tally summarizes no results.
type Tally struct {
	results int64   // the number of results that count
	score   Score   // of the deciding result (see [Entry].Match), or the sum of points; unused on decay boards
	ties    []int64 // of the deciding result, or their sums; missing values are 0
	decay   decaySum

	// Of the deciding result:
	match      MatchID
	achievedAt time.Time
	metadata   string
	changed    bool // the result changed the sum or a tie-breaker; unused if Board.AddsUp is false

	// As in Board.talliedAttributes, but attributes of divisions added later may be missing.
	attributes []attribute
}

// attribute is an attribute's value in the latest result that has the attribute.
type attribute struct {
	value      string // empty if no result has the attribute
	achievedAt time.Time
	match      MatchID
}

// isLater orders results by event time, then by match id.
func isLater(achievedAt time.Time, match MatchID, otherAt time.Time, otherMatch MatchID) bool {
	if c := achievedAt.Compare(otherAt); c != 0 {
		return c > 0
	}
	return match > otherMatch
}

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

func (b *Board) addAttributes(values []attribute, r *MatchResult) []attribute {
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
			all := make([]attribute, len(attributes))
			copy(all, values)
			values, copied = all, true
		}
		values[i] = attribute{value, r.AchievedAt, r.Match}
	}
	return values
}

// Count returns the tally of results, or their first error. Results may have any order, but
// at most one result per match.
func (b *Board) Count(results iter.Seq2[MatchResult, error]) (Tally, error) {
	var t Tally
	var r MatchResult // one allocation, not one per result
	for next, err := range results {
		if err != nil {
			return Tally{}, err
		}
		r = next
		t = b.Add(t, &r)
	}
	return t, nil
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
	e.AchievedAt, e.Match, e.Metadata, e.Results = t.achievedAt, t.match, t.metadata, t.results
	e.Divisions = b.divisionsOf(t.attributes)
	return e
}

const tallyFormat = 1

// AppendBinary implements [encoding.BinaryAppender]. Equal tallies have equal bytes.
func (t *Tally) AppendBinary(dst []byte) ([]byte, error) {
	dst = append(dst, tallyFormat)
	dst = binary.AppendUvarint(dst, uint64(t.results))
	dst = binary.AppendVarint(dst, int64(t.score))
	dst = binary.AppendUvarint(dst, uint64(len(t.ties)))
	for _, v := range t.ties {
		dst = binary.AppendVarint(dst, v)
	}
	dst = appendString(dst, string(t.decay.appendBinary(nil)))
	dst = appendString(dst, string(t.match))
	dst = binary.AppendVarint(dst, t.achievedAt.UnixMicro())
	dst = appendString(dst, t.metadata)
	if t.changed {
		dst = append(dst, 1)
	} else {
		dst = append(dst, 0)
	}
	dst = binary.AppendUvarint(dst, uint64(len(t.attributes)))
	for _, a := range t.attributes {
		dst = appendString(dst, a.value)
		dst = binary.AppendVarint(dst, a.achievedAt.UnixMicro())
		dst = appendString(dst, string(a.match))
	}
	return dst, nil
}

// UnmarshalBinary is the inverse of AppendBinary. It returns [ErrFormat] if data is not an
// encoded tally.
func (t *Tally) UnmarshalBinary(data []byte) error {
	d := decoder{b: data}
	if d.byte() != tallyFormat {
		d.fail()
	}
	out := Tally{results: int64(d.uvarint()), score: Score(d.varint())}
	if n := d.count(MaxTieBreakers); n > 0 {
		out.ties = make([]int64, n)
		for i := range out.ties {
			out.ties[i] = d.varint()
		}
	}
	decay, err := decodeDecaySum([]byte(d.string()))
	if err != nil {
		d.fail()
	}
	out.decay = decay
	out.match = MatchID(d.string())
	out.achievedAt = time.UnixMicro(d.varint()).UTC()
	out.metadata = d.string()
	out.changed = d.byte() == 1
	if n := d.count((MaxDivisionChanges + 1) * MaxDivisions * MaxCrossed); n > 0 {
		out.attributes = make([]attribute, n)
		for i := range out.attributes {
			out.attributes[i] = attribute{value: d.string(), achievedAt: time.UnixMicro(d.varint()).UTC(), match: MatchID(d.string())}
		}
	}
	if d.bad || len(d.b) != 0 {
		return fmt.Errorf("leaderboard: tally: %w", ErrFormat)
	}
	*t = out
	return nil
}
