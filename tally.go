package leaderboard

import (
	"encoding/binary"
	"fmt"
	"iter"
	"time"
)

// Tally is the summary of the results of one user in one scope that an entry
// is made of. It is a pure function of the set of results, whatever their order:
// [Board.Add] extends it by one result, [Board.Count] makes it from all. The
// zero Tally is that of no results. Tallies are values: nothing changes one.
type Tally struct {
	results int64   // how many stand
	score   Score   // the score taken, or the sum of points; unused on decay boards
	ties    []int64 // likewise; as many as the board has, or none
	decay   decaySum

	// The deciding result: the one taken, or the last that changed the sum, or,
	// while none did (all were 0), the first.
	match      MatchID
	achievedAt time.Time
	metadata   string
	changed    bool // the deciding result changed the sum

	attributes []attribute // one for each of the board's divisions, or none
}

// attribute is what the result achieved last said of a division's attribute.
type attribute struct {
	value string // empty: no result said anything
	at    time.Time
	match MatchID
}

// Results counts the results that stand.
func (t *Tally) Results() int64 { return t.results }

// later orders results by event time, then by match id.
func later(at time.Time, match MatchID, thanAt time.Time, thanMatch MatchID) bool {
	if c := at.Compare(thanAt); c != 0 {
		return c > 0
	}
	return match > thanMatch
}

// Add returns t with r counted in. r must be of a match that t does not hold;
// a retracted r changes nothing.
func (b *Board) Add(t Tally, r *MatchResult) Tally {
	if r.Retracted {
		return t
	}
	switch b.Policy {
	case Sum, Decay:
		t = b.addPoints(t, r)
	default:
		if t.results == 0 || b.takes(&t, r) {
			t.score, t.ties = r.Score, r.TieBreakers
			t.match, t.achievedAt, t.metadata = r.Match, r.AchievedAt, r.Metadata
		}
	}
	t.results++
	t.attributes = b.addAttributes(t.attributes, r)
	return t
}

// takes says whether r rather than the result t has taken is the entry.
func (b *Board) takes(t *Tally, r *MatchResult) bool {
	if b.Policy == Latest {
		return later(r.AchievedAt, r.Match, t.achievedAt, t.match)
	}
	x, y := b.scoreKey(r.Score, r.TieBreakers), b.scoreKey(t.score, t.ties)
	if x != y {
		return x < y
	}
	return later(t.achievedAt, t.match, r.AchievedAt, r.Match)
}

func (b *Board) scoreKey(s Score, ties []int64) RankKey {
	return b.rankKey(column(make([]byte, 0, b.RankKeyBytes()), b.Order, int64(s)), ties)
}

func (b *Board) addPoints(t Tally, r *MatchResult) Tally {
	changes := r.Score != 0
	if b.Policy == Decay {
		t.decay = t.decay.add(int64(r.Score), r.AchievedAt.UnixMicro(), b.HalfLife.Microseconds())
	} else {
		t.score += r.Score
	}
	if len(r.TieBreakers) > 0 {
		ties := make([]int64, len(b.TieBreakers))
		copy(ties, t.ties)
		for i, v := range r.TieBreakers {
			ties[i] += v
			changes = changes || v != 0
		}
		t.ties = ties
	}
	var decides bool
	switch {
	case t.results == 0 || changes && !t.changed:
		decides = true
	case changes:
		decides = later(r.AchievedAt, r.Match, t.achievedAt, t.match)
	case !t.changed:
		decides = later(t.achievedAt, t.match, r.AchievedAt, r.Match)
	}
	if decides {
		t.match, t.achievedAt, t.metadata, t.changed = r.Match, r.AchievedAt, r.Metadata, changes
	}
	return t
}

func (b *Board) addAttributes(have []attribute, r *MatchResult) []attribute {
	fresh := false
	for i, name := range b.Divisions {
		value, ok := r.Attributes[name]
		if !ok || len(have) > 0 && have[i].value != "" && !later(r.AchievedAt, r.Match, have[i].at, have[i].match) {
			continue
		}
		if !fresh {
			all := make([]attribute, len(b.Divisions))
			copy(all, have)
			have, fresh = all, true
		}
		have[i] = attribute{value, r.AchievedAt, r.Match}
	}
	return have
}

// Count returns the tally of results, in any order, one a match. It returns the
// first error that results yields.
func (b *Board) Count(results iter.Seq2[MatchResult, error]) (Tally, error) {
	var t Tally
	for r, err := range results {
		if err != nil {
			return Tally{}, err
		}
		t = b.Add(t, &r)
	}
	return t, nil
}

// Entry returns the entry that t makes for a user. Its Hidden and Version are
// the store's to fill in.
func (b *Board) Entry(t *Tally, season SeasonID, user UserID) Entry {
	e := Entry{Scope: Scope{b.ID, season}, User: user}
	if t.results == 0 {
		return e
	}
	if b.Policy == Decay {
		e.Key = b.rankKey(b.decayed(t.decay), t.ties)
	} else {
		e.Key = b.scoreKey(min(max(t.score, -MaxScore), MaxScore), t.ties)
	}
	e.AchievedAt, e.Match, e.Metadata, e.Results = t.achievedAt, t.match, t.metadata, t.results
	for i, a := range t.attributes {
		if a.value != "" {
			e.Divisions = append(e.Divisions, Division{b.Divisions[i], a.value})
		}
	}
	return e
}

const tallyFormat = 1

// AppendBinary appends t as bytes for a store. Equal tallies are equal bytes.
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
		dst = binary.AppendVarint(dst, a.at.UnixMicro())
		dst = appendString(dst, string(a.match))
	}
	return dst, nil
}

// UnmarshalBinary is the inverse of AppendBinary. It returns [ErrFormat] for
// other bytes.
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
	if n := d.count(MaxDivisions); n > 0 {
		out.attributes = make([]attribute, n)
		for i := range out.attributes {
			out.attributes[i] = attribute{value: d.string(), at: time.UnixMicro(d.varint()).UTC(), match: MatchID(d.string())}
		}
	}
	if d.bad || len(d.b) != 0 {
		return fmt.Errorf("leaderboard: tally: %w", ErrFormat)
	}
	*t = out
	return nil
}
