package memory

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/bits"
	"strings"

	"github.com/open-leaderboard/leaderboard"
)

// read calls f under the season's read lock. f gets a nil tree if the ladder is empty. Errors:
// [leaderboard.ErrRankUnavailable].
func (x *Index) read(l leaderboard.Ladder, f func(t *table, tr *tree) error) (leaderboard.View, error) {
	si := x.season(l.SeasonKey)
	if si == nil {
		return leaderboard.View{}, errNotLoaded(l.SeasonKey)
	}
	si.mu.RLock()
	defer si.mu.RUnlock()
	t := si.table
	if t == nil {
		return leaderboard.View{}, errNotLoaded(l.SeasonKey)
	}
	v := leaderboard.View{AsOf: t.asOf}
	tr := t.treeOf(l.Division)
	if tr != nil {
		v.Size = tr.sum.standings()
	}
	return v, f(t, tr)
}

func errNotLoaded(s leaderboard.SeasonKey) error {
	return fmt.Errorf("memory: season %q of board %q is not loaded: %w", s.Season, s.Board, leaderboard.ErrRankUnavailable)
}

// standingsPiece is the number of users that Standings looks up under one lock.
const standingsPiece = 8 * updateChunk

// Standings implements [leaderboard.Ranker]. The view describes the moment when Standings looked up
// the first standingsPiece users.
func (x *Index) Standings(ctx context.Context, l leaderboard.Ladder, users []leaderboard.UserID, _ ...leaderboard.Method) ([]leaderboard.Standing, leaderboard.View, error) {
	out := make([]leaderboard.Standing, len(users))
	var first leaderboard.View
	for from := 0; from == 0 || from < len(users); from += standingsPiece {
		to := min(from+standingsPiece, len(users))
		v, err := x.standings(l, users[from:to], out[from:to])
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, leaderboard.View{}, err
		}
		if from == 0 {
			first = v
		}
	}
	return out, first, nil
}

func (x *Index) standings(l leaderboard.Ladder, users []leaderboard.UserID, out []leaderboard.Standing) (leaderboard.View, error) {
	for i, user := range users {
		out[i].User = user
	}
	var keys strings.Builder
	var keyBytes int
	v, err := x.read(l, func(t *table, tr *tree) error {
		if tr == nil {
			return nil
		}
		keyBytes = t.keyBytes
		keys.Grow(keyBytes * len(users))
		for from := 0; from < len(users); from += updateChunk {
			var places [updateChunk]place
			chunk := out[from:min(from+updateChunk, len(users))]
			if len(chunk) > 1 {
				hashes := t.warmCells(users[from : from+len(chunk)])
				t.warmLeaves(hashes[:len(chunk)])
			}
			for i := range chunk {
				places[i] = t.placeOf(tr, chunk[i].User)
			}
			for i := range chunk {
				if p := places[i]; p.leaf != 0 {
					rows := t.forest.leafRows(p.leaf)
					chunk[i].AchievedAt, chunk[i].Ranks = instant(rows.achieved(p.i)), t.ranksAt(tr, p, t.forest.countsBefore(p.leaf))
					t.writeKey(&keys, rows, p.i)
				}
			}
		}
		return nil
	})
	rest := leaderboard.RankKey(keys.String())
	for i := range out {
		if out[i].Ranks.Ordinal != 0 {
			out[i].Key, rest = rest[:keyBytes], rest[keyBytes:]
		}
	}
	return v, err
}

// placeOf returns the place of a user in tr, or a place whose leaf is 0.
func (t *table) placeOf(tr *tree, user leaderboard.UserID) place {
	ref, leaf := t.lookUp(t.dict.hash(string(user)), string(user))
	if ref != 0 && tr.field != 0 {
		leaf = 0
		if n := t.users.field(ref, tr.field-4); n != 0 && &t.ladders[n] == tr {
			leaf = t.users.field(ref, tr.field)
		}
	}
	if leaf == 0 {
		return place{}
	}
	return place{leaf, t.forest.leaf(leaf).indexOf(ref)}
}

// Page implements [leaderboard.Ranker]. A position less than 1 counts as 1.
func (x *Index) Page(ctx context.Context, l leaderboard.Ladder, position int64, n int, _ ...leaderboard.Method) ([]leaderboard.Standing, leaderboard.View, error) {
	return x.page(l, func(t *table, tr *tree) (section, error) {
		if tr == nil {
			return section{}, nil
		}
		return t.sectionAt(tr, max(position, 1)-1, n), nil
	})
}

func (x *Index) page(l leaderboard.Ladder, choose func(*table, *tree) (section, error)) ([]leaderboard.Standing, leaderboard.View, error) {
	var pg *rawPage
	v, err := x.read(l, func(t *table, tr *tree) error {
		s, err := choose(t, tr)
		if err == nil && tr != nil {
			pg = t.page(tr, s)
		}
		return err
	})
	if err != nil || pg == nil {
		return nil, v, err
	}
	return pg.finish(), v, nil
}

// PageAfter implements [leaderboard.Ranker]. Argument after may be a prefix of a sort key.
func (x *Index) PageAfter(ctx context.Context, l leaderboard.Ladder, after leaderboard.SortKey, n int, _ ...leaderboard.Method) ([]leaderboard.Standing, leaderboard.View, error) {
	return x.page(l, func(t *table, tr *tree) (section, error) {
		if tr == nil {
			return section{}, nil
		}
		// b is the least sort key greater than after: a zero byte extends the id, and zeros extend
		// a prefix.
		b := bound{}
		if fixed := t.keyBytes + wordBytes; len(after) > fixed {
			b.id = string(after[fixed:]) + "\x00"
			after = after[:fixed]
		} else {
			after += leaderboard.SortKey(make([]byte, fixed-len(after)))
		}
		achieved := binary.BigEndian.Uint64([]byte(after[t.keyBytes:]))
		b.words = t.words(nil, string(after[:t.keyBytes]), achieved)
		p, before := t.forest.find(tr, b)
		return t.sectionFrom(tr, p, before, n), nil
	})
}

// Around implements [leaderboard.Ranker].
func (x *Index) Around(ctx context.Context, l leaderboard.Ladder, user leaderboard.UserID, above, below int, _ ...leaderboard.Method) (leaderboard.Neighborhood, leaderboard.View, error) {
	var n leaderboard.Neighborhood
	out, v, err := x.page(l, func(t *table, tr *tree) (section, error) {
		if tr != nil {
			if p := t.placeOf(tr, user); p.leaf != 0 {
				before := t.forest.countsBefore(p.leaf)
				position := before.standings() + int64(p.i)
				n.NotWorse = t.countNotWorse(tr, p, before)
				n.Of = int(min(int64(max(above, 0)), position))
				size := n.Of + 1 + int(min(int64(max(below, 0)), tr.sum.standings()))
				if n.Of <= p.i {
					return t.sectionFrom(tr, place{p.leaf, p.i - n.Of}, before, size), nil
				}
				return t.sectionAt(tr, position-int64(n.Of), size), nil
			}
		}
		return section{}, fmt.Errorf("memory: %q in %v: %w", user, l, leaderboard.ErrEntryNotFound)
	})
	if err != nil {
		return leaderboard.Neighborhood{}, leaderboard.View{}, err
	}
	n.Standings = out
	return n, v, nil
}

// countNotWorse counts the standings with the rank key at p or a better rank key.
func (t *table) countNotWorse(tr *tree, p place, before counts) int64 {
	lf := t.forest.leaf(p.leaf)
	sum := before + lf.countsBefore(p.i+1)
	if heads := lf.heads >> p.i >> 1; heads != 0 { // the next head (see tree.go) is in this leaf
		return sum.standings() + int64(bits.TrailingZeros64(heads))
	}
	if sum.heads() == tr.sum.heads() {
		return tr.sum.standings()
	}
	return t.forest.countBeforeHead(tr, sum.heads()+1)
}

// Count implements [leaderboard.Ranker]. Errors: [leaderboard.ErrFormat] if a key is too long.
func (x *Index) Count(ctx context.Context, l leaderboard.Ladder, keys []leaderboard.RankKey, methods ...leaderboard.Method) ([]leaderboard.Counts, leaderboard.View, error) {
	s, v, err := x.Survey(ctx, l, leaderboard.SurveyQuery{Keys: keys}, methods...)
	return s.Counts, v, err
}

// Survey implements [leaderboard.Ranker]. It returns the errors of Count.
func (x *Index) Survey(ctx context.Context, l leaderboard.Ladder, q leaderboard.SurveyQuery, _ ...leaderboard.Method) (leaderboard.Survey, leaderboard.View, error) {
	s := leaderboard.Survey{
		Positions: make([]leaderboard.RankKey, len(q.Positions)), Percents: make([]leaderboard.RankKey, len(q.Percents)),
		Counts: make([]leaderboard.Counts, len(q.Keys)),
	}
	v, err := x.read(l, func(t *table, tr *tree) error {
		var scratch [maxWords]uint64
		for i, k := range q.Keys {
			if len(k) > t.keyBytes {
				return fmt.Errorf("memory: count: rank key of %d bytes, not %d: %w", len(k), t.keyBytes, leaderboard.ErrFormat)
			}
			if tr != nil {
				sum := t.countsBefore(tr, bound{words: t.words(scratch[:0], string(k), 0)})
				s.Counts[i] = leaderboard.Counts{Standings: sum.standings(), Distinct: sum.heads()}
			}
		}
		if tr == nil {
			return nil
		}
		for i, position := range q.Positions {
			s.Positions[i] = t.keyAt(tr, position)
		}
		size := tr.sum.standings()
		for i, p := range q.Percents {
			s.Percents[i] = t.keyAt(tr, leaderboard.PercentPosition(size, p))
		}
		if q.Buckets > 0 && size > 0 {
			edges := q.BucketEdges(t.keyAt(tr, 1), t.keyAt(tr, size))
			before := make([]leaderboard.Counts, len(edges))
			for i, k := range edges {
				before[i].Standings = t.countsBefore(tr, bound{words: t.words(scratch[:0], string(k), 0)}).standings()
			}
			s.Buckets = q.BucketCounts(before, size)
		}
		return nil
	})
	if err != nil {
		return leaderboard.Survey{}, leaderboard.View{}, err
	}
	return s, v, nil
}

// keyAt returns the rank key at a position from 1, or "" beyond the ladder.
func (t *table) keyAt(tr *tree, position int64) leaderboard.RankKey {
	if position < 1 || position > tr.sum.standings() {
		return ""
	}
	p, _ := t.forest.placeAt(tr, position-1)
	var key strings.Builder
	t.writeKey(&key, t.forest.leafRows(p.leaf), p.i)
	return leaderboard.RankKey(key.String())
}
