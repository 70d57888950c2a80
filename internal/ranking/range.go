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
// not limit the range. On decay boards, scores are those at the time of the read.
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

// edges are the ends of a range of scores in a ladder. An empty end is the end of the ladder.
type edges struct {
	first  leaderboard.RankKey // the smallest rank key that may be in the range
	before leaderboard.SortKey // greater than the sort keys of all better scores, and smaller than those in the range
	beyond leaderboard.RankKey // the smallest rank key that may be worse than the range
}

func (v *view) edges(s ScoreRange) edges {
	best, worst, step := s.Max, s.Min, leaderboard.Score(-1)
	if v.board.Order == leaderboard.LowerFirst {
		best, worst, step = s.Min, s.Max, 1
	}
	var e edges
	if best != nil {
		e.first = v.board.ScorePrefix(*best, v.scoredAt)
		// No result has so early a time, so the user id does not matter.
		padding := strings.Repeat("\x00", v.board.RankKeyBytes()-len(e.first))
		e.before = leaderboard.MakeSortKey(e.first+leaderboard.RankKey(padding), time.UnixMicro(math.MinInt64), "0")
	}
	if worst != nil {
		e.beyond = v.board.ScorePrefix(*worst+step, v.scoredAt)
	}
	return e
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
	first, end := int64(0), ladderView.Size
	if e.first != "" {
		first = counts[0].Standings
	}
	if e.beyond != "" {
		end = counts[len(counts)-1].Standings
	}
	n := max(end-first, 0)
	return &n, nil
}

// cut returns the part of list before beyond, or the whole list if beyond is empty. list must
// be in standing order.
func cut[T any](list []T, beyond leaderboard.RankKey, key func(*T) leaderboard.RankKey) []T {
	for i := range list {
		if beyond != "" && key(&list[i]) >= beyond {
			return list[:i]
		}
	}
	return list
}
