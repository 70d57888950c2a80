package cql

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/open-leaderboard/leaderboard/test/cluster"
)

// Ways to find the rows of a user in a ladder that is clustered by standing, which
// docs/adr/008 compares on the cluster that the tests share:
//
//	go run ./test/cluster/cmd run -- go test -run '^$' -bench 'Index$' -benchtime 1x ./storage/cql
//
//	REQUIRE_INTEGRATION=1 go test -run '^$' -bench StaleReplica -benchtime 1x ./storage/cql
//
// Times are of one statement or batch at LOCAL_QUORUM, by 16 callers at once.
var designs = []struct {
	name   string
	tables []string
	move   func(b *gocql.Batch, user string, from, to []byte, version int64)
	find   string // the rows of a user
	top    string
}{
	{"none", []string{
		`CREATE TABLE IF NOT EXISTS ladder_none (bucket int, standing blob, user_id text, version bigint, PRIMARY KEY ((bucket), standing, user_id))`,
	}, moveIn("ladder_none"), "", `SELECT standing FROM ladder_none WHERE bucket = 0 LIMIT 100`},
	{"legacy", []string{
		`CREATE TABLE IF NOT EXISTS ladder_2i (bucket int, standing blob, user_id text, version bigint, PRIMARY KEY ((bucket), standing, user_id))`,
		`CREATE INDEX IF NOT EXISTS ladder_2i_user ON ladder_2i (user_id)`,
	}, moveIn("ladder_2i"), `SELECT standing FROM ladder_2i WHERE bucket = 0 AND user_id = ?`, `SELECT standing FROM ladder_2i WHERE bucket = 0 LIMIT 100`},
	{"sai", []string{
		`CREATE TABLE IF NOT EXISTS ladder_sai (bucket int, standing blob, user_id text, version bigint, PRIMARY KEY ((bucket), standing, user_id))`,
		`CREATE INDEX IF NOT EXISTS ladder_sai_user ON ladder_sai (user_id) USING 'sai'`,
	}, moveIn("ladder_sai"), `SELECT standing FROM ladder_sai WHERE bucket = 0 AND user_id = ?`, `SELECT standing FROM ladder_sai WHERE bucket = 0 LIMIT 100`},
	{"two_tables", []string{
		`CREATE TABLE IF NOT EXISTS ladder_two (bucket int, standing blob, user_id text, version bigint, PRIMARY KEY ((bucket), standing, user_id))`,
		`CREATE TABLE IF NOT EXISTS ladder_by_user (bucket int, user_id text, standing blob, PRIMARY KEY ((bucket), user_id))`,
	}, func(b *gocql.Batch, user string, from, to []byte, version int64) {
		moveIn("ladder_two")(b, user, from, to, version)
		b.Query(`INSERT INTO ladder_by_user (bucket, user_id, standing) VALUES (0, ?, ?) USING TIMESTAMP ?`, user, to, 2*version+1)
	}, `SELECT standing FROM ladder_by_user WHERE bucket = 0 AND user_id = ?`, `SELECT standing FROM ladder_two WHERE bucket = 0 LIMIT 100`},
}

func moveIn(table string) func(*gocql.Batch, string, []byte, []byte, int64) {
	return func(b *gocql.Batch, user string, from, to []byte, version int64) {
		b.Query(`INSERT INTO `+table+` (bucket, standing, user_id, version) VALUES (0, ?, ?, ?) USING TIMESTAMP ?`, to, user, version, 2*version+1)
		if from != nil {
			b.Query(`DELETE FROM `+table+` USING TIMESTAMP ? WHERE bucket = 0 AND standing = ? AND user_id = ?`, 2*version, from, user)
		}
	}
}

func benchStanding(score uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, ^score), 1)
}

// inParallel runs f for every number below n, 16 at a time, and returns how long
// each took.
func inParallel(t testing.TB, n int, f func(i int) error) []time.Duration {
	t.Helper()
	times := make([]time.Duration, n)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				start := time.Now()
				if err := f(i); err != nil {
					t.Error(err)
					return
				}
				times[i] = time.Since(start)
			}
		})
	}
	wg.Wait()
	return times
}

const benchUsers = 2000

// ladder is a design at work.
type benchLadder struct {
	name             string
	moves, top, find func(i int) error
	improve          func(i int) error
	moveTo           func(i int, score uint64) error // may be repeated
}

// BenchmarkIndexOfAStaleReplica says how many of the users that moved while a node
// was down are found wrongly when it is back, and another, which has seen the
// moves, is down. It hurts servers, so it starts its own: REQUIRE_INTEGRATION=1.
func BenchmarkIndexOfAStaleReplica(b *testing.B) {
	c := cluster.Private(b, cluster.StartCassandra, cluster.CassandraConfig{DataCenters: cluster.OneDC(3)})
	o := realOptions(c.Addrs(), "stale")
	if err := ApplySchema(b.Context(), o, map[string]int{"dc1": 3}, nil); err != nil {
		b.Fatal(err)
	}
	gs, err := o.connect(o.Keyspace)
	if err != nil {
		b.Fatal(err)
	}
	defer gs.Close()
	ladders := make([]*benchLadder, len(designs))
	for i := range designs {
		ladders[i] = newBenchLadder(b, gs, i)
	}
	if err := c.Servers[2].Kill(); err != nil {
		b.Fatal(err)
	}
	for _, l := range ladders {
		inParallel(b, benchUsers, func(i int) error {
			return patiently(func() error { return fault(b.Context(), "move", l.moveTo(i, 77)) }, func() bool { return true })
		})
	}
	if err := c.Servers[2].Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	if err := c.Servers[0].Kill(); err != nil {
		b.Fatal(err)
	}
	for _, l := range ladders {
		if l.find == nil {
			continue
		}
		var wrong atomic.Int64
		inParallel(b, benchUsers, func(i int) error {
			err := patiently(func() error {
				err := l.find(i)
				if errors.Is(err, errFound) {
					return err
				}
				return fault(b.Context(), "find", err)
			}, func() bool { return true })
			if errors.Is(err, errFound) {
				wrong.Add(1)
				return nil
			}
			return err
		})
		b.ReportMetric(float64(wrong.Load()), l.name+"-wrong")
	}
	b.ReportMetric(0, "ns/op")
}

var errFound = errors.New("found wrongly")

func newBenchLadder(b *testing.B, gs *gocql.Session, at int) *benchLadder {
	d := designs[at]
	for _, table := range d.tables {
		if err := gs.Query(table).RetryPolicy(nil).Exec(); err != nil {
			b.Fatal(err)
		}
	}
	move := func(i int, from, to []byte, version int64) error {
		batch := gs.NewBatch(gocql.UnloggedBatch)
		d.move(batch, fmt.Sprintf("user-%08d", i), from, to, version)
		return gs.ExecuteBatch(batch)
	}
	scores, versions := make([]uint64, benchUsers), make([]int64, benchUsers)
	inParallel(b, benchUsers, func(i int) error { return move(i, nil, benchStanding(0), 0) })
	const best = uint64(1 << 40)
	if err := move(benchUsers, nil, benchStanding(best), 0); err != nil {
		b.Fatal(err)
	}
	l := &benchLadder{name: d.name}
	l.moves = func(i int) error {
		i %= benchUsers
		from := benchStanding(scores[i])
		scores[i] += 1 + uint64(rand.IntN(1000))
		versions[i]++
		return move(i, from, benchStanding(scores[i]), versions[i])
	}
	l.moveTo = func(i int, score uint64) error {
		scores[i] = score
		return move(i, benchStanding(0), benchStanding(score), 1)
	}
	l.top = func(int) error {
		if n := gs.Query(d.top).Iter().NumRows(); n != 100 {
			return fmt.Errorf("%s: %d rows of the top", d.name, n)
		}
		return nil
	}
	l.improve = func(i int) error {
		return move(benchUsers, benchStanding(best+uint64(i)), benchStanding(best+uint64(i)+1), int64(i)+1)
	}
	if d.find != "" {
		l.find = func(i int) error {
			i %= benchUsers
			var standing []byte
			n := 0
			iter := gs.Query(d.find, fmt.Sprintf("user-%08d", i)).Iter()
			for iter.Scan(&standing) {
				n++
			}
			if err := iter.Close(); err != nil {
				return err
			}
			if n != 1 || string(standing) != string(benchStanding(scores[i])) {
				return fmt.Errorf("%s: user %d is %w: %d times, at %x", d.name, i, errFound, n, standing)
			}
			return nil
		}
	}
	return l
}

func BenchmarkIndex(b *testing.B) {
	gs := real.on(b).session
	ladders := make([]*benchLadder, len(designs))
	for i := range designs {
		ladders[i] = newBenchLadder(b, gs, i)
	}
	// The designs take turns, so that what else the machine does meets them all.
	measure := func(name string, n int, what func(*benchLadder) func(int) error) {
		b.Run(name, func(b *testing.B) {
			const rounds = 10
			times := map[string][]time.Duration{}
			for round := range rounds {
				for _, l := range ladders {
					if f := what(l); f != nil {
						times[l.name] = append(times[l.name], inParallel(b, n/rounds, func(i int) error { return f(round*n/rounds + i) })...)
					}
				}
			}
			for name, t := range times {
				slices.Sort(t)
				b.ReportMetric(float64(t[len(t)/2].Microseconds()), name+"-µs")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
	measure("move", benchUsers, func(l *benchLadder) func(int) error { return l.moves })
	measure("find", benchUsers, func(l *benchLadder) func(int) error { return l.find })
	measure("top100", 400, func(l *benchLadder) func(int) error { return l.top })
	measure("improve", 10_000, func(l *benchLadder) func(int) error { return l.improve })
	measure("top100_after_10000_improvements", 400, func(l *benchLadder) func(int) error { return l.top })
}
