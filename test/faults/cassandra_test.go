package faults

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/deployment"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

// Each node is killed and restarted in turn. Calls continue, and no acknowledged result is lost.
func TestCassandraNodesKilled(t *testing.T) {
	needs.Slow(t, "faults")
	cassandra := cluster.Private(t, cluster.StartCassandra, cluster.CassandraConfig{DataCenters: cluster.OneDC(3), Logf: t.Logf})
	s := newService(t, deployment.Options{Cassandra: cassandra.Addrs(), CassandraReplicas: 3})
	ledger := s.ledger(t, "nodes")
	load := s.load(t, ledger)
	load.waitForMore(t, 100)
	for _, node := range cassandra.Servers {
		must(t, node.Kill())
		delay := load.waitForRecovery(t, time.Now())
		load.waitForMore(t, 200)
		t.Logf("%s killed: %d consecutive calls succeeded, the first started after %v", node.Name, steadyCalls, delay.Round(time.Millisecond))
		if delay > 15*time.Second {
			t.Errorf("recovered %v after %s was killed, want at most 15s", delay, node.Name)
		}
		waitForNodesDown(t, s, 1)
		must(t, node.Start(t.Context()))
		load.waitForMore(t, 50)
		waitForNodesDown(t, s, 0)
	}
	load.stop()
	if f := load.figures(); f.percent() > 1 {
		t.Errorf("%v: want at most 1 %% errors", f)
	}
	check(t, ledger, s.apis...)
}

// All processes and all nodes are killed and start again together, so the processes start while no
// node answers. Each process becomes ready, and no acknowledged result is lost.
func TestProcessesStartBesideAColdCluster(t *testing.T) {
	needs.Slow(t, "faults")
	cassandra := cluster.Private(t, cluster.StartCassandra, cluster.CassandraConfig{DataCenters: cluster.OneDC(3), Logf: t.Logf})
	s := newService(t, deployment.Options{Cassandra: cassandra.Addrs(), CassandraReplicas: 3})
	ledger := s.ledger(t, "cold")
	load := s.load(t, ledger)
	load.waitForMore(t, 100)
	servers := []*cluster.Server{s.apis[0].Server, s.apis[1].Server, s.static.Server, s.dynamic.Server}
	servers = append(servers, cassandra.Servers...)
	for _, server := range servers {
		must(t, server.Kill())
	}
	var starting errgroup.Group
	for _, server := range servers {
		starting.Go(func() error { return server.Start(t.Context()) })
	}
	must(t, starting.Wait())
	load.waitForRecovery(t, time.Now())
	load.stop()
	check(t, ledger, s.apis...)
}

// While two nodes are down, submits are accepted but not applied. After the restart, each accepted
// result is applied.
func TestTwoOfThreeCassandraNodesDown(t *testing.T) {
	needs.Slow(t, "faults")
	cassandra := cluster.Private(t, cluster.StartCassandra, cluster.CassandraConfig{DataCenters: cluster.OneDC(3), Logf: t.Logf})
	s := newService(t, deployment.Options{Cassandra: cassandra.Addrs(), CassandraReplicas: 3})
	ledger := s.ledger(t, "quorum")
	load := s.load(t, ledger)
	h := recordHistories(t, s.seed, s.apis[0], s.apis[0].Client, s.apis[1].Client)
	load.waitForMore(t, 100)
	down := cassandra.Servers[1:]
	for _, node := range down {
		must(t, node.Kill())
	}
	begun := time.Now()
	retries := s.sum(t, "leaderboard_consumer_retries_total")
	deployment.Eventually(t, func(context.Context) error {
		if s.sum(t, "leaderboard_consumer_retries_total") == retries {
			return errors.New("no consumer has retried a batch since two nodes were killed")
		}
		return nil
	})
	applied, before := s.sum(t, "leaderboard_consumer_results_total"), load.figures()
	load.waitForMore(t, 150)
	after := load.figures()
	if now := s.sum(t, "leaderboard_consumer_results_total"); now != applied {
		t.Errorf("the consumers have applied %v results without a quorum, want 0", now-applied)
	}
	t.Logf("two nodes down for %v: %d results acknowledged, %d of them before they were applied",
		time.Since(begun).Round(time.Second), after.acknowledged-before.acknowledged, after.accepted-before.accepted)
	for _, node := range down {
		must(t, node.Start(t.Context()))
	}
	delay := load.waitForRecovery(t, time.Now())
	load.waitForMore(t, 100)
	load.stop()
	t.Logf("both nodes are back: %d consecutive calls succeeded, the first started after %v", steadyCalls, delay.Round(time.Millisecond))
	h.check(t)
	check(t, ledger, s.apis...)
}

// The disk of one of three nodes fills up, and the node exits. It restarts with more space. Then
// each of the other two nodes is killed once, so that every quorum has the restarted node.
func TestCassandraDiskFull(t *testing.T) {
	needs.Slow(t, "faults")
	d := newSmallDisk(t, 1<<30)
	var data []string
	for i := range 3 {
		data = append(data, filepath.Join(t.TempDir(), fmt.Sprint(i)))
	}
	data[2] = filepath.Join(d.path, "data")
	cassandra := cluster.Private(t, cluster.StartCassandra, cluster.CassandraConfig{DataCenters: cluster.OneDC(3), Data: data, Logf: t.Logf})
	s := newService(t, deployment.Options{Cassandra: cassandra.Addrs(), CassandraReplicas: 3})
	ledger := s.ledger(t, "full")
	load := s.load(t, ledger)
	load.waitForMore(t, 100)
	full := cassandra.Servers[2]
	d.fill(t)
	begun, before := time.Now(), load.figures()
	deployment.Eventually(t, func(context.Context) error {
		if full.PID() != 0 {
			return fmt.Errorf("%s still runs on a full disk", full.Name)
		}
		return nil
	})
	t.Logf("%s exited %v after its disk was full", full.Name, time.Since(begun).Round(time.Second))
	delay := load.waitForRecovery(t, time.Now())
	load.waitForMore(t, 200)
	during := load.figures()
	t.Logf("%d calls since the disk was full, %d errors, %d results acknowledged; %d consecutive calls succeeded, the first started %v after the node had exited",
		during.calls-before.calls, during.errors-before.errors, during.acknowledged-before.acknowledged, steadyCalls, delay.Round(time.Millisecond))
	d.resize(t, 2<<30)
	must(t, full.Start(t.Context()))
	waitForNodesDown(t, s, 0)
	load.waitForMore(t, 50)
	load.stop()
	check(t, ledger, s.apis...)
	first, second := cassandra.Servers[0], cassandra.Servers[1]
	must(t, first.Kill())
	check(t, ledger, s.apis[0])
	must(t, first.Start(t.Context()))
	must(t, second.Kill())
	check(t, ledger, s.apis[0])
}

func (s *service) sum(t *testing.T, metric string) (sum float64) {
	t.Helper()
	for _, n := range []*deployment.Node{s.static, s.dynamic} {
		v, err := n.Metric(t.Context(), metric)
		must(t, err)
		sum += v
	}
	return sum
}

func waitForNodesDown(t *testing.T, s *service, down float64) {
	t.Helper()
	for _, api := range s.apis {
		for state, want := range map[string]float64{"down": down, "up": 3 - down} {
			name := fmt.Sprintf("leaderboard_cassandra_nodes{state=%q}", state)
			deployment.Eventually(t, func(ctx context.Context) error {
				got, err := api.Metric(ctx, name)
				if err != nil || got != want {
					return fmt.Errorf("%s of %s is %v (%v), want %v", name, api.Addr, got, err, want)
				}
				return nil
			})
		}
	}
}
