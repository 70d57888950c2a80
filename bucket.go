package leaderboard

import "encoding/binary"

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
