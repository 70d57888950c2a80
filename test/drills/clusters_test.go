package drills

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/deployment"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

const clusterPage = "cluster-drills.md"

// everything is the body of POST /v1/boards for a board without seasons.
var everything = map[string]any{"policy": "BEST", "order": "HIGHER_FIRST", "season": map[string]any{"schedule": "NONE"}}

func TestDrillAddCassandraNode(t *testing.T) {
	needs.Slow(t, "drills")
	cassandra := cluster.Private(t, cluster.StartCassandra, cluster.CassandraConfig{DataCenters: cluster.OneDC(3), Later: 1, Logf: t.Logf})
	old, added := cassandra.Servers[:2], cassandra.Servers[2]
	dep := deployment.New(t, deployment.Options{Cassandra: cassandra.Addrs()[:2], CassandraReplicas: 2})
	n := dep.Serve(t)
	board := n.Board(t, "node", everything)
	submit(t, n, board, "before", 50)
	d := newDrill(t, clusterPage, "Add a Cassandra node", 3)
	d.at(n)
	d.env["KEYSPACE"] = dep.Keyspace
	must(t, added.Start(t.Context()))
	d.node(added)
	if out := d.next(); strings.Count(out, "\nUN ") != 3 {
		t.Errorf("the status is\n%s\nwant three nodes that are UN", out)
	}
	cleanup := d.blocks[0]
	d.blocks = d.blocks[1:]
	for _, s := range old {
		d.node(s)
		d.again(cleanup)
	}
	// The new node has a copy: the data survive without an old node.
	contains(t, d.next(), " 0 differences")
	d.node(added)
	var owned bool
	for line := range strings.Lines(d.again("nodetool status " + dep.Keyspace)) {
		fields := strings.Fields(line)
		owned = owned || len(fields) > 5 && fields[1] == "127.0.0.3" && strings.HasSuffix(fields[5], "%") && fields[5] != "0.0%"
	}
	if !owned {
		t.Error("the new node owns nothing of the keyspace, want a part")
	}
	submit(t, n, board, "after", 60)
}

func TestDrillAddRedisShards(t *testing.T) {
	needs.Slow(t, "drills")
	redis := cluster.Private(t, cluster.StartRedisCluster, cluster.RedisConfig{})
	added := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{Cluster: true})
	dep := deployment.New(t, deployment.Options{Redis: redis.Addrs()})
	n := dep.Serve(t)
	board := n.Board(t, "shards", everything)
	submit(t, n, board, "before", 50)
	d := newDrill(t, clusterPage, "Add shards of Redis", 2)
	d.at(n)
	d.env["NEW_SERVER"], d.env["ANY_SERVER"], d.env["SERVERS"] = added.Addrs()[0], redis.Addrs()[0], fmt.Sprint(len(redis.Servers))
	d.next()
	// The check fails until all servers have learned the new owners of the slots.
	out := d.again(`until redis-cli --cluster check "$ANY_SERVER" > check; do sleep 0.2; done; cat check`)
	masters := regexp.MustCompile(`(?m)^(\S+) \(\S+ -> \d+ keys \| (\d+) slots`).FindAllStringSubmatch(out, -1)
	moved := slices.ContainsFunc(masters, func(m []string) bool { return m[1] == added.Addrs()[0] && m[2] != "0" })
	if len(masters) != 4 || !moved {
		t.Errorf("after the rebalance, the check prints\n%s\nwant four masters, and slots on %s", out, added.Addrs()[0])
	}
	waitForUsers(t, n, board, 50)
	d.env["BOARD"], d.env["USER_ID"] = board, "user-049"
	contains(t, d.next(), "rank 1 of 50", " 0 differences")
	submit(t, n, board, "after", 60)
}

func TestDrillLoseDataCenter(t *testing.T) {
	needs.Slow(t, "drills")
	cassandra := cluster.Private(t, cluster.StartCassandra, cluster.CassandraConfig{DataCenters: []string{"dc1", "dc2"}, Logf: t.Logf})
	kafka := cluster.Private(t, cluster.StartKafka, cluster.KafkaConfig{Quick: true, Logf: t.Logf})
	var regions [2]*deployment.Deployment
	var nodes [2]*deployment.Node
	var redis [2]*cluster.Server
	for i, name := range []string{"east", "west"} {
		server := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{})
		redis[i] = server.Servers[0]
		centers := [][]string{{"dc1", "dc2"}, {"dc2", "dc1"}}[i]
		regions[i] = deployment.New(t, deployment.Options{Cassandra: cassandra.Addrs(), DataCenters: centers, Kafka: kafka.Addrs(), Redis: server.Addrs()})
		nodes[i] = regions[i].Serve(t, "--region="+name)
	}
	board := nodes[0].Board(t, "lost", everything)
	submit(t, nodes[0], board, "before", 5)
	d := newDrill(t, clusterPage, "Lose a data center and bring it back", 3)
	d.env["BOARD"], d.env["KEYSPACE"] = board, regions[0].Keyspace
	lost := []*cluster.Server{nodes[1].Server, redis[1], cassandra.Servers[1]}
	for _, s := range lost {
		must(t, s.Kill())
	}
	d.at(nodes[0])
	contains(t, d.next(), "rank 1 of 6")
	for i := range lost {
		must(t, lost[len(lost)-1-i].Start(t.Context()))
	}
	d.node(cassandra.Servers[1])
	d.next()
	repair := d.blocks[0]
	for i := range nodes {
		d.at(nodes[i])
		contains(t, d.again(repair), "rank 1 of 6")
	}
	d.blocks = nil
}

func TestDrillRestoreSnapshot(t *testing.T) {
	needs.Slow(t, "drills")
	data := t.TempDir()
	cassandra := cluster.Private(t, cluster.StartCassandra, cluster.CassandraConfig{Data: []string{data}, Logf: t.Logf})
	dep := deployment.New(t, deployment.Options{Cassandra: cassandra.Addrs(), Fresh: true})
	n := dep.Serve(t)
	board := n.Board(t, "snapshot", everything)
	submit(t, n, board, "before", 50)
	d := newDrill(t, clusterPage, "Restore a snapshot of Cassandra", 3)
	d.at(n)
	d.node(cassandra.Servers[0])
	d.env["SNAPSHOT"], d.env["KEYSPACE"], d.env["CASSANDRA_DATA"], d.env["BACKUP"] = "drill", dep.Keyspace, filepath.Join(data, "data"), filepath.Join(t.TempDir(), "backup")
	d.next()
	submit(t, n, board, "after", 60)
	must(t, n.Stop(t.Context()))
	d.next()
	must(t, n.Start(t.Context()))
	contains(t, d.next(), " 0 differences")
	waitForUsers(t, n, board, 50)
	// The restored data accept results.
	deployment.Eventually(t, func(ctx context.Context) error {
		got, err := n.Call(ctx, http.MethodPost, "/v1/boards/"+board+"/scores", map[string]any{"user_id": "user-050", "match_id": "later", "score": 1000}, nil)
		if err == nil && got/100 != 2 {
			err = fmt.Errorf("submit: status %d", got)
		}
		return err
	})
	waitForUsers(t, n, board, 51)
}
