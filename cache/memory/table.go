package memory

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

const (
	maxID         = leaderboard.MaxIDBytes
	maxAttributes = leaderboard.MaxDivisions
	wordBytes     = 8
	// maxWords bounds the sort words of an entry: a decay board's key of less
	// than 5 words, a word for each tie-breaker, and achieved_at.
	maxWords = 5 + leaderboard.MaxTieBreakers + 1
)

// layout is what a board's keys and entries are made of.
type layout struct {
	keyBytes   int
	attributes []string
}

func layoutOf(b *leaderboard.Board) layout {
	return layout{keyBytes: b.RankKeyBytes(), attributes: slices.Clone(b.Divisions)}
}

// table holds the standings of a scope. It is not safe for concurrent use.
type table struct {
	layout
	alloc     allocator
	users     users
	dict      dict
	forest    forest
	ladders   []tree // 0 is the overall one
	spare     []uint32
	divisions map[leaderboard.Division]uint32 // into ladders
	removed   queue
	standing  int // users who stand in the overall ladder
	asOf      time.Time
}

func newTable(l layout) *table {
	words := (l.keyBytes+wordBytes-1)/wordBytes + 1
	t := &table{layout: l, divisions: map[leaderboard.Division]uint32{}}
	t.ladders = []tree{{}}
	t.users, t.dict = newUsers(len(l.attributes), &t.alloc), newDict(&t.alloc)
	t.forest = newForest(words, &t.users, &t.dict, &t.alloc)
	return t
}

// words appends the sort words of a standing: its rank key, filled up with
// zeros, and achieved_at in microseconds, such that they compare as sort keys do.
func (t *table) words(dst []uint64, key string, achieved uint64) []uint64 {
	for len(key) >= wordBytes {
		dst = append(dst, binary.BigEndian.Uint64([]byte(key[:wordBytes])))
		key = key[wordBytes:]
	}
	if len(key) > 0 {
		var last [wordBytes]byte
		copy(last[:], key)
		dst = append(dst, binary.BigEndian.Uint64(last[:]))
	}
	for len(dst) < t.forest.words-1 { // a key's beginning
		dst = append(dst, 0)
	}
	return append(dst, achieved)
}

// biased maps int64 to uint64 so that unsigned order is signed order.
func biased(v int64) uint64 { return uint64(v) ^ 1<<63 }

func unbiased(v uint64) int64 { return int64(v ^ 1<<63) }

// accepts returns an error if e is none of the layout's.
func (l *layout) accepts(e *leaderboard.Entry) error {
	if len(e.User) == 0 || len(e.User) > maxID {
		return fmt.Errorf("memory: entry: user id of %d bytes: %w", len(e.User), leaderboard.ErrFormat)
	}
	if len(e.Key) != l.keyBytes && e.Key != "" {
		return fmt.Errorf("memory: entry of %q: rank key of %d bytes, not %d: %w", e.User, len(e.Key), l.keyBytes, leaderboard.ErrFormat)
	}
	for i, d := range e.Divisions {
		if !slices.Contains(l.attributes, d.Attribute) {
			return fmt.Errorf("memory: entry of %q: the board has no division %q: %w", e.User, d, leaderboard.ErrFormat)
		}
		if slices.ContainsFunc(e.Divisions[:i], func(o leaderboard.Division) bool { return o.Attribute == d.Attribute }) {
			return fmt.Errorf("memory: entry of %q: two divisions of one attribute, %q: %w", e.User, d, leaderboard.ErrFormat)
		}
	}
	return nil
}

// apply moves a user to where e says, unless the table knows of a version as
// great as e's. If it returns an error, nothing has changed.
func (t *table) apply(e *leaderboard.Entry) error {
	if err := t.accepts(e); err != nil {
		return err
	}
	hash := t.dict.hash(string(e.User))
	ref, overall := t.known(hash, string(e.User))
	if ref == 0 {
		var err error
		if ref, err = t.users.add(string(e.User)); err != nil {
			return fmt.Errorf("memory: entry of %q: %w", e.User, err)
		}
		t.dict.add(hash, ref|notStanding)
	} else if e.Version <= t.users.version(ref) {
		return nil
	}
	t.users.setVersion(ref, e.Version)
	var scratch [maxWords]uint64
	var words []uint64
	if e.Ranked() {
		words = t.words(scratch[:0], string(e.Key), biased(e.AchievedAt.UnixMicro()))
	}

	if overall.leaf != 0 {
		t.forest.remove(&t.ladders[0], overall)
		t.standing--
	}
	for a := range t.attributes {
		if n := t.users.field(ref, ladderField(a)); n != 0 {
			leaf := t.users.field(ref, ladderField(a)+4)
			t.forest.remove(&t.ladders[n], place{leaf, t.forest.leaf(leaf).index(ref)})
			t.users.setField(ref, ladderField(a), 0)
			t.dropLadder(n)
		}
	}
	if words == nil {
		t.forget(ref, e.Version)
		return nil
	}
	t.forest.insert(&t.ladders[0], words, user{hash, ref}, string(e.User))
	t.standing++
	for _, d := range e.Divisions {
		a := slices.Index(t.attributes, d.Attribute)
		n := t.ladder(d, a)
		t.forest.insert(&t.ladders[n], words, user{hash, ref}, string(e.User))
		t.users.setField(ref, ladderField(a), n)
	}
	return nil
}

// known returns a user's ref and, unless the leaf is 0, place in the overall
// ladder. The ref is 0 if the user is not known.
func (t *table) known(hash uint32, id string) (ref uint32, overall place) {
	for c, at := t.dict.first(hash); ; at++ {
		cell := c.get(at)
		if cell == 0 || uint32(cell>>32) != hash {
			return 0, place{}
		}
		target := uint32(cell)
		if target&notStanding != 0 {
			if ref := target &^ notStanding; string(t.users.id(ref)) == id {
				return ref, place{}
			}
			continue
		}
		lf := t.forest.leaf(target)
		for i, u := range lf.users[:lf.n] {
			if u.hash == hash && string(t.users.id(u.ref)) == id {
				return u.ref, place{target, i}
			}
		}
	}
}

// ladder returns the number of a division's ladder, made if there is none.
func (t *table) ladder(d leaderboard.Division, attribute int) uint32 {
	if n, ok := t.divisions[d]; ok {
		return n
	}
	var n uint32
	if free := len(t.spare); free > 0 {
		n = t.spare[free-1]
		t.spare = t.spare[:free-1]
	} else {
		n = uint32(len(t.ladders))
		t.ladders = append(t.ladders, tree{})
	}
	own := leaderboard.Division{Attribute: t.attributes[attribute], Value: strings.Clone(d.Value)}
	t.ladders[n] = tree{field: ladderField(attribute) + 4, division: own}
	t.divisions[own] = n
	return n
}

// dropLadder forgets a division's ladder if nobody stands in it.
func (t *table) dropLadder(n uint32) {
	if t.ladders[n].root == 0 {
		delete(t.divisions, t.ladders[n].division)
		t.ladders[n] = tree{}
		t.spare = append(t.spare, n)
	}
}

// find returns the tree of a division, nil if nobody stands in it.
func (t *table) find(d leaderboard.Division) *tree {
	n, ok := t.divisions[d]
	if !ok && !d.Overall() || t.ladders[n].root == 0 {
		return nil
	}
	return &t.ladders[n]
}

// rank returns the standing of the user at p, without its user and key.
func (t *table) rank(tr *tree, p place) leaderboard.Ranks {
	lf := t.forest.leaf(p.leaf)
	sum := t.forest.before(p.leaf) + lf.within(p.i+1)
	r := leaderboard.Ranks{Ordinal: sum.standings(), Dense: sum.heads()}
	// The first standing of the rank key is the last head up to here.
	for i := p.i; i >= 0; i-- {
		if lf.heads>>i&1 != 0 {
			r.Competition = r.Ordinal - int64(p.i-i)
			return r
		}
	}
	r.Competition = t.forest.head(tr, r.Dense) + 1
	return r
}

// standings makes a page: n standings from p on, the first of which has the
// given ranks. The bytes of all users and keys are one string.
type page struct {
	keyBytes  int
	standings []leaderboard.Standing
	bytes     strings.Builder
}

// add appends the standing at p.
func (t *table) addTo(pg *page, p place) {
	id := t.users.id(t.forest.leaf(p.leaf).users[p.i].ref)
	rows := t.forest.leafRows(p.leaf)
	pg.bytes.WriteByte(byte(len(id)))
	pg.bytes.Write(id)
	t.writeKey(&pg.bytes, rows, p.i)
	pg.standings = append(pg.standings, leaderboard.Standing{AchievedAt: instant(rows.achieved(p.i))})
}

// writeKey writes the rank key of row i.
func (t *table) writeKey(b *strings.Builder, r rows, i int) {
	var word [wordBytes]byte
	for c, left := 0, t.keyBytes; left > 0; c, left = c+1, left-wordBytes {
		binary.BigEndian.PutUint64(word[:], r[c*fan+i])
		b.Write(word[:min(left, wordBytes)])
	}
}

// instant returns the time of an achieved_at word.
func instant(word uint64) time.Time { return time.UnixMicro(unbiased(word)).UTC() }

// finish returns the standings with ranks, given those of the first.
func (pg *page) finish(first leaderboard.Ranks) []leaderboard.Standing {
	rest := pg.bytes.String()
	for i := range pg.standings {
		s := &pg.standings[i]
		n := 1 + int(rest[0])
		s.User, s.Key = leaderboard.UserID(rest[1:n]), leaderboard.RankKey(rest[n:n+pg.keyBytes])
		rest = rest[n+pg.keyBytes:]
		if i == 0 {
			s.Ranks = first
		} else {
			s.Succeed(&pg.standings[i-1])
		}
	}
	return pg.standings
}

// page reads up to n standings from a position on, from 0. finish makes the
// answer of it.
func (t *table) page(tr *tree, position int64, n int) (*page, leaderboard.Ranks) {
	pg := &page{keyBytes: t.keyBytes}
	n = int(min(int64(n), tr.sum.standings()-position))
	if n <= 0 {
		return pg, leaderboard.Ranks{}
	}
	p := t.forest.at(tr, position)
	first := t.rank(tr, p)
	pg.standings = make([]leaderboard.Standing, 0, n)
	pg.bytes.Grow(n * (t.keyBytes + 24))
	for range n {
		p, _ = t.forest.settle(p)
		t.addTo(pg, p)
		p.i++
	}
	return pg, first
}

// position returns how many standings of tr are before b.
func (t *table) position(tr *tree, b bound) tally {
	p, before := t.forest.find(tr, b)
	return before + t.forest.leaf(p.leaf).within(p.i)
}
