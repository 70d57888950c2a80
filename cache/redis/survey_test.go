package redis

import (
	"slices"
	"sync"
	"testing"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/test/cluster"
)

// Several scripts count the edges of a large histogram, while two users change. The best user's score changes
// the width of all buckets. The other user comes and goes, which may change only this user's bucket.
func TestHistogramsDuringChanges(t *testing.T) {
	const users, buckets = 1000, 5000 // so many scripts that Redis makes changes between them
	const otherScore = 5000
	x := openIndex(t, options([]string{cluster.Redis(t)}, 1))
	l := leaderboard.Ladder{SeasonKey: testSeason}
	bestScores := []int64{10_000, 90_000}
	entries := []leaderboard.Entry{entry("best", 1, bestScores[0], ""), entry("other", 1, otherScore, "")}
	for i := range users {
		entries = append(entries, entry(benchUser(i), 1, int64(i), ""))
	}
	if err := x.Rebuild(t.Context(), testBoard, testSeason, epoch, sequence(entries)); err != nil {
		t.Fatal(err)
	}
	// The worst score is 0, and a higher score is better. So the value of a score is its distance from best.
	histogram := func(best int64) (counts []int64, other int64) {
		width := best/buckets + 1
		counts = make([]int64, best/width+1)
		for i := range int64(users) {
			counts[(best-i)/width]++
		}
		counts[0]++
		return counts, (best - otherScore) / width
	}

	done := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for version := uint64(2); ; version++ {
			select {
			case <-done:
				return
			default:
			}
			other := entry("other", version, otherScore, "")
			if version%3 == 0 {
				other.Key = "" // the user has no standing
			}
			changed := []leaderboard.Entry{other}
			if version%10 == 0 {
				changed = append(changed, entry("best", version, bestScores[version/10%2], ""))
			}
			if err := x.Update(t.Context(), testSeason, epoch, changed); err != nil {
				t.Error(err)
				return
			}
		}
	})
	seen := map[int64][2]int{} // by the best score: histograms without and with the other user
	for range 30 {
		got, _, err := x.Survey(t.Context(), l, leaderboard.SurveyQuery{Buckets: buckets})
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(bestScores, func(best int64) bool {
			want, other := histogram(best)
			if len(got.Buckets) != len(want) || got.Buckets[other] < 0 || got.Buckets[other] > 1 {
				return false
			}
			n := seen[best]
			n[got.Buckets[other]]++
			seen[best] = n
			want[other] = got.Buckets[other]
			return slices.Equal(want, got.Buckets)
		})
		if i < 0 {
			t.Fatalf("the histogram of %d buckets fits neither best score", len(got.Buckets))
		}
	}
	close(done)
	writer.Wait()
	t.Log(seen)
}
