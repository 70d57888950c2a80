package cql

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/open-leaderboard/leaderboard"
)

type scannedBuckets struct {
	conn
	mu      sync.Mutex
	buckets []int
}

func (c *scannedBuckets) read(ctx context.Context, q op, dest []any, row func() bool) error {
	if q.stmt == selectBucket {
		c.mu.Lock()
		c.buckets = append(c.buckets, q.args[3].(int))
		c.mu.Unlock()
	}
	return c.conn.read(ctx, q, dest, row)
}

func TestScanReadsTheBucketsOfItsPart(t *testing.T) {
	for _, tt := range []struct {
		buckets int
		part    leaderboard.Part
		want    []int
	}{
		{8, leaderboard.Part{}, []int{0, 1, 2, 3, 4, 5, 6, 7}},
		{8, leaderboard.Part{Index: 0, Of: 1}, []int{0, 1, 2, 3, 4, 5, 6, 7}},
		{8, leaderboard.Part{Index: 1, Of: 2}, []int{1, 3, 5, 7}},
		{8, leaderboard.Part{Index: 5, Of: 8}, []int{5}},
		{8, leaderboard.Part{Index: 13, Of: 16}, []int{5}},
		{8, leaderboard.Part{Index: 5, Of: 12}, []int{1, 5}},
		{8, leaderboard.Part{Index: 2, Of: 3}, []int{0, 1, 2, 3, 4, 5, 6, 7}},
		{6, leaderboard.Part{Index: 2, Of: 3}, []int{2, 5}},
		{1, leaderboard.Part{Index: 2, Of: 3}, []int{0}},
	} {
		t.Run(fmt.Sprintf("%d buckets, part %v", tt.buckets, tt.part), func(t *testing.T) {
			c := &scannedBuckets{conn: newModel(nil)}
			s := openTest(c, Options{DataCenter: "dc1", Buckets: tt.buckets, CacheUsers: 10})
			b := stepsBoard(leaderboard.Sum)
			if err := s.CreateBoard(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			w, want := &writers{board: &b, clock: stepsEpoch}, 0
			for i := range 60 {
				w.user = leaderboard.UserID(fmt.Sprint("u", i))
				if err := w.apply(t.Context(), s, "m 5"); err != nil {
					t.Fatal(err)
				}
				if tt.part.Contains(w.user) {
					want++
				}
			}
			got := 0
			for e, err := range s.Scan(t.Context(), leaderboard.SeasonKey{Board: b.ID, Season: leaderboard.SeasonAll}, tt.part) {
				if err != nil || !tt.part.Contains(e.User) {
					t.Fatalf("Scan yields an entry of %q, error %v; want only users of the part", e.User, err)
				}
				got++
			}
			slices.Sort(c.buckets)
			if got != want || !slices.Equal(c.buckets, tt.want) {
				t.Errorf("Scan yields %d entries from the buckets %v, want %d from the buckets %v", got, c.buckets, want, tt.want)
			}
		})
	}
}
