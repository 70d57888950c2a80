package memory

import (
	"encoding/binary"
	"math/bits"
	"strings"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// This file makes answers of what a table holds.

// rank returns the ranks of the standing at p.
func (t *table) rank(tr *tree, p place) leaderboard.Ranks {
	lf := t.forest.leaf(p.leaf)
	sum := t.forest.before(p.leaf) + lf.within(p.i+1)
	r := leaderboard.Ranks{Ordinal: sum.standings(), Dense: sum.heads()}
	// The first standing of the rank key is the last head up to here.
	if heads := lf.heads & (2<<p.i - 1); heads != 0 {
		r.Competition = r.Ordinal - int64(p.i-(bits.Len64(heads)-1))
	} else {
		r.Competition = t.forest.head(tr, r.Dense) + 1
	}
	return r
}

// position returns how many standings of tr are before b.
func (t *table) position(tr *tree, b bound) tally {
	p, before := t.forest.find(tr, b)
	return before + t.forest.leaf(p.leaf).within(p.i)
}

// instant returns the time of an achieved_at word.
func instant(word uint64) time.Time { return time.UnixMicro(unbiased(word)).UTC() }

// writeKey writes the rank key of row i.
func (t *table) writeKey(b *strings.Builder, r rows, i int) {
	var word [wordBytes]byte
	for c, left := 0, t.keyBytes; left > 0; c, left = c+1, left-wordBytes {
		binary.BigEndian.PutUint64(word[:], r[c*fan+i])
		b.Write(word[:min(left, wordBytes)])
	}
}

// page is an answer in the making. The part that needs the table is done first,
// so that the table is held no longer.
type page struct {
	first     leaderboard.Ranks
	keyBytes  int
	standings []leaderboard.Standing // their times only
	bytes     strings.Builder        // of each: the length of the user id, the id, the rank key
}

// page reads up to n standings from a position on, from 0.
func (t *table) page(tr *tree, position int64, n int) *page {
	pg := &page{keyBytes: t.keyBytes}
	n = int(min(int64(n), tr.sum.standings()-position))
	if n <= 0 {
		return pg
	}
	from := t.forest.at(tr, position)
	pg.first = t.rank(tr, from)

	// Records lie anywhere in memory. Reading just the lengths of ids asks for
	// many records at once; by the time they are copied they are near.
	size := n * (1 + t.keyBytes)
	for p, left := from, n; left > 0; {
		lf := t.forest.leaf(p.leaf)
		end := min(p.i+left, int(lf.n))
		for _, ref := range lf.refs[p.i:end] {
			size += t.users.idBytes(ref)
		}
		p, left = place{leaf: lf.next}, left-(end-p.i)
	}

	pg.bytes.Grow(size)
	pg.standings = make([]leaderboard.Standing, n)
	for p, done := from, 0; done < n; {
		lf, rows := t.forest.leaf(p.leaf), t.forest.leafRows(p.leaf)
		for ; p.i < int(lf.n) && done < n; p.i, done = p.i+1, done+1 {
			id := t.users.id(lf.refs[p.i])
			pg.bytes.WriteByte(byte(len(id)))
			pg.bytes.Write(id)
			t.writeKey(&pg.bytes, rows, p.i)
			pg.standings[done].AchievedAt = instant(rows.achieved(p.i))
		}
		p = place{leaf: lf.next}
	}
	return pg
}

// finish returns the standings. The users and keys of all are one string.
func (pg *page) finish() []leaderboard.Standing {
	rest := pg.bytes.String()
	for i := range pg.standings {
		s := &pg.standings[i]
		n := 1 + int(rest[0])
		s.User, s.Key = leaderboard.UserID(rest[1:n]), leaderboard.RankKey(rest[n:n+pg.keyBytes])
		rest = rest[n+pg.keyBytes:]
		if i == 0 {
			s.Ranks = pg.first
		} else {
			s.Succeed(&pg.standings[i-1])
		}
	}
	return pg.standings
}
