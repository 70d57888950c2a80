package cql

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/engine"
	"github.com/open-leaderboard/leaderboard/schema"
	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

// If too few nodes of the store's data center are up, a write fails with ErrUnavailable,
// although the other data center could acknowledge it. Meanwhile, users can be banned and
// erased in the other data center.
func TestTheDriverNeverLeavesTheDataCenter(t *testing.T) {
	needs.Slow(t, "clusters")
	c := cluster.Private(t, cluster.StartCassandra, cluster.CassandraConfig{DataCenters: []string{"dc1", "dc1", "dc2"}, Logf: t.Logf})
	o := realOptions(c.Addrs(), "leaving")
	o.Timeout = 15 * time.Second
	if err := ApplySchema(t.Context(), o, map[string]int{"dc1": 2, "dc2": 1}, nil); err != nil {
		t.Fatal(err)
	}
	if err := o.complete(); err != nil {
		t.Fatal(err)
	}
	cfg, err := o.cluster(o.Keyspace)
	if err != nil {
		t.Fatal(err)
	}
	// Without the filter of nodes, this session also sends requests to the other data
	// center.
	cfg.HostFilter = nil
	unfiltered, err := cfg.CreateSession()
	if err != nil {
		t.Fatal(err)
	}
	defer unfiltered.Close()
	local, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	s := engine.New(local)
	defer s.Close()
	remote := o
	remote.DataCenter = "dc2"
	distant, err := Open(t.Context(), remote)
	if err != nil {
		t.Fatal(err)
	}
	other := engine.New(distant)
	defer other.Close()
	b := stepsBoard(leaderboard.Sum)
	if err := s.CreateBoard(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	apply := func(n int) error {
		r := leaderboard.MatchResult{Score: 1, AchievedAt: stepsEpoch, ReceivedAt: stepsEpoch}
		r.Board, r.Season, r.User, r.Match = b.ID, leaderboard.SeasonAll, "u", leaderboard.MatchID(fmt.Sprint(n))
		report, err := s.Apply(t.Context(), &b, []leaderboard.MatchResult{r})
		if err == nil {
			err = report.Outcomes[0].Err
		}
		return err
	}
	if err := apply(0); err != nil {
		t.Fatal(err)
	}
	for i, down := range [][]*cluster.Server{c.Servers[1:2], c.Servers[:1]} { // one of two local nodes, then both
		for _, server := range down {
			if err := server.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		// The nodes need some seconds to notice that a node is down, so whileBusy retries.
		write := op{insertUserSeason, []any{userHash("u"), "leaving", "all", 1, int64(1)}}
		err := whileBusy(t.Context(), func() error { return session{unfiltered}.write(t.Context(), write) })
		t.Logf("%s down: a driver without the filter returned %v", down[0].Name, err)
		if err != nil {
			t.Errorf("a write without the filter: error %v, want nil from the other data center", err)
		}
		start := time.Now()
		if err := apply(1 + i); !errors.Is(err, leaderboard.ErrUnavailable) {
			t.Errorf("%s down: Apply = %v, want %v", down[0].Name, err, leaderboard.ErrUnavailable)
		} else {
			t.Logf("%s down: Apply failed after %v: %v", down[0].Name, time.Since(start).Round(time.Millisecond), err)
		}
	}
	for _, banned := range []bool{true, false} {
		if err := whileBusy(t.Context(), func() error {
			_, err := other.SetBan(t.Context(), leaderboard.Ban{User: "v", Banned: banned, At: stepsEpoch})
			return err
		}); err != nil {
			t.Errorf("SetBan with banned %v in the other data center: %v", banned, err)
		}
	}
	if err := whileBusy(t.Context(), func() error { _, err := other.Erase(t.Context(), "v", stepsEpoch); return err }); err != nil {
		t.Errorf("Erase in the other data center: %v", err)
	}
	if _, err := Open(t.Context(), o); !errors.Is(err, leaderboard.ErrUnavailable) || errors.Is(err, schema.ErrDataCenter) {
		t.Errorf("Open while the local data center is down = %v, want %v", err, leaderboard.ErrUnavailable)
	}
	unknown := o
	unknown.DataCenter = "dc9"
	if _, err := Open(t.Context(), unknown); !errors.Is(err, schema.ErrDataCenter) {
		t.Errorf("Open with an unknown data center = %v, want %v", err, schema.ErrDataCenter)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if err := whileBusy(t.Context(), func() error { return apply(1 + i) }); err != nil {
			t.Fatalf("Apply after the nodes are back: %v", err)
		}
	}
	e, err := s.Entry(t.Context(), leaderboard.SeasonKey{Board: b.ID, Season: leaderboard.SeasonAll}, "u")
	if err != nil {
		t.Fatal(err)
	}
	if got := b.ScoreOf(e.Key, stepsEpoch); got != 3 {
		t.Errorf("the entry has score %d after three results of 1 point, want 3", got)
	}
}
