package cql

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/schema"
	"github.com/open-leaderboard/leaderboard/storage/storagetest"
	"github.com/open-leaderboard/leaderboard/test/cluster"
)

func TestMain(m *testing.M) {
	os.Exit(cluster.MainThen(m, real.drop))
}

// real is the keyspace on the shared cluster in which all tests of this package
// work: to make tables takes longer than most of them.
var real bench

type bench struct {
	once    sync.Once
	options Options
	session *gocql.Session
	err     error

	mu   sync.Mutex
	next int
}

func realOptions(addrs []string, keyspace string) Options {
	return Options{Hosts: addrs, DataCenter: "dc1", Keyspace: keyspace, Buckets: 3, Connections: 2, Timeout: time.Minute}
}

// on returns the keyspace, made before.
func (b *bench) on(t testing.TB) *bench {
	t.Helper()
	addrs := cluster.Cassandra(t, 3)
	b.once.Do(func() {
		b.options = realOptions(addrs, fmt.Sprintf("storage_cql_%x", time.Now().UnixNano()&0xffffffff))
		if b.err = b.options.complete(); b.err != nil {
			return
		}
		// Nodes that are busy may take minutes to agree on tables.
		for start := time.Now(); ; {
			b.err = ApplySchema(context.Background(), b.options, map[string]int{"dc1": 3}, nil)
			if b.err == nil || time.Since(start) > 5*time.Minute {
				break
			}
		}
		if b.err == nil {
			b.session, b.err = b.options.connect(b.options.Keyspace)
		}
		if b.err == nil {
			b.session.SetPageSize(pageRows / 10) // as there are fewer rows: see few
		}
	})
	if b.err != nil {
		t.Fatal(b.err)
	}
	return b
}

// drop removes the keyspace.
func (b *bench) drop() {
	if b.session == nil {
		return
	}
	defer b.session.Close()
	// If it takes too long for the driver, the servers do it all the same.
	_ = b.session.Query("DROP KEYSPACE IF EXISTS " + b.options.Keyspace).RetryPolicy(nil).Exec()
}

// tenants is how many can be told from each other in tables of one partition.
const tenants = 256

// tenant returns a session to which the keyspace is empty: what is written
// through it is seen through it alone.
func (b *bench) tenant(t testing.TB) tenant {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.next
	b.next++
	if n > 0 && n%tenants == 0 {
		for _, table := range []string{"boards", "api_keys"} {
			if err := b.session.Query("TRUNCATE " + table).RetryPolicy(nil).Exec(); err != nil {
				t.Fatalf("truncate %s: %v", table, err)
			}
		}
	}
	return tenant{session{b.session}, n}
}

// tenant is a session of which boards, users and keys have names of its own in
// the tables.
type tenant struct {
	conn
	n int
}

func (t tenant) prefix() string { return fmt.Sprintf("tenant-%d/", t.n) }

// rename returns a statement on the tenant's part of the tables.
func (t tenant) rename(q op) op {
	realm := fmt.Sprint(t.n%tenants - tenants/2)
	out := op{strings.NewReplacer("realm = 0", "realm = "+realm, "VALUES (0, ", "VALUES ("+realm+", ").Replace(q.stmt), slices.Clone(q.args)}
	for i, column := range argumentColumns(q.stmt) {
		switch column {
		case "board":
			out.args[i] = t.prefix() + q.args[i].(string)
		case "user_hash":
			sum := sha256.Sum256(append([]byte(t.prefix()), q.args[i].([]byte)...))
			out.args[i] = sum[:]
		}
	}
	return out
}

// argumentColumns returns the column that each argument is of.
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
	return out // those of tuples, limits and conditions come after, and are of no board
}

func (t tenant) read(ctx context.Context, q op, dest []any, row func() bool) error {
	columns := parse(q.stmt).columns
	begun := false
	return patiently(func() error {
		return t.conn.read(ctx, t.rename(q), dest, func() bool {
			begun = true
			for i, c := range columns {
				if board, ok := dest[i].(*string); ok && c == "board" {
					if *board, ok = strings.CutPrefix(*board, t.prefix()); !ok {
						return true // another tenant's
					}
				}
			}
			return row()
		})
	}, func() bool { return !begun && ctx.Err() == nil })
}

// patiently repeats what servers have no time for while other tests keep them
// busy, for at most a minute.
func patiently(f func() error, again func() bool) error {
	for start := time.Now(); ; {
		err := f()
		if !errors.Is(err, leaderboard.ErrUnavailable) || !again() || time.Since(start) > 5*time.Minute {
			return err
		}
	}
}

func (t tenant) write(ctx context.Context, ops ...op) error {
	renamed := make([]op, len(ops))
	for i, o := range ops {
		renamed[i] = t.rename(o)
	}
	return patiently(func() error { return t.conn.write(ctx, renamed...) }, func() bool { return ctx.Err() == nil })
}

func (t tenant) swap(ctx context.Context, q op, have map[string]any) (ok bool, err error) {
	err = patiently(func() (err error) {
		ok, err = t.conn.swap(ctx, t.rename(q), have)
		return err
	}, func() bool { return ctx.Err() == nil })
	return ok, err
}

func (tenant) close() {}

// store returns a store of a keyspace that is empty, with summaries and claims of
// its own.
func (b *bench) store(t testing.TB) *Store {
	t.Helper()
	return open(b.tenant(t), b.options)
}

// few is limits, with fewer rows.
var few = storagetest.Limits{EntriesFollow: limits.EntriesFollow, Few: true}

func TestContract(t *testing.T) {
	b := real.on(t)
	storagetest.Run(t, func(t testing.TB) leaderboard.Store { return b.store(t) }, few)
}

// TestOpenRefuses opens what would not work.
func TestOpenRefuses(t *testing.T) {
	b := real.on(t)
	for _, tt := range []struct {
		name   string
		change func(*Options)
		want   error
	}{
		{"another data center", func(o *Options) { o.DataCenter = "dc9" }, schema.ErrDataCenter},
		{"a keyspace that is not there", func(o *Options) { o.Keyspace = "nowhere" }, leaderboard.ErrUnavailable},
		{"a keyspace without tables", func(o *Options) { o.Keyspace = "system_auth" }, schema.ErrOlder},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := b.options
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
	b := real.on(t)
	storagetest.RunHistories(t, func(t testing.TB) leaderboard.Store { return b.store(t) }, 2)
}
