package cql

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/storage/storagetest"
	"github.com/open-leaderboard/leaderboard/test/cluster"
)

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

// nodes is how many nodes the shared cluster has: three, as in production. One is
// enough while developing: LEADERBOARD_TEST_CASSANDRA_NODES=1.
func nodes() int {
	if os.Getenv("LEADERBOARD_TEST_CASSANDRA_NODES") == "1" {
		return 1
	}
	return 3
}

func testOptions(addrs []string, keyspace string) Options {
	return Options{Hosts: addrs, DataCenter: "dc1", Keyspace: keyspace, Buckets: 3, Connections: 2}
}

// keyspace makes a keyspace, and removes it when t ends.
func keyspace(t testing.TB, addrs []string, name string, replicas int) Options {
	t.Helper()
	o := testOptions(addrs, name)
	t.Cleanup(func() {
		admin, err := o.connect("")
		if err != nil {
			t.Error(err)
			return
		}
		defer admin.Close()
		if err := admin.Query("DROP KEYSPACE IF EXISTS " + name).Exec(); err != nil {
			t.Error(err)
		}
	})
	if err := ApplySchema(t.Context(), o, map[string]int{"dc1": replicas}, nil); err != nil {
		t.Fatal(err)
	}
	return o
}

// keyspaceName makes a name of the test's own.
func keyspaceName(t testing.TB) string {
	name := strings.ToLower(t.Name())
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, name)
	return fmt.Sprintf("%.20s_%x", name, time.Now().UnixNano()&0xffffff)
}

// a bench is a keyspace that the tests of a group share, emptied between them.
type bench struct {
	options Options
	session *gocql.Session
	written sync.Map // names of tables
}

func newBench(t testing.TB) *bench {
	t.Helper()
	n := nodes()
	o := keyspace(t, cluster.Cassandra(t, n), keyspaceName(t), n)
	gs, err := o.connect(o.Keyspace)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gs.Close)
	return &bench{options: o, session: gs}
}

// empty removes all rows, and all deletions.
func (b *bench) empty(t testing.TB) {
	t.Helper()
	b.written.Range(func(table, _ any) bool {
		if err := b.session.Query("TRUNCATE " + table.(string)).RetryPolicy(nil).Exec(); err != nil {
			t.Fatalf("truncate %s: %v", table, err)
		}
		b.written.Delete(table)
		return true
	})
}

// open returns a store of the shared keyspace, with its own summaries and claims.
func (b *bench) open(t testing.TB) *Store {
	t.Helper()
	return open(shared{session{b.session}, b}, b.options)
}

// shared is a session that the test closes, not the store, and that takes note
// of what is written.
type shared struct {
	conn
	bench *bench
}

var tableWritten = regexp.MustCompile(`^(?:INSERT INTO|UPDATE|DELETE FROM) (\w+)`)

func (s shared) write(ctx context.Context, ops ...op) error {
	for _, o := range ops {
		s.bench.written.Store(tableWritten.FindStringSubmatch(o.stmt)[1], true)
	}
	return s.conn.write(ctx, ops...)
}

func (s shared) swap(ctx context.Context, q op, have map[string]any) (bool, error) {
	s.bench.written.Store(tableWritten.FindStringSubmatch(q.stmt)[1], true)
	return s.conn.swap(ctx, q, have)
}

func (shared) close() {}

func TestContract(t *testing.T) {
	b := newBench(t)
	storagetest.Run(t, func(t testing.TB) leaderboard.Store {
		b.empty(t)
		return b.open(t)
	}, limits)
}

// limits are explained in README.md.
var limits = storagetest.Limits{EntriesFollow: true}

func TestHistories(t *testing.T) {
	b := newBench(t)
	storagetest.RunHistories(t, func(t testing.TB) leaderboard.Store {
		b.empty(t)
		return b.open(t)
	}, limits)
}
