package ranking

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// ScoreRange selects the entries with scores from Min to Max, both included. A nil bound does
// not limit the range. Entries without a rank are in no range. On decay and average boards, scores are the exact ones at the time of the read.
type ScoreRange struct{ Min, Max *leaderboard.Score }

func (s ScoreRange) isSet() bool { return s.Min != nil || s.Max != nil }

func (s ScoreRange) validate() error {
	for _, bound := range []struct {
		field string
		score *leaderboard.Score
	}{{"min_score", s.Min}, {"max_score", s.Max}} {
		if bound.score != nil && (*bound.score < -leaderboard.MaxScore || *bound.score > leaderboard.MaxScore) {
			return &leaderboard.FieldError{Field: bound.field, Problem: "must be within ±2^53"}
		}
	}
	if s.Min != nil && s.Max != nil && *s.Min > *s.Max {
		return &leaderboard.FieldError{Field: "min_score", Problem: fmt.Sprintf("%d is above max_score %d", *s.Min, *s.Max)}
	}
	return nil
}

// edges divide the standings of a ladder by a range of scores. If the range has no bound on a
// side, the edges of this side are empty.
type edges struct {
	first  leaderboard.RankKey // standings with smaller rank keys have better scores than the range
	before leaderboard.SortKey // the field first, as a sort key
	beyond leaderboard.RankKey // standings with this or greater rank keys have worse scores than the range
}

func (v *view) edges(s ScoreRange) edges {
	best, worst := s.Max, s.Min
	if v.board.Order == leaderboard.LowerFirst {
		best, worst = s.Min, s.Max
	}
	var e edges
	if best != nil {
		e.first, _ = v.board.ScoreBounds(*best, v.scoredAt)
		e.before = v.firstKey(e.first)
	}
	if worst != nil {
		_, e.beyond = v.board.ScoreBounds(*worst, v.scoredAt)
	} else if best != nil {
		e.beyond = v.board.UnrankedFrom()
	}
	return e
}

// firstKey returns a sort key that precedes all sort keys with the given rank key or a greater one. The rank
// key may be a prefix. If it is empty, the result is empty.
func (v *view) firstKey(key leaderboard.RankKey) leaderboard.SortKey {
	if key == "" {
		return ""
	}
	padding := strings.Repeat("\x00", v.board.RankKeyBytes()-len(key))
	// All results have later times, so the user id "0" does not matter.
	return leaderboard.MakeSortKey(key+leaderboard.RankKey(padding), time.UnixMicro(math.MinInt64), "0")
}

func (v *view) countIn(ctx context.Context, s ScoreRange) (*int64, error) {
	e := v.edges(s)
	var keys []leaderboard.RankKey
	for _, k := range []leaderboard.RankKey{e.first, e.beyond} {
		if k != "" {
			keys = append(keys, k)
		}
	}
	counts, ladderView, err := v.Count(ctx, v.ladder, keys, leaderboard.Competition)
	if err != nil {
		return nil, err
	}
	first, end := int64(0), ladderView.Ranked()
	if e.first != "" {
		first = counts[0].Standings
	}
	if e.beyond != "" {
		end = counts[len(counts)-1].Standings
	}
	n := max(end-first, 0)
	return &n, nil
}

// cut returns the elements of list with keys below beyond, or all if beyond is empty. list must
// be in standing order.
func cut[T any](list []T, beyond leaderboard.RankKey, key func(*T) leaderboard.RankKey) []T {
	for i := range list {
		if beyond != "" && key(&list[i]) >= beyond {
			return list[:i]
		}
	}
	return list
}
