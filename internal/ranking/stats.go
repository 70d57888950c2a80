package ranking

import (
	"context"
	"fmt"

	"github.com/open-leaderboard/leaderboard"
)

const maxBuckets = 100

// StatsQuery selects statistics of a ladder.
type StatsQuery struct {
	Query
	Buckets int                // 0 to maxBuckets
	Score   *leaderboard.Score // the score for Stats.RankOfScore; may be nil
	Rank    int64              // the position, from 1, for Stats.ScoreAtRank; 0 means none
}

func (q *StatsQuery) validate() error {
	switch {
	case q.Buckets < 0 || q.Buckets > maxBuckets:
		return &leaderboard.FieldError{Field: "buckets", Problem: fmt.Sprintf("must be 0 to %d, not %d", maxBuckets, q.Buckets)}
	case q.Rank < 0:
		return &leaderboard.FieldError{Field: "rank", Problem: "must be at least 1"}
	case q.Score != nil && (*q.Score < -leaderboard.MaxScore || *q.Score > leaderboard.MaxScore):
		return &leaderboard.FieldError{Field: "score", Problem: "must be within ±2^53"}
	}
	return nil
}

// Bucket is the number of users with a score from From to To, both included.
type Bucket struct {
	From, To leaderboard.Score
	Count    int64
}

// Percentile is a percentage and a score: at least this percentage of users have this score or
// a worse one.
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
	// RankOfScore is the best rank that a new entry with the score StatsQuery.Score could
	// have. Tie-breakers, or the method Ordinal, may give a worse rank. On decay and
	// average boards, the score is exact.
	RankOfScore int64
	// ScoreAtRank is the score at the position StatsQuery.Rank, or nil if the ladder has fewer
	// users.
	ScoreAtRank *leaderboard.Score
	ExactAtRank string // ScoreAtRank without rounding, on decay and average boards
}

var statPercents = []float64{99, 95, 90, 75, 50, 25, 10}

// Stats returns statistics of a ladder. Errors: [leaderboard.ErrRankUnavailable] if the rank
// index cannot answer.
func (r *Reader) Stats(ctx context.Context, q StatsQuery) (Stats, error) {
	if err := q.validate(); err != nil {
		return Stats{}, err
	}
	b, err := r.boardOf(ctx, &q.Query)
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
	const best, worst = 100, 0
	query := leaderboard.SurveyQuery{Percents: append([]float64{best, worst}, statPercents...)}
	if !v.board.RoundsScores() && !v.board.HasUnranked() {
		query.Buckets, query.FromWorst = q.Buckets, v.board.Order == leaderboard.HigherFirst
	}
	if q.Rank > 0 {
		query.Positions = []int64{q.Rank}
	}
	if q.Score != nil {
		first, _ := v.board.ScoreBounds(*q.Score, v.scoredAt)
		query.Keys = []leaderboard.RankKey{first}
	}
	survey, ladderView, err := v.Survey(ctx, v.ladder, query, v.method)
	if err != nil {
		return Stats{}, err
	}
	stats := Stats{About: v.about(ladderView), Best: v.score(survey.Percents[0]), Worst: v.score(survey.Percents[1])}
	for _, counts := range survey.Counts {
		stats.RankOfScore = counts.Standings + 1
		if q.Method == leaderboard.Dense {
			stats.RankOfScore = counts.Distinct + 1
		}
	}
	for _, key := range survey.Positions {
		if stats.ScoreAtRank = v.score(key); key != "" {
			stats.ExactAtRank = v.board.ExactScoreOf(key, v.scoredAt)
		}
	}
	if stats.Best == nil || stats.Worst == nil {
		return stats, nil
	}
	for i, p := range statPercents {
		if score := v.score(survey.Percents[2+i]); score != nil {
			stats.Percentiles = append(stats.Percentiles, Percentile{p, *score})
		}
	}
	if q.Buckets == 0 {
		return stats, nil
	}
	stats.Histogram = buckets(min(*stats.Best, *stats.Worst), max(*stats.Best, *stats.Worst), q.Buckets)
	if len(stats.Histogram) != len(survey.Buckets) {
		return stats, v.count(ctx, stats.Histogram)
	}
	for i, n := range survey.Buckets {
		stats.Histogram[i].Count = n
	}
	return stats, nil
}

func (v *view) score(key leaderboard.RankKey) *leaderboard.Score {
	if key == "" {
		return nil
	}
	score := v.board.ScoreOf(key, v.scoredAt)
	return &score
}

// buckets divides the scores from lo to hi into up to n buckets of equal width, as
// [leaderboard.SurveyQuery].Buckets does. The last bucket may be narrower.
func buckets(lo, hi leaderboard.Score, n int) (list []Bucket) {
	width := max((hi-lo)/leaderboard.Score(n)+1, 1)
	for from := lo; from <= hi; from += width {
		list = append(list, Bucket{From: from, To: min(from+width-1, hi)})
	}
	return list
}

// count sets the Count of each bucket. The first and the last bucket also count users outside
// the buckets. Such users got their scores after Best and Worst were read, or have a decayed sum
// beyond ±2^53.
func (v *view) count(ctx context.Context, buckets []Bucket) error {
	// For each bucket, keys has the key of its best score, and the key of the next worse score.
	var keys []leaderboard.RankKey
	for _, b := range buckets {
		better, beyond := b.To, b.From-1
		if v.board.Order == leaderboard.LowerFirst {
			better, beyond = b.From, b.To+1
		}
		keys = append(keys, v.board.ScorePrefix(better, v.scoredAt), v.board.ScorePrefix(beyond, v.scoredAt))
	}
	counts, ladderView, err := v.Count(ctx, v.ladder, keys, leaderboard.Competition)
	if err != nil {
		return err
	}
	best, worst := len(buckets)-1, 0
	if v.board.Order == leaderboard.LowerFirst {
		best, worst = worst, best
	}
	counts[2*best].Standings, counts[2*worst+1].Standings = 0, ladderView.Ranked()
	for i := range buckets {
		buckets[i].Count = counts[2*i+1].Standings - counts[2*i].Standings
	}
	return nil
}
