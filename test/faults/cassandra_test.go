package faults

import (
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/deployment"
)

// Each of three Cassandra nodes is killed under load and comes back: nothing
// acknowledged is lost, and reads and writes go on.
func TestCassandraNodesKilled(t *testing.T) {
	cassandra := cluster.Private(t, cluster.StartCassandra, cluster.CassandraConfig{DataCenters: cluster.OneDC(3), Logf: t.Logf})
	s := newService(t, deployment.Options{Cassandra: cassandra.Addrs(), CassandraReplicas: 3})
	ledger := s.ledger(t, "nodes")
	load := s.load(t, ledger)
	load.more(t, 100)
	for _, node := range cassandra.Servers {
		must(t, node.Kill())
		after := load.recovered(t, time.Now())
		load.more(t, 200)
		t.Logf("%s killed: %d calls in a row succeeded, the first begun after %v", node.Name, steady, after.Round(time.Millisecond))
		if after > 15*time.Second {
			t.Errorf("recovered %v after %s was killed, 15 s are allowed", after, node.Name)
		}
		must(t, node.Start(t.Context()))
		load.more(t, 50)
	}
	load.stop()
	if f := load.figures(); f.percent() > 1 {
		t.Errorf("%v: 1 %% of errors is allowed", f)
	}
	check(t, ledger, s.apis...)
}
