package cql

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

func TestDriverSettings(t *testing.T) {
	o := Options{Hosts: []string{"10.0.0.1:9142"}, DataCenter: "dc1"}
	if err := o.complete(); err != nil {
		t.Fatal(err)
	}
	cfg, err := o.cluster("lb")
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Consistency != gocql.LocalQuorum || cfg.SerialConsistency != gocql.Serial {
		t.Errorf("consistency %v and %v, want LOCAL_QUORUM and SERIAL", cfg.Consistency, cfg.SerialConsistency)
	}
	if cfg.DefaultTimestamp {
		t.Error("DefaultTimestamp is true, so the driver would use timestamps of this machine's clock; want false")
	}
	if !cfg.DefaultIdempotence {
		t.Error("DefaultIdempotence is false, so the driver would not retry statements; want true")
	}
	if b := (session{&gocql.Session{}}).batch([]op{{insertRow, nil}, {deleteRow, nil}}); !b.IsIdempotent() || b.Type != gocql.UnloggedBatch {
		t.Errorf("a batch has type %d and idempotent %v, want %d and true", b.Type, b.IsIdempotent(), gocql.UnloggedBatch)
	}
	if cfg.ReconnectInterval <= 0 || cfg.ReconnectInterval > 10*time.Second {
		t.Errorf("the driver tries to reconnect to a lost node every %v, want more than 0 and at most 10s", cfg.ReconnectInterval)
	}
	// Nodes time out a range read after 10 s, and the store must receive that error.
	if cfg.Timeout <= 10*time.Second || cfg.WriteTimeout <= 10*time.Second {
		t.Errorf("timeouts %v and %v, want more than 10s", cfg.Timeout, cfg.WriteTimeout)
	}
	own, ok := cfg.PoolConfig.HostSelectionPolicy.(ownKeyspace)
	if !ok || own.keyspace != "lb" {
		t.Fatalf("the driver's policy is %T of keyspace %q, want one that ignores changes of other keyspaces than lb", cfg.PoolConfig.HostSelectionPolicy, own.keyspace)
	}
	if policy := fmt.Sprintf("%T", own.HostSelectionPolicy); policy != "*gocql.tokenAwareHostPolicy" {
		t.Errorf("the driver chooses nodes by %s, want *gocql.tokenAwareHostPolicy", policy)
	}
	// The driver must ask replicas first, and none of another data center. The driver does
	// not export this setting.
	policy := reflect.ValueOf(own.HostSelectionPolicy).Elem()
	if policy.FieldByName("nonLocalReplicasFallback").Bool() || !policy.FieldByName("shuffleReplicas").Bool() {
		t.Error("the policy of the driver has other settings, want random replicas, and none of another data center")
	}
	if policy = policy.FieldByName("fallback").Elem().Elem(); policy.Type().Name() != "dcAwareRR" || policy.FieldByName("local").String() != "dc1" {
		t.Errorf("if no replica is available, the driver chooses nodes by %v, want round robin in dc1", policy)
	}
	if nodes, ok := cfg.HostFilter.(*localNodes); !ok || nodes.dataCenter != "dc1" || nodes.Accept(&gocql.HostInfo{}) {
		t.Errorf("the filter of nodes is %+v, want one that accepts only nodes of dc1", cfg.HostFilter)
	}
	if cfg.ProtoVersion != 4 || cfg.Port != 9142 || cfg.Keyspace != "lb" {
		t.Errorf("protocol %d, port %d, keyspace %q, want 4, 9142 and \"lb\"", cfg.ProtoVersion, cfg.Port, cfg.Keyspace)
	}
	if least := 2000; cfg.PageSize < least {
		t.Errorf("the driver fetches %d rows at a time, want at least the %d rows of pages of final standings that one statement reads", cfg.PageSize, least)
	}
	// Other types of retries ignore the error or lower the consistency level.
	for _, err := range []error{gocql.ErrTimeoutNoResponse, &gocql.RequestErrWriteTimeout{}, &gocql.RequestErrUnavailable{}, errors.New("broken")} {
		if got := cfg.RetryPolicy.GetRetryType(err); got != gocql.RetryNextHost && got != gocql.Rethrow {
			t.Errorf("%v: retry type %d, want RetryNextHost or Rethrow", err, got)
		}
	}
}

type keyspaceChanges struct {
	gocql.HostSelectionPolicy
	got []string
}

func (c *keyspaceChanges) KeyspaceChanged(e gocql.KeyspaceUpdateEvent) {
	c.got = append(c.got, e.Keyspace)
}

// On a change of a keyspace without replicas in this data center, the driver's policy would panic.
func TestChangesOfOtherKeyspacesAreIgnored(t *testing.T) {
	needs.Race(t)
	changes := &keyspaceChanges{}
	p := ownKeyspace{changes, "lb"}
	for _, name := range []string{"other", "lb", ""} {
		p.KeyspaceChanged(gocql.KeyspaceUpdateEvent{Keyspace: name})
	}
	if !slices.Equal(changes.got, []string{"lb"}) {
		t.Errorf("the policy got changes of the keyspaces %q, want lb only", changes.got)
	}
}

// Stores with different settings must read the same ladder.
func TestTheBoardDeterminesTheBuckets(t *testing.T) {
	m := newModel(nil)
	var stores []*testStore
	for _, buckets := range []int{2, 7, 64} {
		stores = append(stores, openTest(m, Options{DataCenter: "dc1", Buckets: buckets, CacheUsers: 10}))
	}
	b := stepsBoard(leaderboard.Best)
	if err := stores[0].CreateBoard(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	const users = 50
	for i := range 2 * users {
		r := leaderboard.MatchResult{Score: leaderboard.Score(i), AchievedAt: stepsEpoch, ReceivedAt: stepsEpoch}
		r.Board, r.Season = b.ID, leaderboard.SeasonAll
		r.User, r.Match = leaderboard.UserID(fmt.Sprintf("u%02d", i%users)), leaderboard.MatchID(fmt.Sprint(i))
		if _, err := stores[i%len(stores)].Apply(t.Context(), &b, []leaderboard.MatchResult{r}); err != nil {
			t.Fatal(err)
		}
	}
	var want []string
	for i := range users {
		want = append(want, fmt.Sprintf("u%02d", users-1-i))
	}
	seasonKey := leaderboard.SeasonKey{Board: b.ID, Season: leaderboard.SeasonAll}
	for _, s := range stores {
		var got []string
		for e, err := range s.Entries(t.Context(), leaderboard.Ladder{SeasonKey: seasonKey}, "") {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(e.User))
		}
		if !slices.Equal(want, got) {
			t.Errorf("a store with the setting %d buckets reads the ladder %q, want %q", s.buckets, got, want)
		}
		for orphan, err := range s.OrphanRows(t.Context(), seasonKey) {
			t.Errorf("OrphanRows yields %v, error %v; want no rows", orphan, err)
		}
	}
	rows := 0
	for bucket := range 64 {
		users, err := stores[0].usersIn(t.Context(), seasonKey, incarnation{}, bucket)
		if err != nil {
			t.Fatal(err)
		}
		if rows += len(users); bucket >= 2 && len(users) > 0 {
			t.Errorf("bucket %d has %d users, want 0, because the board has only 2 buckets", bucket, len(users))
		}
	}
	if rows != users {
		t.Errorf("%d users in all buckets, want %d", rows, users)
	}
}
