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
	// maxWords is for the sort words of a decay board: score (5), tie-breakers and achieved_at.
	maxWords = 5 + leaderboard.MaxTieBreakers + 1
)

type layout struct {
	keyBytes   int
	attributes []string
}

func layoutOf(b *leaderboard.Board) layout {
	return layout{keyBytes: b.RankKeyBytes(), attributes: slices.Clone(b.Divisions)}
}

// table holds the standings of a season. Concurrent reads are safe. A change must run alone.
type table struct {
	layout
	alloc       allocator
	users       users
	dict        dict
	forest      forest
	ladders     []tree                          // ladders[0] is the overall ladder
	spare       []uint32                        // unused indexes of ladders
	divisions   map[leaderboard.Division]uint32 // indexes of ladders
	removals    queue
	rankedUsers int // number of users in the overall ladder
	asOf        time.Time
}

func newTable(l layout) *table {
	words := (l.keyBytes+wordBytes-1)/wordBytes + 1
	t := &table{layout: l, divisions: map[leaderboard.Division]uint32{}}
	t.ladders = []tree{{}}
	t.users, t.dict = newUsers(len(l.attributes), &t.alloc), newDict(&t.alloc)
	t.forest = newForest(words, &t.users, &t.dict, &t.alloc)
	return t
}

func (t *table) sortWords(dst []uint64, e *leaderboard.Entry) []uint64 {
	return t.words(dst, string(e.Key), biased(e.AchievedAt.UnixMicro()))
}

// words appends the sort words: the rank key, padded with zeros, and achieved_at in microseconds.
// Entries sorted by sort words, then by user id, are in standing order.
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
	for len(dst) < t.forest.words-1 { // key is a prefix of a rank key
		dst = append(dst, 0)
	}
	return append(dst, achieved)
}

// biased maps int64 to uint64 and keeps the order.
func biased(v int64) uint64 { return uint64(v) ^ 1<<63 }

func unbiased(v uint64) int64 { return int64(v ^ 1<<63) }

func (l *layout) validate(e *leaderboard.Entry) error {
	if len(e.User) == 0 || len(e.User) > maxID {
		return fmt.Errorf("memory: entry: user id of %d bytes: %w", len(e.User), leaderboard.ErrFormat)
	}
	if len(e.Key) != l.keyBytes && e.Key != "" {
		return fmt.Errorf("memory: entry of %q: rank key of %d bytes, not %d: %w", e.User, len(e.Key), l.keyBytes, leaderboard.ErrFormat)
	}
	for i, d := range e.Divisions {
		if slices.ContainsFunc(e.Divisions[:i], func(o leaderboard.Division) bool { return o.Attribute == d.Attribute }) {
			return fmt.Errorf("memory: entry of %q: two divisions of one attribute, %q: %w", e.User, d, leaderboard.ErrFormat)
		}
	}
	return nil
}

// applyChunk applies at most updateChunk entries. It stops at the first error.
func (t *table) applyChunk(entries []leaderboard.Entry) error {
	t.warm(entries)
	for i := range entries {
		if err := t.apply(&entries[i]); err != nil {
			return err
		}
	}
	return nil
}

// apply moves a user to the standing of e, unless the table has an equal or greater version of the
// user. After an error, the table is unchanged.
func (t *table) apply(e *leaderboard.Entry) error {
	if err := t.validate(e); err != nil {
		return err
	}
	hash := t.dict.hash(string(e.User))
	ref, leaf := t.lookUp(hash, string(e.User))
	if ref == 0 {
		var err error
		if ref, err = t.users.add(string(e.User)); err != nil {
			return fmt.Errorf("memory: entry of %q: %w", e.User, err)
		}
		t.dict.add(hash, ref)
	} else if e.Version <= t.users.version(ref) {
		return nil
	}
	t.users.setVersion(ref, e.Version)
	var scratch [maxWords]uint64
	var words []uint64
	if e.Ranked() {
		words = t.sortWords(scratch[:0], e)
	}

	if leaf != 0 {
		t.forest.remove(&t.ladders[0], leaf, ref)
		t.rankedUsers--
	}
	for a := range t.attributes {
		if n := t.users.field(ref, ladderField(a)); n != 0 {
			leaf := t.users.field(ref, ladderField(a)+4)
			t.forest.remove(&t.ladders[n], leaf, ref)
			t.users.setField(ref, ladderField(a), 0)
			t.dropLadder(n)
		}
	}
	if words == nil {
		t.dict.setLeaf(hash, ref, 0)
		t.forget(ref, e.Version)
		return nil
	}
	t.forest.insert(&t.ladders[0], words, ref, string(e.User))
	t.rankedUsers++
	for _, d := range e.Divisions {
		a := slices.Index(t.attributes, d.Attribute)
		if a < 0 {
			continue // the board got this division after the Rebuild
		}
		n := t.ladder(d, a)
		t.forest.insert(&t.ladders[n], words, ref, string(e.User))
		t.users.setField(ref, ladderField(a), n)
	}
	return nil
}

// lookUp returns the location of a user's record and the user's leaf in the overall ladder. Each
// may be 0.
func (t *table) lookUp(hash uint32, id string) (ref, leaf uint32) {
	for c, i := t.dict.firstCell(hash); ; i++ {
		cell := c.get(i)
		if cell.ref == 0 || cell.hash != hash {
			return 0, 0
		}
		if string(t.users.id(cell.ref)) == id {
			return cell.ref, cell.leaf
		}
	}
}

// ladder returns the index of a division's ladder, which it creates if needed.
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
	division := leaderboard.Division{Attribute: t.attributes[attribute], Value: strings.Clone(d.Value)}
	t.ladders[n] = tree{field: ladderField(attribute) + 4, division: division}
	t.divisions[division] = n
	return n
}

func (t *table) dropLadder(n uint32) {
	if t.ladders[n].root == 0 {
		delete(t.divisions, t.ladders[n].division)
		t.ladders[n] = tree{}
		t.spare = append(t.spare, n)
	}
}

// treeOf returns the tree of a division, or nil if the ladder is empty.
func (t *table) treeOf(d leaderboard.Division) *tree {
	n, ok := t.divisions[d]
	if !ok && !d.Overall() || t.ladders[n].root == 0 {
		return nil
	}
	return &t.ladders[n]
}
