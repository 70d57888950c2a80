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
)

// What the store relies on in the driver: a quorum of the local data center,
// never less, timestamps of its own, and that what is tried again may be.
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
		t.Errorf("consistency %v, %v", cfg.Consistency, cfg.SerialConsistency)
	}
	if cfg.DefaultTimestamp {
		t.Error("statements without a timestamp would carry this machine's clock")
	}
	if !cfg.DefaultIdempotence {
		t.Error("statements are not marked as repeatable, so they would not be tried again")
	}
	if b := (session{&gocql.Session{}}).batch([]op{{insertRow, nil}, {deleteRow, nil}}); !b.IsIdempotent() || b.Type != gocql.UnloggedBatch {
		t.Errorf("batches are of type %d, and not marked as repeatable", b.Type)
	}
	if cfg.ReconnectInterval <= 0 || cfg.ReconnectInterval > 10*time.Second {
		t.Errorf("a node that was down is tried again after %v", cfg.ReconnectInterval)
	}
	// Nodes give up a range read after 10 s and are to be heard to.
	if cfg.Timeout <= 10*time.Second || cfg.WriteTimeout <= 10*time.Second {
		t.Errorf("timeouts %v, %v", cfg.Timeout, cfg.WriteTimeout)
	}
	if policy := fmt.Sprintf("%T", cfg.PoolConfig.HostSelectionPolicy); policy != "*gocql.tokenAwareHostPolicy" {
		t.Errorf("nodes are chosen by %s", policy)
	}
	// Replicas first, but none of another data center: the driver shows this to nobody.
	next := reflect.ValueOf(cfg.PoolConfig.HostSelectionPolicy).Elem()
	if next.FieldByName("nonLocalReplicasFallback").Bool() || !next.FieldByName("shuffleReplicas").Bool() {
		t.Error("replicas are not chosen at random from the local data center")
	}
	if next = next.FieldByName("fallback").Elem().Elem(); next.Type().Name() != "dcAwareRR" || next.FieldByName("local").String() != "dc1" {
		t.Errorf("nodes are then chosen by %v", next)
	}
	if cfg.ProtoVersion != 4 || cfg.Port != 9142 || cfg.Keyspace != "lb" {
		t.Errorf("protocol %d, port %d, keyspace %q", cfg.ProtoVersion, cfg.Port, cfg.Keyspace)
	}
	// Trying again asks another node for the same quorum. To ignore a timeout, or
	// to ask for fewer nodes, would take one node's word for a quorum's.
	for _, err := range []error{gocql.ErrTimeoutNoResponse, &gocql.RequestErrWriteTimeout{}, &gocql.RequestErrUnavailable{}, errors.New("broken")} {
		if got := cfg.RetryPolicy.GetRetryType(err); got != gocql.RetryNextHost && got != gocql.Rethrow {
			t.Errorf("%v: retry type %d", err, got)
		}
	}
}

// The number of buckets is the board's, whatever a store is set to: stores of
// different settings see one ladder.
func TestBucketsAreTheBoards(t *testing.T) {
	m := newModel(nil)
	var stores []*Store
	for _, buckets := range []int{2, 7, 64} {
		stores = append(stores, open(m, Options{DataCenter: "dc1", Buckets: buckets, CacheUsers: 10}))
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
	scope := leaderboard.Scope{Board: b.ID, Season: leaderboard.SeasonAll}
	for _, s := range stores {
		var got []string
		for e, err := range s.Entries(t.Context(), leaderboard.Ladder{Scope: scope}, "") {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(e.User))
		}
		if !slices.Equal(want, got) {
			t.Errorf("a store set to %d buckets sees %q", s.buckets, got)
		}
		for stray, err := range s.Strays(t.Context(), scope) {
			t.Errorf("stray %v, %v", stray, err)
		}
	}
	rows := 0
	for bucket := range 64 {
		users, err := stores[0].usersIn(t.Context(), scope, edition{}, bucket)
		if err != nil {
			t.Fatal(err)
		}
		if rows += len(users); bucket >= 2 && len(users) > 0 {
			t.Errorf("bucket %d of a board of 2 has %d users", bucket, len(users))
		}
	}
	if rows != users {
		t.Errorf("%d users in all buckets, want %d", rows, users)
	}
}
