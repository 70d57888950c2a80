package memory

import (
	"encoding/binary"
	"math/bits"
	"strings"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// ranksAt returns the ranks of the standing at p. before has the counts (see tree.go) of all leaves
// to the left.
func (t *table) ranksAt(tr *tree, p place, before counts) leaderboard.Ranks {
	lf := t.forest.leaf(p.leaf)
	sum := before + lf.countsBefore(p.i+1)
	r := leaderboard.Ranks{Ordinal: sum.standings(), Dense: sum.heads()}
	// A head is the first standing with its rank key.
	if heads := lf.heads & (2<<p.i - 1); heads != 0 {
		r.Competition = r.Ordinal - int64(p.i-(bits.Len64(heads)-1))
	} else {
		r.Competition = t.forest.countBeforeHead(tr, r.Dense) + 1
	}
	return r
}

func (t *table) countsBefore(tr *tree, b bound) counts {
	p, before := t.forest.find(tr, b)
	return before + t.forest.leaf(p.leaf).countsBefore(p.i)
}

func instant(word uint64) time.Time { return time.UnixMicro(unbiased(word)).UTC() }

func (t *table) writeKey(b *strings.Builder, r rows, i int) {
	var word [wordBytes]byte
	for c, remaining := 0, t.keyBytes; remaining > 0; c, remaining = c+1, remaining-wordBytes {
		binary.BigEndian.PutUint64(word[:], r[c*fan+i])
		b.Write(word[:min(remaining, wordBytes)])
	}
}

// rawPage is an answer that finish completes without the season's lock.
type rawPage struct {
	first     leaderboard.Ranks // ranks of the first standing
	keyBytes  int
	standings []leaderboard.Standing // only AchievedAt is set
	bytes     strings.Builder        // for each standing: the length of the user id, the id, the rank key
}

type section struct {
	start  place
	before counts // counts of all leaves to the left of start's leaf
	n      int
}

// sectionFrom returns at most n standings, beginning at p. p may be the end of a leaf. before has
// the counts of all leaves to the left.
func (t *table) sectionFrom(tr *tree, p place, before counts, n int) section {
	if lf := t.forest.leaf(p.leaf); p.i == int(lf.n) {
		p, before = place{leaf: lf.next}, before+lf.countsBefore(p.i)
	}
	position := before.standings() + int64(p.i)
	return section{p, before, int(max(min(int64(n), tr.sum.standings()-position), 0))}
}

// sectionAt returns at most n standings from a position, which counts from 0.
func (t *table) sectionAt(tr *tree, position int64, n int) section {
	if position >= tr.sum.standings() {
		return section{}
	}
	p, before := t.forest.placeAt(tr, position)
	return t.sectionFrom(tr, p, before, n)
}

func (t *table) page(tr *tree, s section) *rawPage {
	pg := &rawPage{keyBytes: t.keyBytes}
	start, n := s.start, s.n
	if n == 0 {
		return pg
	}
	pg.first = t.ranksAt(tr, start, s.before)

	// This loop reads only the lengths of ids, so the processor fetches many records concurrently.
	size := n * (1 + t.keyBytes)
	for p, remaining := start, n; remaining > 0; {
		lf := t.forest.leaf(p.leaf)
		end := min(p.i+remaining, int(lf.n))
		for _, ref := range lf.refs[p.i:end] {
			size += t.users.idBytes(ref)
		}
		p, remaining = place{leaf: lf.next}, remaining-(end-p.i)
	}

	pg.bytes.Grow(size)
	pg.standings = make([]leaderboard.Standing, n)
	for p, i := start, 0; i < n; {
		lf, rows := t.forest.leaf(p.leaf), t.forest.leafRows(p.leaf)
		for ; p.i < int(lf.n) && i < n; p.i, i = p.i+1, i+1 {
			id := t.users.id(lf.refs[p.i])
			pg.bytes.WriteByte(byte(len(id)))
			pg.bytes.Write(id)
			t.writeKey(&pg.bytes, rows, p.i)
			pg.standings[i].AchievedAt = instant(rows.achieved(p.i))
		}
		p = place{leaf: lf.next}
	}
	return pg
}

// finish returns the standings. Their user ids and keys share one string.
func (pg *rawPage) finish() []leaderboard.Standing {
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
