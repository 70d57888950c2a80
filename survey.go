package leaderboard

import "encoding/binary"

// SurveyQuery is a question about a ladder as a whole.
type SurveyQuery struct {
	// Positions count from 1.
	Positions []int64
	// Percents are 0 to 100. In a ladder of n standings, percent p selects the position
	// max(1, n-⌊n×p/100⌋). That standing is better than about p percent of the standings.
	Percents []float64
	// Keys are rank keys, or prefixes of rank keys: see [Ranker].Count.
	Keys []RankKey
	// Buckets is the maximum number of buckets of the answer. A bucket is a range of values. The
	// value of a standing is the first 8 bytes of its rank key, as a big-endian integer. If d is the
	// value of the last standing minus the value of the first, each bucket spans ⌊d/Buckets⌋+1
	// values. The first bucket begins at the first standing or, if FromWorst is true, at the last
	// standing. The final bucket contains the standing at the other end.
	Buckets   int
	FromWorst bool
}

// PercentPosition returns the position that percent selects: see [SurveyQuery].Percents.
func PercentPosition(size int64, percent float64) int64 {
	return max(size-int64(float64(size)*percent/100), 1)
}

// Survey is the answer to a [SurveyQuery], in the query's order. A position outside the
// ladder has an empty rank key.
type Survey struct {
	Positions, Percents []RankKey
	Counts              []Counts
	Buckets             []int64 // the number of standings in each bucket; empty if the ladder is empty
}

// BucketEdges returns the edges between the buckets of q, in the buckets' order: see
// [SurveyQuery].Buckets. A standing is better than an edge if its rank key is smaller. best and worst
// are the rank keys of the first and the last standing of the ladder.
func (q *SurveyQuery) BucketEdges(best, worst RankKey) []RankKey {
	first, last := bucketNumber(best), bucketNumber(worst)
	if first > last || q.Buckets < 1 {
		return nil
	}
	width, edges := (last-first)/uint64(q.Buckets)+1, []RankKey(nil)
	for i := uint64(1); i <= (last-first)/width; i++ {
		edge := first + i*width
		if q.FromWorst {
			edge = last - i*width + 1
		}
		edges = append(edges, RankKey(binary.BigEndian.AppendUint64(nil, edge)))
	}
	return edges
}

func bucketNumber(k RankKey) uint64 { return binary.BigEndian.Uint64([]byte(k[:8])) }

// BucketCounts returns [Survey].Buckets. before[i] counts the standings that are better than edge i of
// BucketEdges. size is the size of the ladder, at least 1.
func (q *SurveyQuery) BucketCounts(before []Counts, size int64) []int64 {
	buckets, sum := make([]int64, len(before)+1), int64(0) // sum counts the standings in all earlier buckets
	for i := range buckets {
		upTo := size
		if i < len(before) {
			upTo = before[i].Standings
			if q.FromWorst {
				upTo = size - upTo
			}
		}
		buckets[i], sum = max(upTo-sum, 0), max(upTo, sum)
	}
	return buckets
}
