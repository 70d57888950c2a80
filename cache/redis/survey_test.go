package redis

import (
	"slices"
	"sync"
	"testing"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/test/cluster"
)

// Several scripts count the edges of a large histogram. Their counts must not be mixed if the best standing
// changes between the scripts. It then changes the width of all buckets.
func TestHistogramsWhileTheBestStandingChanges(t *testing.T) {
	const users, buckets = 1000, 5000 // so many scripts that Redis makes changes between them
	x := openIndex(t, options([]string{cluster.Redis(t)}, 1))
	l := leaderboard.Ladder{SeasonKey: testSeason}
	bestScores := []int64{10_000, 90_000}
	var entries []leaderboard.Entry
	for i := range users - 1 {
		entries = append(entries, entry(benchUser(i), 1, int64(i), ""))
	}
	entries = append(entries, entry("first", 1, bestScores[0], ""))
	if err := x.Rebuild(t.Context(), testBoard, testSeason, epoch, sequence(entries)); err != nil {
		t.Fatal(err)
	}
	// The worst score is 0, and a higher score is better. So the value of a score is its distance from best.
	histogram := func(best int64) []int64 {
		width := best/buckets + 1
		counts := make([]int64, best/width+1)
		for i := range int64(users - 1) {
			counts[(best-i)/width]++
		}
		counts[0]++
		return counts
	}
	want := [][]int64{histogram(bestScores[0]), histogram(bestScores[1])}

	done := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for version := uint64(2); ; version++ {
			select {
			case <-done:
				return
			default:
			}
			if err := x.Update(t.Context(), testSeason, epoch, []leaderboard.Entry{entry("first", version, bestScores[version%2], "")}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	seen := map[int]int{}
	for range 60 {
		got, _, err := x.Survey(t.Context(), l, leaderboard.SurveyQuery{Buckets: buckets})
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(want, func(w []int64) bool { return slices.Equal(w, got.Buckets) })
		if i < 0 {
			t.Fatalf("the histogram with %d buckets belongs to neither best score", len(got.Buckets))
		}
		seen[i]++
	}
	close(done)
	writer.Wait()
	t.Logf("histograms with the best score %d and %d: %v", bestScores[0], bestScores[1], seen)
}
