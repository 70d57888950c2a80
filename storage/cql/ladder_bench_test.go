package cql

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

const (
	benchUsers   = 2000
	benchCallers = 16
)

// In improve, 10,000 improvements of the best user leave 10,000 tombstones. The benchmark
// needs servers:
//
//	go run ./test/cluster/cmd run -- go test -run '^$' -bench Ladder -benchtime 1x ./storage/cql
func BenchmarkLadder(b *testing.B) {
	l := &benchLadder{conn: shared.createOnce(b).tenant(), scores: make([]uint64, benchUsers), versions: make([]uint64, benchUsers)}
	inParallel(b, benchUsers, func(i int) error { return l.place(b.Context(), i, 0, 0, 0) })
	const best = uint64(1 << 40)
	if err := l.place(b.Context(), benchUsers, best, best, 0); err != nil {
		b.Fatal(err)
	}
	improve := func(ctx context.Context, i int) error {
		return l.place(ctx, benchUsers, best+uint64(i), best+uint64(i)+1, uint64(i)+1)
	}
	for _, m := range []struct {
		name string
		n    int
		f    func(context.Context, int) error
	}{
		{"move", benchUsers, l.move},
		{"find", benchUsers, l.find},
		{"top100", 400, l.top},
		{"improve", 10_000, improve},
		{"top100_after_10000_improvements", 400, l.top},
	} {
		b.Run(m.name, func(b *testing.B) {
			times := inParallel(b, m.n, func(i int) error { return m.f(b.Context(), i) })
			slices.Sort(times)
			b.ReportMetric(float64(times[len(times)/2].Microseconds()), "median-µs")
			b.ReportMetric(0, "ns/op")
		})
	}
}

type benchLadder struct {
	conn
	scores, versions []uint64 // of each user
}

func (l *benchLadder) key(args ...any) []any {
	return append([]any{"bench", string(leaderboard.SeasonAll), 0, "", 0}, args...)
}

func benchStanding(score uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, ^score), 1)
}

// place inserts the row with newScore. If oldScore differs, it deletes the row with oldScore.
func (l *benchLadder) place(ctx context.Context, user int, oldScore, newScore, version uint64) error {
	id := fmt.Sprintf("user-%08d", user)
	ops := []op{{insertRow, l.key(benchStanding(newScore), id, int64(version), insertTime(version))}}
	if oldScore != newScore {
		ops = append(ops, op{deleteRow, append([]any{deleteTime(version)}, l.key(benchStanding(oldScore), id)...)})
	}
	return l.write(ctx, ops...)
}

func (l *benchLadder) move(ctx context.Context, user int) error {
	oldScore := l.scores[user]
	l.scores[user] += 1 + uint64(rand.IntN(1000))
	l.versions[user]++
	return l.place(ctx, user, oldScore, l.scores[user], l.versions[user])
}

func (l *benchLadder) find(ctx context.Context, user int) error {
	var standing []byte
	var written *int64
	rows, err := gather(ctx, l, op{selectUserRows, l.key(fmt.Sprintf("user-%08d", user))}, []any{&standing, &written},
		func() ([]byte, error) { return take(&standing), nil })
	if err == nil && (len(rows) != 1 || string(rows[0]) != string(benchStanding(l.scores[user]))) {
		err = fmt.Errorf("user %d has the rows %x, want only %x", user, rows, benchStanding(l.scores[user]))
	}
	return err
}

func (l *benchLadder) top(ctx context.Context, _ int) error {
	var standing []byte
	var user string
	n := 0
	err := l.read(ctx, op{selectTop, l.key(100)}, []any{&standing, &user}, func() bool { n++; return true })
	if err == nil && n != 100 {
		err = fmt.Errorf("the query of the top returns %d rows, want 100", n)
	}
	return err
}

func inParallel(b *testing.B, n int, f func(i int) error) []time.Duration {
	b.Helper()
	times := make([]time.Duration, n)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range benchCallers {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				start := time.Now()
				if err := f(i); err != nil {
					b.Error(err)
					return
				}
				times[i] = time.Since(start)
			}
		})
	}
	wg.Wait()
	return times
}
