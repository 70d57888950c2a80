// Long: the suite runs on a real Cassandra, and on a model of it with many orders of statements.

package cql

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/engine"
	"github.com/open-leaderboard/leaderboard/internal/observe"
	"github.com/open-leaderboard/leaderboard/schema"
	"github.com/open-leaderboard/leaderboard/storage"
	"github.com/open-leaderboard/leaderboard/storage/storagetest"
	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

var _ = needs.PackageWithoutRace("models run statements in chosen orders, and other tests one after another")

func TestMain(m *testing.M) {
	// These tests mostly wait for the nodes.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(cluster.MainThen(m, shared.drop))
}

// All tests share one keyspace, because creating tables takes longer than most tests.
var shared keyspace

type keyspace struct {
	once    sync.Once
	options Options
	session *gocql.Session
	err     error

	tenants atomic.Int64
}

func realOptions(addrs []string, keyspace string) Options {
	return Options{Hosts: addrs, DataCenter: "dc1", Keyspace: keyspace, Buckets: 3, Connections: 2, Timeout: time.Minute}
}

// If busy nodes refuse a call, tests retry the call for busyTime.
const busyTime = 5 * time.Minute

func (k *keyspace) createOnce(t testing.TB) *keyspace {
	t.Helper()
	nodes := 1
	if needs.Running("clusters") {
		nodes = 3
	}
	addrs := cluster.Cassandra(t, nodes)
	k.once.Do(func() {
		k.options = realOptions(addrs, fmt.Sprintf("storage_cql_%x", time.Now().UnixNano()&0xffffffff))
		if k.err = k.options.complete(); k.err != nil {
			return
		}
		if k.err = applySchema(k.options, nodes); k.err == nil {
			k.session, k.err = k.options.connect(k.options.Keyspace)
		}
		if k.err == nil {
			k.session.SetPageSize(pageRows / 10) // smaller pages, because the tests write fewer rows: see sizes
		}
	})
	if k.err != nil {
		t.Fatal(k.err)
	}
	return k
}

// applySchema retries: busy nodes may need minutes to agree on tables.
func applySchema(o Options, replicas int) error {
	_, err := backoff.Retry(context.Background(), func() (struct{}, error) {
		err := ApplySchema(context.Background(), o, map[string]int{o.DataCenter: replicas}, nil)
		if errors.Is(err, schema.ErrChanged) || errors.Is(err, schema.ErrNewer) {
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithMaxElapsedTime(busyTime))
	return err
}

func (k *keyspace) drop() {
	if k.session == nil {
		return
	}
	defer k.session.Close()
	// If the driver times out, the servers still drop the keyspace.
	_ = k.session.Query("DROP KEYSPACE IF EXISTS " + k.options.Keyspace).RetryPolicy(nil).Exec()
}

func (k *keyspace) tenant() *tenant {
	return &tenant{conn: retryingConn{session{k.session}}, n: k.tenants.Add(1), hashes: map[string][]byte{}}
}

// A tenant changes the keys of its rows, so that tests can share tables:
//
//   - Boards and names of lists get a prefix.
//   - Hashes are hashed again with the prefix.
//   - Realm 0 becomes another realm.
type tenant struct {
	conn
	n int64

	mu     sync.Mutex
	hashes map[string][]byte // the hashes that the store uses, by the hashes in the tables
}

func (t *tenant) prefix() string { return fmt.Sprintf("tenant-%d/", t.n) }

func (t *tenant) renameKeys(q op) op {
	realm := fmt.Sprint(int8(t.n))
	out := op{strings.NewReplacer("realm = 0", "realm = "+realm, "VALUES (0, ", "VALUES ("+realm+", ").Replace(q.stmt), slices.Clone(q.args)}
	for i, column := range argumentColumns(q.stmt) {
		switch {
		case column == "board", column == "token(board,", column == "list":
			out.args[i] = t.prefix() + q.args[i].(string)
		case column == "list IN":
			lists := slices.Clone(q.args[i].([]string))
			for j := range lists {
				lists[j] = t.prefix() + lists[j]
			}
			out.args[i] = lists
		case column == "user_hash":
			out.args[i] = t.hash(q.args[i].([]byte))
		}
	}
	return out
}

func (t *tenant) hash(storeHash []byte) []byte {
	sum := sha256.Sum256(append([]byte(t.prefix()), storeHash...))
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hashes[string(sum[:])] = storeHash
	return sum[:]
}

// restore undoes renameKeys for a value. It returns false for a row of another tenant.
func (t *tenant) restore(column string, dest any) (ok bool) {
	switch v := dest.(type) {
	case *string:
		if column == "board" || column == "list" {
			*v, ok = strings.CutPrefix(*v, t.prefix())
			return ok
		}
	case *[]byte:
		if column == "user_hash" {
			t.mu.Lock()
			defer t.mu.Unlock()
			*v, ok = t.hashes[string(*v)]
			*v = slices.Clone(*v)
			return ok
		}
	}
	return true
}

// argumentColumns returns the column of each argument, or "" for a timestamp or a key of a
// collection. It omits the arguments of tuples, limits and conditions, which are the last.
func argumentColumns(stmt string) []string {
	p := parse(stmt)
	var out []string
	add := func(text, column string) {
		if strings.Contains(text, "?") {
			out = append(out, column)
		}
	}
	if p.verb != "INSERT" {
		add(p.timestamp, "")
	}
	for i, v := range p.values {
		if v == "?=?" {
			out = append(out, "")
		}
		if v == "+" {
			v = "?"
		}
		add(v, p.columns[i])
	}
	if p.verb == "INSERT" {
		add(p.timestamp, "")
	}
	for _, w := range p.where {
		add(w[1], w[0])
	}
	return out
}

func (t *tenant) read(ctx context.Context, q op, dest []any, row func() bool) error {
	p := parse(q.stmt)
	return t.conn.read(ctx, t.renameKeys(q), dest, func() bool {
		for i, c := range p.columns {
			if !t.restore(c, dest[i]) {
				return true
			}
		}
		return row()
	})
}

func (t *tenant) write(ctx context.Context, ops ...op) error {
	renamed := make([]op, len(ops))
	for i, o := range ops {
		renamed[i] = t.renameKeys(o)
	}
	return t.conn.write(ctx, renamed...)
}

func (t *tenant) swap(ctx context.Context, q op, row map[string]any) (bool, error) {
	return t.conn.swap(ctx, t.renameKeys(q), row)
}

func (*tenant) close() {}

type retryingConn struct{ conn }

func (r retryingConn) read(ctx context.Context, q op, dest []any, row func() bool) error {
	visited := false
	return whileBusy(ctx, func() error {
		err := r.conn.read(ctx, q, dest, func() bool {
			visited = true
			return row()
		})
		if err != nil && visited {
			err = backoff.Permanent(err) // a retry would call row again for the same rows
		}
		return err
	})
}

func (r retryingConn) write(ctx context.Context, ops ...op) error {
	return whileBusy(ctx, func() error { return r.conn.write(ctx, ops...) })
}

func (r retryingConn) swap(ctx context.Context, q op, row map[string]any) (ok bool, err error) {
	err = whileBusy(ctx, func() (err error) {
		ok, err = r.conn.swap(ctx, q, row)
		return err
	})
	return ok, err
}

func whileBusy(ctx context.Context, f func() error) error {
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := f()
		if err != nil && (!errors.Is(err, leaderboard.ErrUnavailable) || ctx.Err() != nil) {
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(backoff.NewConstantBackOff(retryMin)), backoff.WithMaxElapsedTime(busyTime))
	return err
}

func (k *keyspace) store() *testStore { return openTest(k.tenant(), k.options) }

// sizes are small: on real servers, each write takes milliseconds.
var sizes = storagetest.Sizes{Histories: 2, RowsDivisor: 10, RoundsDivisor: 5}

// The store has the decorator that the command `serve` adds.
func TestContract(t *testing.T) {
	needs.Also(t, "clusters")
	needs.Race(t)
	t.Parallel()
	k := shared.createOnce(t)
	storagetest.Run(t, func(t testing.TB) leaderboard.Store {
		t.(*testing.T).Parallel()
		return observe.Store(engine.New(k.store().Store), prometheus.NewRegistry())
	}, limits, sizes)
}

func TestBackend(t *testing.T) {
	t.Parallel()
	k := shared.createOnce(t)
	storagetest.RunBackend(t, func(t testing.TB) storage.Backend {
		t.(*testing.T).Parallel()
		return k.store().Store
	})
}

func TestOpenRefusesWhatItCannotServe(t *testing.T) {
	t.Parallel()
	k := shared.createOnce(t)
	for _, tt := range []struct {
		name   string
		change func(*Options)
		want   error
	}{
		{"a data center that does not exist", func(o *Options) { o.DataCenter = "dc9" }, schema.ErrDataCenter},
		{"a keyspace that does not exist", func(o *Options) { o.Keyspace = "nowhere" }, leaderboard.ErrUnavailable},
		{"a keyspace without the store's tables", func(o *Options) { o.Keyspace = "system_auth" }, schema.ErrOlder},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := k.options
			tt.change(&o)
			if s, err := Open(t.Context(), o); !errors.Is(err, tt.want) {
				t.Errorf("Open: %v, want %v", err, tt.want)
				if err == nil {
					s.Close()
				}
			}
		})
	}
}

func TestHistories(t *testing.T) {
	needs.Also(t, "clusters")
	t.Parallel()
	k := shared.createOnce(t)
	one := sizes
	one.Histories = 1
	for i := range sizes.Histories {
		t.Run(fmt.Sprint(i+1), func(t *testing.T) {
			t.Parallel()
			storagetest.RunHistories(t, func(testing.TB) leaderboard.Store { return engine.New(k.store().Store) }, one)
		})
	}
}
