package leaderboard

import (
	"encoding/binary"
	"fmt"
	"time"
)

// Tally is an immutable summary of one user's results in one season. It depends on the set
// of results, not on their order. The zero Tally summarizes no results.
type Tally struct {
	results int64   // the number of results that count
	score   Score   // of the deciding result (see [Entry].Match), or a sum of points; unused on decay boards
	ties    []int64 // of the deciding result, or their sums; missing values are 0
	decay   decaySum

	// Of the deciding result:
	match      MatchID
	achievedAt time.Time
	metadata   string
	changed    bool // the result changed the sum or a tie-breaker; unused if Board.AddsUp is false

	// As in Board.talliedAttributes, but attributes of divisions added later may be missing.
	attributes []attributeValue

	overflow int64        // on average and sum boards, how often 2^64 is to be added to score
	kept     []keptResult // on best-k boards, the best results, the best first; with Board.DropWorst, the worst ones
	tallyExtras
}

// tallyExtras are parts of a tally that few boards use.
type tallyExtras struct {
	finish Finish   // of the deciding result, or if Board.AddsUp is true, of the latest result
	latest position // the latest result, if Board.tracksLatest is true
	reset  position // the latest result with Reset, on sum boards
	rest   *Tally   // the sums of the results that are not kept, if Board.DropWorst is set
}

// addScore adds to the sum overflow·2^64 + score.
func (t *Tally) addScore(s Score) {
	before := t.score
	t.score += s
	switch {
	case s > 0 && t.score < before:
		t.overflow++
	case s < 0 && t.score > before:
		t.overflow--
	}
}

// sum returns the score or, if it has overflowed, a number beyond ±MaxScore.
func (t *Tally) sum() Score {
	switch {
	case t.overflow > 0:
		return 1 << 62
	case t.overflow < 0:
		return -1 << 62
	}
	return t.score
}

// attributeValue is an attribute's value in the latest result that has the attribute.
type attributeValue struct {
	value      string // empty if no result has the attribute
	achievedAt time.Time
	match      MatchID
}

// keptResult is one of the K best results of a tally.
type keptResult struct {
	score      Score
	ties       []int64
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

// position is a place in the order of a user's results, or zero.
type position struct {
	achievedAt time.Time
	match      MatchID
}

func positionOf(r *MatchResult) position { return position{r.AchievedAt, r.Match} }

func (p position) isAfter(o position) bool {
	return o.match == "" || isLater(p.achievedAt, p.match, o.achievedAt, o.match)
}

// hides reports whether a later result with Reset hides r.
func (t *Tally) hides(r *MatchResult) bool {
	return t.reset.match != "" && t.reset.isAfter(positionOf(r))
}

const tallyFormat = 1

// AppendBinary implements [encoding.BinaryAppender]. Equal tallies have equal bytes.
func (t *Tally) AppendBinary(dst []byte) ([]byte, error) {
	dst = append(dst, tallyFormat)
	dst = binary.AppendUvarint(dst, uint64(t.results))
	dst = binary.AppendVarint(dst, int64(t.score))
	dst = appendVarints(dst, t.ties)
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
	hasExtras := t.tallyExtras != tallyExtras{}
	if t.overflow != 0 || len(t.kept) > 0 || hasExtras {
		dst = binary.AppendVarint(dst, t.overflow)
	}
	if len(t.kept) > 0 || hasExtras {
		dst = appendKept(dst, t.kept)
	}
	if hasExtras {
		return t.appendExtras(dst)
	}
	return dst, nil
}

func (t *Tally) appendExtras(dst []byte) ([]byte, error) {
	dst = append(dst, byte(t.finish))
	for _, p := range []position{t.latest, t.reset} {
		dst = appendString(dst, string(p.match))
		if p.match != "" {
			dst = binary.AppendVarint(dst, p.achievedAt.UnixMicro())
		}
	}
	if t.rest == nil {
		return dst, nil
	}
	return t.rest.AppendBinary(dst)
}

// UnmarshalBinary is the inverse of AppendBinary. It returns [ErrFormat] if data is not an
// encoded tally.
func (t *Tally) UnmarshalBinary(data []byte) error {
	return t.decode(data, 1)
}

// nested bounds the depth of rest.
func (t *Tally) decode(data []byte, nested int) error {
	d := decoder{b: data}
	if d.byte() != tallyFormat {
		d.fail()
	}
	out := Tally{results: int64(d.uvarint()), score: Score(d.varint()), ties: d.varints(MaxTieBreakers)}
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
		out.attributes = make([]attributeValue, n)
		for i := range out.attributes {
			out.attributes[i] = attributeValue{value: d.string(), achievedAt: time.UnixMicro(d.varint()).UTC(), match: MatchID(d.string())}
		}
	}
	if len(d.b) > 0 {
		out.overflow = d.varint()
		if len(d.b) > 0 {
			out.kept = d.kept()
		} else if out.overflow == 0 {
			d.fail()
		}
		if len(d.b) > 0 {
			d.extras(&out.tallyExtras, nested)
		} else if out.overflow == 0 && len(out.kept) == 0 {
			d.fail()
		}
	}
	if d.bad || len(d.b) != 0 {
		return fmt.Errorf("leaderboard: tally: %w", ErrFormat)
	}
	*t = out
	return nil
}

func appendKept(dst []byte, kept []keptResult) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(kept)))
	for _, r := range kept {
		dst = binary.AppendVarint(dst, int64(r.score))
		dst = appendVarints(dst, r.ties)
		dst = binary.AppendVarint(dst, r.achievedAt.UnixMicro())
		dst = appendString(dst, string(r.match))
	}
	return dst
}

// extras fails if all are zero.
func (d *decoder) extras(out *tallyExtras, nested int) {
	if out.finish = Finish(d.byte()); out.finish < Ranked || out.finish >= TooFew {
		d.fail()
	}
	for _, p := range []*position{&out.latest, &out.reset} {
		if p.match = MatchID(d.string()); p.match != "" {
			p.achievedAt = time.UnixMicro(d.varint()).UTC()
		}
	}
	if len(d.b) > 0 && nested > 0 {
		out.rest = &Tally{}
		if out.rest.decode(d.b, nested-1) != nil {
			d.fail()
		}
		d.b = nil
	}
	if *out == (tallyExtras{}) {
		d.fail()
	}
}

func (d *decoder) kept() []keptResult {
	n := d.count(MaxK + 1)
	if n == 0 {
		return nil
	}
	kept := make([]keptResult, n)
	for i := range kept {
		kept[i] = keptResult{Score(d.varint()), d.varints(MaxTieBreakers), time.UnixMicro(d.varint()).UTC(), MatchID(d.string())}
	}
	return kept
}

func appendVarints(dst []byte, values []int64) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(values)))
	for _, v := range values {
		dst = binary.AppendVarint(dst, v)
	}
	return dst
}

// varints returns nil if there are no values.
func (d *decoder) varints(limit int) (values []int64) {
	n := d.count(limit)
	if n == 0 {
		return nil
	}
	values = make([]int64, n)
	for i := range values {
		values[i] = d.varint()
	}
	return values
}
