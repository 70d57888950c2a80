package ranking

import (
	"context"
	"fmt"

	"github.com/open-leaderboard/leaderboard"
)

// MaxBuckets is the largest number of buckets of a histogram.
const MaxBuckets = 100

// StatsQuery selects statistics of a ladder.
type StatsQuery struct {
	Query
	Buckets int                // number of histogram buckets, 0 to MaxBuckets
	Score   *leaderboard.Score // the score for Stats.RankOfScore; may be nil
	Rank    int64              // the position, from 1, for Stats.ScoreAtRank; 0 means none
}

func (q *StatsQuery) validate() error {
	switch {
	case q.Buckets < 0 || q.Buckets > MaxBuckets:
		return &leaderboard.FieldError{Field: "buckets", Problem: fmt.Sprintf("must be 0 to %d, not %d", MaxBuckets, q.Buckets)}
	case q.Rank < 0:
		return &leaderboard.FieldError{Field: "rank", Problem: "must be at least 1"}
	case q.Score != nil && (*q.Score < -leaderboard.MaxScore || *q.Score > leaderboard.MaxScore):
		return &leaderboard.FieldError{Field: "score", Problem: "must be within ±2^53"}
	}
	return nil
}

// Bucket is a bucket of a histogram. Count is the number of users with a score from
// From to To, both included.
type Bucket struct {
	From, To leaderboard.Score
	Count    int64
}

// Percentile is a score, and the share of users, in percent, who rank below it.
type Percentile struct {
	Percent float64
	Score   leaderboard.Score
}

// Stats are statistics of a ladder.
type Stats struct {
	About
	Best, Worst *leaderboard.Score // nil if the ladder is empty
	Histogram   []Bucket           // from the smallest score to the greatest
	Percentiles []Percentile       // for 99, 95, 90, 75, 50, 25 and 10 percent
	// RankOfScore is the rank that a new entry with the score StatsQuery.Score would have.
	RankOfScore int64
	// ScoreAtRank is the score at the position StatsQuery.Rank. It is nil if the ladder
	// has fewer users.
	ScoreAtRank *leaderboard.Score
}

var statPercents = []float64{99, 95, 90, 75, 50, 25, 10}

// Stats returns statistics of a ladder. If the rank index cannot answer, it returns
// [leaderboard.ErrRankUnavailable].
func (r *Reader) Stats(ctx context.Context, q StatsQuery) (Stats, error) {
	if err := q.validate(); err != nil {
		return Stats{}, err
	}
	b, err := r.board(ctx, q.Board)
	if err != nil {
		return Stats{}, err
	}
	var stats Stats
	err = r.read(ctx, b, q.Query, func(v *view) error {
		stats, err = v.stats(ctx, q)
		return err
	})
	return stats, err
}

func (v *view) stats(ctx context.Context, q StatsQuery) (Stats, error) {
	first, seen, err := v.Page(ctx, v.ladder, 1, 1)
	if err != nil {
		return Stats{}, err
	}
	stats := Stats{About: v.about(seen)}
	if q.Score != nil {
		counts, _, err := v.Count(ctx, v.ladder, []leaderboard.RankKey{v.board.ScorePrefix(*q.Score, v.scoredAt)})
		if err != nil {
			return Stats{}, err
		}
		stats.RankOfScore = counts[0].Standings + 1
		if q.Method == leaderboard.Dense {
			stats.RankOfScore = counts[0].Distinct + 1
		}
	}
	if len(first) == 0 {
		return stats, nil
	}
	if stats.Best, err = v.scoreAt(ctx, 1); err != nil {
		return Stats{}, err
	}
	if stats.Worst, err = v.scoreAt(ctx, seen.Size); err != nil {
		return Stats{}, err
	}
	if q.Rank > 0 {
		if stats.ScoreAtRank, err = v.scoreAt(ctx, q.Rank); err != nil {
			return Stats{}, err
		}
	}
	if stats.Percentiles, err = v.percentiles(ctx, seen.Size); err != nil {
		return Stats{}, err
	}
	if q.Buckets > 0 && stats.Best != nil && stats.Worst != nil {
		stats.Histogram, err = v.histogram(ctx, min(*stats.Best, *stats.Worst), max(*stats.Best, *stats.Worst), q.Buckets)
	}
	return stats, err
}

func (v *view) percentiles(ctx context.Context, size int64) (list []Percentile, err error) {
	for _, p := range statPercents {
		position := size - int64(float64(size)*p/100)
		score, err := v.scoreAt(ctx, max(position, 1))
		if err != nil {
			return nil, err
		}
		if score != nil {
			list = append(list, Percentile{p, *score})
		}
	}
	return list, nil
}

// scoreAt returns the score at a position, or nil if the ladder has fewer users.
func (v *view) scoreAt(ctx context.Context, position int64) (*leaderboard.Score, error) {
	page, _, err := v.Page(ctx, v.ladder, position, 1)
	if err != nil || len(page) == 0 {
		return nil, err
	}
	score := v.board.ScoreOf(page[0].Key, v.scoredAt)
	return &score, nil
}

// histogram counts the users with scores from lo to hi in up to n buckets of equal
// width. The first and the last bucket also count users with scores outside this range.
// Such users joined after lo and hi were read, or have a decayed sum beyond ±2^53.
func (v *view) histogram(ctx context.Context, lo, hi leaderboard.Score, n int) ([]Bucket, error) {
	width := max((hi-lo)/leaderboard.Score(n)+1, 1)
	var buckets []Bucket
	// Each bucket needs two keys: the key of its best score, and the key of the score
	// that is one worse than its worst score.
	var edges []leaderboard.RankKey
	for from := lo; from <= hi; from += width {
		to := min(from+width-1, hi)
		buckets = append(buckets, Bucket{From: from, To: to})
		better, beyond := to, from-1
		if v.board.Order == leaderboard.LowerFirst {
			better, beyond = from, to+1
		}
		edges = append(edges, v.board.ScorePrefix(better, v.scoredAt), v.board.ScorePrefix(beyond, v.scoredAt))
	}
	counts, seen, err := v.Count(ctx, v.ladder, edges)
	if err != nil {
		return nil, err
	}
	best, worst := len(buckets)-1, 0
	if v.board.Order == leaderboard.LowerFirst {
		best, worst = worst, best
	}
	counts[2*best].Standings, counts[2*worst+1].Standings = 0, seen.Size
	for i := range buckets {
		buckets[i].Count = counts[2*i+1].Standings - counts[2*i].Standings
	}
	return buckets, nil
}
