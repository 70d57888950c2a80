//go:build unix

package memory

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

func benchSizes() []int {
	if os.Getenv("LEADERBOARD_BENCH_LARGE") != "" {
		return []int{1e6, 1e7}
	}
	return []int{1e6}
}

func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

const benchIDBytes = 13

func benchID(i int) leaderboard.UserID { return leaderboard.UserID(fmt.Sprintf("user-%08d", i)) }

func benchEntry(i int, v uint64, rng *rand.Rand) leaderboard.Entry {
	return leaderboard.Entry{User: benchID(i), Key: key(rng.Uint64N(1 << 53)), AchievedAt: time.UnixMicro(rng.Int64N(1 << 50)), Version: v}
}

var (
	benchBoard  = &leaderboard.Board{ID: "bench"}
	benchSeason = leaderboard.SeasonKey{Board: "bench", Season: leaderboard.SeasonAll}
	benchLadder = leaderboard.Ladder{SeasonKey: benchSeason}
)

// inOrder yields n entries in standing order, which is not the order of their user numbers.
func inOrder(n int) iter.Seq2[leaderboard.Entry, error] {
	return func(yield func(leaderboard.Entry, error) bool) {
		step := uint64(1<<53) / uint64(n)
		for i := range n {
			user := int(uint64(i) * 7919 % uint64(n)) // each user occurs once: 7919 is prime, and n is a power of ten
			if !yield(leaderboard.Entry{User: benchID(user), Key: key(uint64(i) * step), AchievedAt: time.UnixMicro(int64(user)), Version: 1}, nil) {
				return
			}
		}
	}
}

func inNoOrder(n int) iter.Seq2[leaderboard.Entry, error] {
	return func(yield func(leaderboard.Entry, error) bool) {
		rng := rand.New(rand.NewPCG(1, 2))
		for i := range n {
			if !yield(benchEntry(i, 1, rng), nil) {
				return
			}
		}
	}
}

var bench struct {
	sync.Mutex
	n     int
	x     *Index
	bytes float64 // heap bytes per entry, without ids
}

// loadedIndex returns an index of n entries, which all benchmarks of this size share.
func loadedIndex(b *testing.B, n int) *Index {
	bench.Lock()
	defer bench.Unlock()
	if bench.n != n {
		bench.x = nil
		before := heap()
		bench.x, bench.n = New(), n
		if err := bench.x.Rebuild(b.Context(), benchBoard, benchSeason, time.Now(), inNoOrder(n)); err != nil {
			b.Fatal(err)
		}
		bench.bytes = float64(heap()-before)/float64(n) - benchIDBytes
	}
	return bench.x
}

// floor returns words that are larger than any cache of the processor. So a read of a random word
// waits for main memory. Finding a user takes at least as long.
var floor = sync.OnceValue(func() []uint64 {
	words := make([]uint64, 1<<26) // 512 MiB
	for i := range words {
		words[i] = uint64(i) * 0x9e3779b97f4a7c15
	}
	return words
})

// measure calls op b.N times with random users. After each 1,000 calls, it makes 1,000 floor reads
// of a random word of floor, one after another. Its metrics are:
//
//	cpu-ns/op       processor time of a call: the median of the runs of 1,000
//	quiet-ns/op     processor time of a call: the tenth percentile
//	floors/op       the number of floor reads that take as long as a call
//	quiet-ns/floor  processor time of a floor read: the tenth percentile
func measure(b *testing.B, n int, op func(i int, user leaderboard.UserID)) {
	rng := rand.New(rand.NewPCG(uint64(b.N), 1))
	users := make([]leaderboard.UserID, min(b.N, 1<<20))
	for i := range users {
		users[i] = benchID(rng.IntN(n))
	}
	words := floor()
	runtime.GC()
	b.ReportAllocs()
	b.ResetTimer()
	const run = 1000
	var ops, reads []float64
	var word uint64
	for done := 0; done < b.N; done += run {
		start, end := cpu(), min(done+run, b.N)
		for i := done; i < end; i++ {
			op(i, users[i&(1<<20-1)])
		}
		middle := cpu()
		for i := done; i < end; i++ {
			word = words[(word^uint64(i))*0x9e3779b97f4a7c15>>(64-26)]
		}
		ops = append(ops, float64(middle-start)/float64(end-done))
		reads = append(reads, float64(cpu()-middle)/float64(end-done))
	}
	floorWord = word
	slices.Sort(ops)
	slices.Sort(reads)
	tenth, half := len(ops)/10, len(ops)/2
	b.ReportMetric(ops[half], "cpu-ns/op")
	b.ReportMetric(ops[tenth], "quiet-ns/op")
	b.ReportMetric(ops[half]/reads[half], "floors/op")
	b.ReportMetric(reads[tenth], "quiet-ns/floor")
	b.ReportMetric(0, "ns/op")
}

var floorWord uint64

func BenchmarkIndex(b *testing.B) {
	ctx := b.Context()
	for _, n := range benchSizes() {
		b.Run(fmt.Sprintf("%dM", n/1e6), func(b *testing.B) {
			x := loadedIndex(b, n)
			t := x.season(benchSeason).table
			b.Run("memory", func(b *testing.B) {
				for b.Loop() {
				}
				b.ReportMetric(bench.bytes, "B/entry")
				b.ReportMetric(0, "ns/op")
			})
			b.Run("rank", func(b *testing.B) {
				measure(b, n, func(i int, user leaderboard.UserID) {
					s, _, err := x.Standings(ctx, benchLadder, []leaderboard.UserID{user})
					if err != nil || s[0].Ranks.Ordinal == 0 {
						b.Fatal(s, err)
					}
				})
			})
			b.Run("around/4+4", func(b *testing.B) {
				measure(b, n, func(i int, user leaderboard.UserID) {
					if n, _, err := x.Around(ctx, benchLadder, user, 4, 4); err != nil || len(n.Standings) < 5 {
						b.Fatal(n, err)
					}
				})
			})
			b.Run("page/10", func(b *testing.B) { pages(b, x, n, 10) })
			b.Run("page/100", func(b *testing.B) { pages(b, x, n, 100) })
			b.Run("top/10", func(b *testing.B) {
				measure(b, n, func(int, leaderboard.UserID) {
					if s, _, err := x.Page(ctx, benchLadder, 1, 10); err != nil || len(s) != 10 {
						b.Fatal(s, err)
					}
				})
			})
			b.Run("count", func(b *testing.B) {
				rng := rand.New(rand.NewPCG(1, 1))
				measure(b, n, func(int, leaderboard.UserID) {
					if _, _, err := x.Count(ctx, benchLadder, []leaderboard.RankKey{key(rng.Uint64N(1 << 53))}); err != nil {
						b.Fatal(err)
					}
				})
			})
			b.Run("tree/range100", func(b *testing.B) {
				rng := rand.New(rand.NewPCG(1, 1))
				tr := &t.ladders[0]
				var sum uint64
				measure(b, n, func(i int, _ leaderboard.UserID) {
					p, _ := t.forest.placeAt(tr, rng.Int64N(int64(n-100)))
					for range 100 {
						p, _ = t.forest.standingAt(p)
						sum += t.forest.leafRows(p.leaf)[p.i] + uint64(t.forest.leaf(p.leaf).refs[p.i])
						p.i++
					}
				})
			})
			b.Run("tree/rank", func(b *testing.B) {
				// lookUp runs before the measurement.
				tr := &t.ladders[0]
				rng := rand.New(rand.NewPCG(1, 1))
				users := make([]cell, 1<<20)
				for i := range users {
					id := string(benchID(rng.IntN(n)))
					users[i].ref, users[i].leaf = t.lookUp(t.dict.hash(id), id)
				}
				measure(b, n, func(i int, _ leaderboard.UserID) {
					u := &users[i&(1<<20-1)]
					t.ranksAt(tr, place{u.leaf, t.forest.leaf(u.leaf).indexOf(u.ref)}, t.forest.countsBefore(u.leaf))
				})
			})
			b.Run("ranks/100", func(b *testing.B) {
				rng := rand.New(rand.NewPCG(1, 1))
				friends := make([]leaderboard.UserID, 1<<16)
				for i := range friends {
					friends[i] = benchID(rng.IntN(n))
				}
				measure(b, n, func(i int, user leaderboard.UserID) {
					group := friends[i*100%(1<<16-100):][:100]
					if s, _, err := x.Standings(ctx, benchLadder, group); err != nil || s[99].Ranks.Ordinal == 0 {
						b.Fatal(s, err)
					}
				})
			})
			// Updates change the index, so they run last.
			for _, batch := range []int{1, 500} {
				b.Run(fmt.Sprintf("update/%d", batch), func(b *testing.B) {
					rng := rand.New(rand.NewPCG(1, 1))
					at := time.Now()
					keys := make([]leaderboard.RankKey, 1<<20)
					for i := range keys {
						keys[i] = key(rng.Uint64N(1 << 53))
					}
					entries := make([]leaderboard.Entry, 0, batch)
					measure(b, n, func(i int, user leaderboard.UserID) {
						benchVersion++
						achieved := at.Add(time.Duration(i) * time.Microsecond)
						entries = append(entries, leaderboard.Entry{User: user, Key: keys[i&(1<<20-1)], AchievedAt: achieved, Version: benchVersion})
						if len(entries) < batch {
							return
						}
						if err := x.Update(ctx, benchSeason, at, entries); err != nil {
							b.Fatal(err)
						}
						entries = entries[:0]
					})
					b.ReportMetric(t.fill(), "fill")
				})
			}
			b.Run("gc", func(b *testing.B) {
				start := cpu()
				for b.Loop() {
					runtime.GC()
				}
				b.ReportMetric(float64(cpu()-start)/float64(b.N), "cpu-ns/op")
			})
		})
	}
}

var benchVersion = uint64(1)

func pages(b *testing.B, x *Index, n, size int) {
	rng := rand.New(rand.NewPCG(1, 1))
	measure(b, n, func(int, leaderboard.UserID) {
		if s, _, err := x.Page(b.Context(), benchLadder, 1+rng.Int64N(int64(n-size)), size); err != nil || len(s) != size {
			b.Fatal(len(s), err)
		}
	})
}

func BenchmarkRebuild(b *testing.B) {
	for _, n := range benchSizes() {
		for _, c := range []struct {
			name    string
			entries iter.Seq2[leaderboard.Entry, error]
		}{
			{"the-entries-alone", func(yield func(leaderboard.Entry, error) bool) {
				for range inNoOrder(n) { // creates the entries and yields none
				}
			}},
			{"in-order", inOrder(n)}, {"in-no-order", inNoOrder(n)},
		} {
			b.Run(fmt.Sprintf("%dM/%s", n/1e6, c.name), func(b *testing.B) {
				x := New()
				start := cpu()
				for b.Loop() {
					if err := x.Rebuild(b.Context(), benchBoard, benchSeason, time.Now(), c.entries); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(cpu()-start)/float64(b.N)/float64(n), "cpu-ns/entry")
			})
		}
	}
}

func BenchmarkReadsBesideWrites(b *testing.B) {
	for _, n := range benchSizes() {
		b.Run(fmt.Sprintf("%dM", n/1e6), func(b *testing.B) {
			x := loadedIndex(b, n)
			other := leaderboard.SeasonKey{Board: "other", Season: leaderboard.SeasonAll}
			if err := x.Rebuild(b.Context(), benchBoard, other, time.Now(), inNoOrder(1e5)); err != nil {
				b.Fatal(err)
			}
			for _, c := range []struct {
				name   string
				season leaderboard.SeasonKey
				users  int
			}{{"no-writer", benchSeason, 0}, {"writer-elsewhere", other, 1e5}, {"writer-here", benchSeason, n}} {
				b.Run(c.name, func(b *testing.B) { readsBesideWriter(b, x, n, c.season, c.users) })
			}
		})
	}
}

// If users is 0, readsBesideWriter does not write.
func readsBesideWriter(b *testing.B, x *Index, n int, season leaderboard.SeasonKey, users int) {
	stop, total := make(chan struct{}), make(chan int)
	go func() {
		rng := rand.New(rand.NewPCG(2, 2))
		batch, updates := make([]leaderboard.Entry, 500), 0
		for ; users > 0; updates += len(batch) {
			select {
			case <-stop:
				total <- updates
				return
			default:
			}
			benchVersion++
			for i := range batch {
				batch[i] = benchEntry(rng.IntN(users), benchVersion, rng)
			}
			if err := x.Update(b.Context(), season, time.Now(), batch); err != nil {
				b.Error(err)
			}
		}
		<-stop
		total <- 0
	}()
	rng := rand.New(rand.NewPCG(3, 3))
	durations := make([]time.Duration, 0, b.N)
	b.ResetTimer()
	for range b.N {
		user := []leaderboard.UserID{benchID(rng.IntN(n))}
		start := time.Now()
		if _, _, err := x.Standings(b.Context(), benchLadder, user); err != nil {
			b.Fatal(err)
		}
		durations = append(durations, time.Since(start))
	}
	b.StopTimer()
	elapsed := b.Elapsed()
	close(stop)
	updates := <-total
	slices.Sort(durations)
	for _, q := range []struct {
		name string
		part float64
	}{{"p50-ns", 0.5}, {"p99-ns", 0.99}, {"p999-ns", 0.999}} {
		b.ReportMetric(float64(durations[int(q.part*float64(len(durations)-1))]), q.name)
	}
	b.ReportMetric(float64(durations[len(durations)-1])/1e3, "max-µs")
	b.ReportMetric(float64(updates)/elapsed.Seconds(), "updates/s")
	b.ReportMetric(0, "ns/op")
}
