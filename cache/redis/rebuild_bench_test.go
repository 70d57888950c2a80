//go:build unix

package redis

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/test/cluster"
)

// BenchmarkRebuild measures a Rebuild of one shard, from entries in standing order and in random
// order. It reports users per second, the processor time of the server and of the process for each
// user, the bytes of a user, and the greatest growth of the heap. LEADERBOARD_BENCH_USERS is the number
// of users. On a busy machine, compare the processor times: the greater one bounds the users per second.
func BenchmarkRebuild(b *testing.B) {
	n := benchUsers(b)
	for _, tt := range []struct {
		order     string
		divisions int
	}{{"sorted", 0}, {"unsorted", 0}, {"unsorted", 2}} {
		b.Run(fmt.Sprintf("%s/divisions=%d", tt.order, tt.divisions), func(b *testing.B) {
			server := cluster.Private(b, cluster.StartRedis, cluster.RedisConfig{})
			x := openIndex(b, options(server.Addrs(), 1))
			bare := x.client().(*goredis.Client)
			entries := func(yield func(leaderboard.Entry, error) bool) {
				rng := rand.New(rand.NewPCG(1, 2))
				divisions := make([]leaderboard.Division, tt.divisions)
				for i := range n {
					e := benchEntry(i, 1, rng)
					if tt.order == "sorted" {
						e.Key = testBoard.ScorePrefix(leaderboard.Score(n-i), epoch)
					}
					for d := range divisions {
						divisions[d] = leaderboard.Division{Attribute: fmt.Sprint("attribute", d), Value: fmt.Sprint(i % 50)}
					}
					e.Divisions = divisions
					if !yield(e, nil) {
						return
					}
				}
			}
			var rates, servers, own []float64
			var bytes, heap int64
			for b.Loop() {
				must(b, x.Drop(b.Context(), testSeason))
				empty, base := usedMemory(b, bare), heapBytes()
				stop := make(chan struct{})
				var most atomic.Int64
				go func() {
					for {
						select {
						case <-stop:
							return
						case <-time.After(50 * time.Millisecond):
							most.Store(max(most.Load(), heapBytes()-base))
						}
					}
				}()
				start, cpu, process := time.Now(), serverSeconds(b, bare), processSeconds(b)
				must(b, x.Rebuild(b.Context(), testBoard, testSeason, epoch, entries))
				elapsed := time.Since(start).Seconds()
				servers = append(servers, (serverSeconds(b, bare)-cpu)/float64(n)*1e6)
				own = append(own, (processSeconds(b)-process)/float64(n)*1e6)
				rates = append(rates, float64(n)/elapsed)
				close(stop)
				bytes, heap = usedMemory(b, bare)-empty, max(heap, most.Load())
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(median(rates), "users/s")
			b.ReportMetric(median(servers), "µs-server")
			b.ReportMetric(median(own), "µs-process")
			b.ReportMetric(float64(bytes)/float64(n), "B/user")
			b.ReportMetric(float64(heap)/(1<<20), "MiB-heap")
		})
	}
}

func heapBytes() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse)
}
