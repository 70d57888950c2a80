package pebble

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	leaderboard "github.com/open-leaderboard/leaderboard"
)

// The function floor does the least work with the outcome of op.
func compareToFloor(b *testing.B, workers int, op, floor func(i int) error) {
	b.Helper()
	run := func(f func(int) error) (wall, cpu time.Duration) {
		start, startCPU := time.Now(), processTime(b)
		var calls atomic.Int64
		var wg sync.WaitGroup
		for range workers {
			wg.Go(func() {
				for {
					i := int(calls.Add(1)) - 1
					if i >= b.N {
						return
					}
					if err := f(i); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		return time.Since(start), processTime(b) - startCPU
	}
	run(floor) // This warms the caches for both.
	b.ResetTimer()
	wall, cpu := run(op)
	b.StopTimer()
	floorWall, floorCPU := run(floor)
	b.ReportMetric(float64(wall)/float64(floorWall), "x_floor")
	b.ReportMetric(float64(cpu)/float64(floorCPU), "cpu_x_floor")
	b.ReportMetric(float64(cpu.Nanoseconds())/float64(b.N), "cpu-ns/op")
}

func processTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func openBench(b *testing.B, fs vfs.FS) *testStore {
	b.Helper()
	dir := "data"
	if fs == nil {
		dir = b.TempDir()
	}
	s := mustOpen(b, dir, Options{FS: fs})
	b.Cleanup(func() { mustClose(b, s) })
	if err := s.CreateBoard(context.Background(), *testBoard()); err != nil {
		b.Fatal(err)
	}
	return s
}

func benchResult(user, match int) leaderboard.MatchResult {
	return leaderboard.MatchResult{
		ResultKey:  leaderboard.ResultKey{SeasonKey: testSeason, User: leaderboard.UserID(fmt.Sprintf("user-%07d", user)), Match: leaderboard.MatchID(fmt.Sprintf("match-%010d", match))},
		Score:      leaderboard.Score(match%100 + 1),
		AchievedAt: testEpoch.Add(time.Duration(match) * time.Millisecond), ReceivedAt: testEpoch.Add(time.Hour),
		Attributes: map[string]string{"gender": []string{"F", "M"}[user%2]},
	}
}

// writeFloor sets and deletes as many rows as Apply does for users who already have results. It
// deletes rows that need not exist.
func writeFloor(s *testStore, results []leaderboard.MatchResult) error {
	return writeRows(s, results, true, pebble.Sync)
}

// If replace is true, writeRows also deletes ladder rows, which need not exist.
func writeRows(s *testStore, results []leaderboard.MatchResult, replace bool, opts *pebble.WriteOptions) error {
	rowKey := makeSeasonRowKey(1, testSeason.Season)
	bd := s.board("b")
	batch := s.db.NewBatch()
	for _, r := range results {
		st := userState{s: s.Store, bd: bd, season: r.Season, user: r.User, rowKey: rowKey}
		st.row.tally = bd.Add(st.row.tally, &r)
		old := st.entry()
		old.AchievedAt = old.AchievedAt.Add(-time.Millisecond)
		updated := st.entry()
		row, err := st.row.append(nil)
		if err != nil {
			return err
		}
		if err := batch.Set(rowKey.record(r.User, r.Match), appendRecord(nil, &leaderboard.Record{Result: &r}), nil); err != nil {
			return err
		}
		if err := batch.Set(rowKey.user(r.User), row, nil); err != nil {
			return err
		}
		var oldRows []placement
		if replace {
			oldRows = bd.placements(rowKey, &old)
		}
		if err := replaceRows(batch, oldRows, bd.placements(rowKey, &updated)); err != nil {
			return err
		}
	}
	return batch.Commit(opts)
}

func benchSizes() []int {
	if os.Getenv("LEADERBOARD_BENCH_LARGE") != "" {
		return []int{1e6, 10e6}
	}
	return []int{1e6}
}

// For writes, the floor (see compareToFloor) uses a copy of the store.
func BenchmarkStore(b *testing.B) {
	for _, n := range benchSizes() {
		b.Run(fmt.Sprintf("%dM", n/1e6), func(b *testing.B) {
			s := openBench(b, nil)
			start, startCPU := time.Now(), processTime(b)
			applied := min(n, 1e6)
			loadUsers(b, s, applied)
			wall, cpu := time.Since(start), processTime(b)-startCPU
			loadRows(b, s, applied, n)
			b.Run("load", func(b *testing.B) {
				for b.Loop() {
				}
				b.ReportMetric(float64(cpu.Nanoseconds())/float64(applied), "cpu-ns/entry")
				b.ReportMetric(wall.Seconds(), "s")
				b.ReportMetric(float64(s.db.Metrics().DiskSpaceUsage())/float64(n), "B/entry")
				b.ReportMetric(0, "ns/op")
			})
			b.Run("scan", func(b *testing.B) { benchmarkScan(b, s, n) })
			b.Run("entry", func(b *testing.B) { benchmarkEntry(b, s, n) })
			b.Run("page/100", func(b *testing.B) { benchmarkPage(b, s, n) })

			dir := filepath.Join(b.TempDir(), "floor")
			if err := s.Backup(b.Context(), dir); err != nil {
				b.Fatal(err)
			}
			floor := mustOpen(b, dir, Options{})
			defer mustClose(b, floor)
			b.Run("apply/1", func(b *testing.B) { benchmarkApply(b, s, floor, n, 1, 1) })
			b.Run("apply/1/64writers", func(b *testing.B) { benchmarkApply(b, s, floor, n, 64, 1) })
			b.Run("apply/1000", func(b *testing.B) { benchmarkApply(b, s, floor, n, 1, 1000) })
		})
	}
}

// benchMatch is the number of matches that benchmarkApply has used.
var benchMatch atomic.Int64

func benchmarkApply(b *testing.B, s, floor *testStore, users, workers, size int) {
	count := int64(b.N * size)
	first := int(benchMatch.Add(count)-count) + users
	batch := func(i int) []leaderboard.MatchResult {
		results := make([]leaderboard.MatchResult, size)
		for j := range results {
			results[j] = benchResult((i*size+j)*7919%users, first+i*size+j)
		}
		return results
	}
	compareToFloor(b, workers, func(i int) error {
		_, err := s.Apply(context.Background(), testBoard(), batch(i))
		return err
	}, func(i int) error { return writeFloor(floor, batch(i)) })
}

// One more result must cost the same after 10 and after 10,000 results. The stores are in memory,
// so disk time is excluded.
func BenchmarkApplyToUserWithResults(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s, floor := openBench(b, vfs.NewMem()), openBench(b, vfs.NewMem())
			results := make([]leaderboard.MatchResult, n)
			for i := range results {
				results[i] = benchResult(1, i)
			}
			mustApply(b, s, results...)
			mustApply(b, floor, results...)
			compareToFloor(b, 1, func(i int) error {
				_, err := s.Apply(context.Background(), testBoard(), []leaderboard.MatchResult{benchResult(1, n+i)})
				return err
			}, func(i int) error { return writeFloor(floor, []leaderboard.MatchResult{benchResult(1, n+i)}) })
		})
	}
}

func loadUsers(b *testing.B, s *testStore, n int) {
	b.Helper()
	results := make([]leaderboard.MatchResult, 0, 5000)
	for from := 0; from < n; from += len(results) {
		results = results[:min(cap(results), n-from)]
		for i := range results {
			results[i] = benchResult(from+i, from+i)
		}
		mustApply(b, s, results...)
	}
	if err := s.db.Flush(); err != nil {
		b.Fatal(err)
	}
}

func loadRows(b *testing.B, s *testStore, first, n int) {
	b.Helper()
	results := make([]leaderboard.MatchResult, 0, 5000)
	for ; first < n; first += len(results) {
		results = results[:min(cap(results), n-first)]
		for i := range results {
			results[i] = benchResult(first+i, first+i)
		}
		if err := writeRows(s, results, false, pebble.NoSync); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.db.Flush(); err != nil {
		b.Fatal(err)
	}
}

func benchmarkEntry(b *testing.B, s *testStore, users int) {
	rowKey := makeSeasonRowKey(1, testSeason.Season)
	user := func(i int) leaderboard.UserID { return benchResult(i*7919%users, 0).User }
	compareToFloor(b, 1, func(i int) error {
		_, err := s.Entry(context.Background(), testSeason, user(i))
		return err
	}, func(i int) error {
		_, closer, err := s.db.Get(rowKey.user(user(i)))
		if err != nil {
			return err
		}
		return closer.Close()
	})
}

// Pebble's bloom filters answer most of these reads without a read of a block.
func BenchmarkEntryOfUnknownUser(b *testing.B) {
	s := openBench(b, nil)
	loadUsers(b, s, 200_000)
	for i := 0; b.Loop(); i++ {
		if _, err := s.Entry(context.Background(), testSeason, leaderboard.UserID(fmt.Sprint("nobody-", i))); err == nil {
			b.Fatal("Entry of an unknown user returns no error, want ErrEntryNotFound")
		}
	}
}

func readPage(s *testStore, l leaderboard.Ladder, after leaderboard.SortKey) error {
	n := 0
	for _, err := range s.Entries(context.Background(), l, after) {
		if err != nil {
			return err
		}
		if n++; n == 100 {
			return nil
		}
	}
	return fmt.Errorf("the page has %d entries, want 100", n)
}

func readPageFloor(s *testStore, from []byte) error {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: from})
	if err != nil {
		return err
	}
	n := 0
	for ok := it.First(); ok && n < 100; ok = it.Next() {
		if _, err := it.ValueAndErr(); err != nil {
			return err
		}
		n++
	}
	return it.Close()
}

func benchmarkPage(b *testing.B, s *testStore, users int) {
	l := leaderboard.Ladder{SeasonKey: testSeason}
	var keys []leaderboard.SortKey
	i := 0
	for e, err := range s.Entries(context.Background(), l, "") {
		if err != nil {
			b.Fatal(err)
		}
		if i++; i%(users/1000) == 1 && i < users-200 {
			keys = append(keys, e.SortKey())
		}
	}
	prefix := makeSeasonRowKey(1, testSeason.Season).ladder([]byte{slotOverall})
	key := func(i int) leaderboard.SortKey { return keys[i*7919%len(keys)] }
	compareToFloor(b, 1, func(i int) error { return readPage(s, l, key(i)) },
		func(i int) error { return readPageFloor(s, append(prefix[:len(prefix):len(prefix)], key(i)...)) })
}

// Each of the 10,000 improvements leaves a tombstone (Pebble's mark of a deleted row) near the top.
func BenchmarkTop100After10000Improvements(b *testing.B) {
	s, floor := openBench(b, nil), openBench(b, nil)
	loadUsers(b, s, 10_000)
	loadUsers(b, floor, 10_000)
	for i := range 10 {
		results := make([]leaderboard.MatchResult, 1000)
		for j := range results {
			results[j] = benchResult(1, 1_000_000+1000*i+j)
		}
		for _, r := range results {
			mustApply(b, s, r)
		}
	}
	l := leaderboard.Ladder{SeasonKey: testSeason}
	compareToFloor(b, 1, func(int) error { return readPage(s, l, "") }, func(int) error { return readPage(floor, l, "") })
}

func benchmarkScan(b *testing.B, s *testStore, users int) {
	prefix := makeSeasonRowKey(1, testSeason.Season).ladder([]byte{slotOverall})
	compareToFloor(b, 1, func(int) error {
		n := 0
		for _, err := range s.Scan(context.Background(), testSeason, leaderboard.Part{}) {
			if err != nil {
				return err
			}
			n++
		}
		if n != users {
			return fmt.Errorf("Scan yields %d entries, want %d", n, users)
		}
		return nil
	}, func(int) error {
		return s.scan(context.Background(), prefix, keyAfter(prefix), func(_, _ []byte) (bool, error) { return true, nil })
	})
	b.ReportMetric(float64(b.N*users)/b.Elapsed().Seconds(), "entries/s")
}

func BenchmarkSeal(b *testing.B) {
	const users = 100_000
	s := openBench(b, nil)
	loadUsers(b, s, users)
	if _, err := s.Seal(context.Background(), testBoard(), testSeason.Season, testEpoch); err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		if _, err := s.Amend(context.Background(), testBoard(), testSeason.Season, leaderboard.Amendment{At: testEpoch.Add(time.Duration(i) * time.Second)}, nil); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*users)/b.Elapsed().Seconds(), "users/s")
}

// BenchmarkAmendment changes one user of a sealed season, and amends its final standings.
func BenchmarkAmendment(b *testing.B) {
	const users = 100_000
	s := openBench(b, nil)
	loadUsers(b, s, users)
	ctx, board := context.Background(), testBoard()
	if _, err := s.Seal(ctx, board, testSeason.Season, testEpoch); err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		for user, err := range s.Users(ctx, testSeason) {
			if err == nil {
				_, err = s.SetBan(ctx, leaderboard.Ban{User: user, Banned: i%2 == 0, At: testEpoch, Revision: int64(i + 1)})
			}
			if err == nil {
				_, err = s.Amend(ctx, board, testSeason.Season, leaderboard.Amendment{At: testEpoch.Add(time.Duration(i) * time.Second)}, []leaderboard.UserID{user})
			}
			if err != nil {
				b.Fatal(err)
			}
			break
		}
	}
}
