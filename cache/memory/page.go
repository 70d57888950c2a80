package memory

import (
	"encoding/binary"
	"math/bits"
	"strings"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// rank returns the ranks of the standing at p.
func (t *table) rank(tr *tree, p place) leaderboard.Ranks {
	lf := t.forest.leaf(p.leaf)
	sum := t.forest.countsBefore(p.leaf) + lf.countsBefore(p.i+1)
	r := leaderboard.Ranks{Ordinal: sum.standings(), Dense: sum.heads()}
	// A head is the first standing with its rank key. The head of this standing's rank
	// key is the last head at or before p.
	if heads := lf.heads & (2<<p.i - 1); heads != 0 {
		r.Competition = r.Ordinal - int64(p.i-(bits.Len64(heads)-1))
	} else {
		r.Competition = t.forest.head(tr, r.Dense) + 1
	}
	return r
}

// position returns the counts of the standings of tr before b.
func (t *table) position(tr *tree, b bound) counts {
	p, before := t.forest.find(tr, b)
	return before + t.forest.leaf(p.leaf).countsBefore(p.i)
}

// instant returns the time that an achieved_at word represents.
func instant(word uint64) time.Time { return time.UnixMicro(unbiased(word)).UTC() }

// writeKey writes the rank key of row i to b.
func (t *table) writeKey(b *strings.Builder, r rows, i int) {
	var word [wordBytes]byte
	for c, left := 0, t.keyBytes; left > 0; c, left = c+1, left-wordBytes {
		binary.BigEndian.PutUint64(word[:], r[c*fan+i])
		b.Write(word[:min(left, wordBytes)])
	}
}

// page is an incomplete answer. table.page copies data from the table while the
// season's lock is held. finish completes the answer after the lock was released.
type page struct {
	first     leaderboard.Ranks // ranks of the first standing
	keyBytes  int
	standings []leaderboard.Standing // only AchievedAt is set
	bytes     strings.Builder        // for each standing: the length of the user id, the id, the rank key
}

// page copies up to n standings from a position on. Positions begin at 0.
func (t *table) page(tr *tree, position int64, n int) *page {
	pg := &page{keyBytes: t.keyBytes}
	n = int(min(int64(n), tr.sum.standings()-position))
	if n <= 0 {
		return pg
	}
	from := t.forest.placeAt(tr, position)
	pg.first = t.rank(tr, from)

	// Records are scattered in memory. This loop reads only the lengths of ids, so the
	// processor can fetch many records concurrently. The loop below, which copies the
	// ids, then finds the records in the processor's caches.
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

// finish returns the standings. Their user ids and keys share one string.
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
			s.RankAfter(&pg.standings[i-1])
		}
	}
	return pg.standings
}
