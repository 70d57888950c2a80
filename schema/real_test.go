package schema

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

var _ = needs.PackageWithoutRace("most tests wait for Cassandra, and a connection has one user")

var update = flag.Bool("update", false, "write schema.cql")

func TestMain(m *testing.M) {
	// The tests mostly wait for the nodes, so they need little CPU.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(cluster.Main(m))
}

// connector marks t as parallel. The returned function connects to the shared cluster.
func connector(t *testing.T) func(string) (*gocql.Session, error) {
	t.Parallel()
	addrs := cluster.Cassandra(t, 1)
	return func(keyspace string) (*gocql.Session, error) {
		cfg := gocql.NewCluster(addrs...)
		_, port, _ := strings.Cut(addrs[0], ":")
		if _, err := fmt.Sscan(port, &cfg.Port); err != nil {
			return nil, err
		}
		cfg.ProtoVersion, cfg.Keyspace, cfg.NumConns = 4, keyspace, 1
		cfg.Timeout, cfg.ConnectTimeout = 30*time.Second, 10*time.Second
		cfg.Consistency = gocql.LocalQuorum
		// A busy node may answer late.
		cfg.RetryPolicy, cfg.DefaultIdempotence = &gocql.SimpleRetryPolicy{NumRetries: 3}, true
		return cfg.CreateSession()
	}
}

// newKeyspace returns an unused name. When t ends, it drops the keyspace.
func newKeyspace(t *testing.T, connect func(string) (*gocql.Session, error)) string {
	name := fmt.Sprintf("schema_%x", time.Now().UnixNano())
	t.Cleanup(func() {
		s := session(t, connect, "")
		if err := s.Query("DROP KEYSPACE IF EXISTS " + name).Exec(); err != nil {
			t.Error(err)
		}
	})
	return name
}

func session(t *testing.T, connect func(string) (*gocql.Session, error), keyspace string) *gocql.Session {
	t.Helper()
	s, err := connect(keyspace)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

var oneReplica = map[string]int{"dc1": 1}

func testMigrations(versions int) []Migration {
	all := []Migration{{Version: 1, Name: "one", Checksum: "c1", statements: []string{"CREATE TABLE IF NOT EXISTS t (k int PRIMARY KEY)"}}}
	for v := 2; v <= versions; v++ {
		all = append(all, Migration{Version: v, Name: "more", Checksum: fmt.Sprint("c", v),
			statements: []string{fmt.Sprintf("ALTER TABLE t ADD IF NOT EXISTS c%d int", v)}})
	}
	return all
}

func TestApplyUpgradesAKeyspace(t *testing.T) {
	connect := connector(t)
	ks := newKeyspace(t, connect)
	var applied []int
	progress := func(m Migration) { applied = append(applied, m.Version) }
	if err := apply(t.Context(), connect, ks, oneReplica, testMigrations(1), progress); err != nil {
		t.Fatal(err)
	}
	s := session(t, connect, ks)
	if err := check(t.Context(), s, testMigrations(2)); !errors.Is(err, ErrOlder) || !strings.Contains(err.Error(), "leaderboard schema apply") {
		t.Errorf("check for version 2 of a keyspace at version 1: error %v, want %v with the command to run", err, ErrOlder)
	}
	if err := s.Query("INSERT INTO t (k) VALUES (7)").Exec(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := apply(t.Context(), connect, ks, oneReplica, testMigrations(3), progress); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff([]int{1, 2, 3}, applied); d != "" {
		t.Errorf("versions reported as applied (-want +got):\n%s", d)
	}
	var k int
	var c3 *int
	if err := s.Query("SELECT k, c3 FROM t").Scan(&k, &c3); err != nil || k != 7 || c3 != nil {
		t.Errorf("the row has k %d and c3 %v, error %v; want 7 and null", k, c3, err)
	}
	if err := check(t.Context(), s, testMigrations(3)); err != nil {
		t.Error(err)
	}
	if err := check(t.Context(), s, testMigrations(2)); err != nil {
		t.Errorf("check for version 2 of a keyspace at version 3: error %v, want none", err)
	}
	if err := CheckReplicas(t.Context(), s, ks, oneReplica); err != nil {
		t.Errorf("CheckReplicas with the replicas as created: error %v, want none", err)
	}
	for _, other := range []map[string]int{{"dc1": 2}, {"dc1": 1, "dc2": 1}, {"dc2": 1}} {
		err := CheckReplicas(t.Context(), s, ks, other)
		if !errors.Is(err, ErrReplicas) || !strings.Contains(err.Error(), "ALTER KEYSPACE "+ks+" WITH replication = {'class': 'NetworkTopologyStrategy', 'dc") {
			t.Errorf("CheckReplicas with %v: error %v, want ErrReplicas and the statement to run", other, err)
		}
	}
	if err := CheckDataCenter(t.Context(), s, "dc1"); err != nil {
		t.Error(err)
	}
	if err := CheckDataCenter(t.Context(), s, "dc2"); !errors.Is(err, ErrDataCenter) || !strings.Contains(err.Error(), "[dc1]") {
		t.Errorf("CheckDataCenter of an unknown data center: error %v, want %v with the existing data center", err, ErrDataCenter)
	}
	if err := apply(t.Context(), connect, ks, oneReplica, testMigrations(2), nil); !errors.Is(err, ErrNewer) {
		t.Errorf("apply of version 2 to a keyspace at version 3: error %v, want %v", err, ErrNewer)
	}
	changed := testMigrations(3)
	changed[1].Checksum = "x"
	if err := apply(t.Context(), connect, ks, oneReplica, changed, nil); !errors.Is(err, ErrChanged) {
		t.Errorf("apply of a changed migration: error %v, want %v", err, ErrChanged)
	}
}

func TestConcurrentAppliesRunEachMigrationOnce(t *testing.T) {
	connect := connector(t)
	ks := newKeyspace(t, connect)
	var mu sync.Mutex
	applied := map[int]int{}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			err := apply(t.Context(), connect, ks, oneReplica, testMigrations(4), func(m Migration) {
				mu.Lock()
				defer mu.Unlock()
				applied[m.Version]++
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if d := cmp.Diff(map[int]int{1: 1, 2: 1, 3: 1, 4: 1}, applied); d != "" {
		t.Errorf("how often each version was applied (-want +got):\n%s", d)
	}
}

func TestApplyRetriesOnNodesThatDoNotKnowTheKeyspaceYet(t *testing.T) {
	connect := connector(t)
	ks := newKeyspace(t, connect)
	failures := 3
	lateConnect := func(keyspace string) (*gocql.Session, error) {
		if keyspace != "" && failures > 0 {
			failures--
			return nil, gocql.ErrNoConnectionsStarted
		}
		return connect(keyspace)
	}
	if err := apply(t.Context(), lateConnect, ks, oneReplica, testMigrations(1), nil); err != nil {
		t.Fatal(err)
	}
	if failures != 0 {
		t.Errorf("apply succeeded with %d failed connections left, want 0", failures)
	}
	s := session(t, connect, ks)
	if err := s.Query("DROP TABLE schema_lock").Exec(); err != nil {
		t.Fatal(err)
	}
	l := lease{session: s, owner: "early", duration: 10 * time.Second}
	taken := make(chan error)
	go func() { taken <- l.wait(t.Context()) }()
	select {
	case err := <-taken:
		t.Fatalf("wait returned (error %v) before the table existed, want it to wait for the table", err)
	case <-time.After(3 * lockPoll):
	}
	if err := ddl(t.Context(), s, strings.Replace(createLock, "WITH id = %s", "", 1)); err != nil {
		t.Error(err)
	}
	if err := <-taken; err != nil {
		t.Error(err)
	}
}

func TestApplyWaitsForTheLock(t *testing.T) {
	connect := connector(t)
	ks := newKeyspace(t, connect)
	if err := apply(t.Context(), connect, ks, oneReplica, testMigrations(1), nil); err != nil {
		t.Fatal(err)
	}
	s := session(t, connect, ks)
	holder := lease{session: s, owner: "another process", duration: 10 * time.Second}
	if err := holder.take(t.Context(), ks); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := apply(ctx, connect, ks, oneReplica, testMigrations(2), nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("apply while another process holds the lock: error %v, want %v", err, context.DeadlineExceeded)
	}
	if err := apply(t.Context(), connect, ks, oneReplica, testMigrations(2), nil); err != nil {
		t.Error(err)
	}
	if err := holder.renew(t.Context()); err == nil {
		t.Error("renew of an expired lock returned no error, want one")
	}
}

func TestApplyCompletesAnInterruptedApply(t *testing.T) {
	connect := connector(t)
	ks := newKeyspace(t, connect)
	broken := testMigrations(2)
	broken[1].statements = append(broken[1].statements, "ALTER TABLE nowhere ADD x int")
	if err := apply(t.Context(), connect, ks, oneReplica, broken, nil); err == nil {
		t.Fatal("apply of a failing statement returned no error, want one")
	}
	s := session(t, connect, ks)
	if err := check(t.Context(), s, testMigrations(2)); !errors.Is(err, ErrOlder) {
		t.Errorf("check after the interrupted apply: error %v, want %v", err, ErrOlder)
	}
	if err := apply(t.Context(), connect, ks, oneReplica, testMigrations(2), nil); err != nil {
		t.Fatal(err)
	}
	if err := check(t.Context(), s, testMigrations(2)); err != nil {
		t.Error(err)
	}
}

// Neither a process nor `schema apply` uses a keyspace with the 13 migrations of earlier builds.
func TestKeyspacesOfUnreleasedBuildsAreRefused(t *testing.T) {
	connect := connector(t)
	ks := newKeyspace(t, connect)
	old := testMigrations(13)
	old[0].Checksum = unreleased
	if err := apply(t.Context(), connect, ks, oneReplica, old, nil); err != nil {
		t.Fatal(err)
	}
	s := session(t, connect, ks)
	for call, err := range map[string]error{"Check": Check(t.Context(), s), "Apply": Apply(t.Context(), connect, ks, oneReplica, nil)} {
		if !errors.Is(err, ErrUnreleased) || !strings.Contains(err.Error(), "export its results with that build, and import them with this one") {
			t.Errorf("%s of a keyspace of a build from before 0.1.0: error %v, want %v with the cure", call, err, ErrUnreleased)
		}
	}
	var tables int
	if err := s.Query("SELECT count(*) FROM system_schema.tables WHERE keyspace_name = ?", ks).Scan(&tables); err != nil || tables != 3 {
		t.Errorf("after the refusals, the keyspace has %d tables, error %v; want the 3 from before", tables, err)
	}
}

// TestSchema compares the schema that the server describes with schema.cql.
func TestSchema(t *testing.T) {
	connect := connector(t)
	ks := newKeyspace(t, connect)
	s := session(t, connect, "")
	if err := s.Query("CREATE KEYSPACE " + ks + " WITH replication = {'class': 'NetworkTopologyStrategy', 'dc1': 1}").Exec(); err != nil {
		t.Fatal(err)
	}
	inKeyspace := session(t, connect, ks)
	if err := Check(t.Context(), inKeyspace); !errors.Is(err, ErrOlder) {
		t.Errorf("Check of an empty keyspace: %v, want %v", err, ErrOlder)
	}
	status, err := Status(t.Context(), inKeyspace)
	if err != nil || len(status) == 0 || !status[0].AppliedAt.IsZero() {
		t.Errorf("Status of an empty keyspace returned %+v, error %v; want migrations that are not applied", status, err)
	}
	if err := Apply(t.Context(), connect, ks, oneReplica, nil); err != nil {
		t.Fatal(err)
	}
	if err := Check(t.Context(), inKeyspace); err != nil {
		t.Error(err)
	}
	status, err = Status(t.Context(), inKeyspace)
	if err != nil || status[len(status)-1].AppliedAt.IsZero() {
		t.Errorf("Status returned %+v, error %v; want the last migration to be applied", status, err)
	}
	got := "-- The schema that the files in cql/ create. Written by: go test ./schema -run TestSchema -update\n"
	iter := s.Query("DESCRIBE KEYSPACE " + ks).Iter()
	row := map[string]any{}
	for iter.MapScan(row) {
		if row["type"] != "keyspace" && !strings.HasPrefix(row["name"].(string), "schema_lock") {
			got += "\n" + strings.ReplaceAll(row["create_statement"].(string), ks+".", "") + "\n"
		}
		row = map[string]any{}
	}
	if err := iter.Close(); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("schema.cql", []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("schema.cql")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("schema.cql (-want +got):\n%s", d)
	}
}
