package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/deployment"
	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

// region is one of two regions. Each region has its own Cassandra data center, Kafka, Redis and
// process. The function mirror copies results to the other region.
type region struct {
	*deployment.Deployment
	name                    string
	node                    *deployment.Node
	cassandra, kafka, redis *cluster.Server
}

func newRegions(t *testing.T, flags ...string) [2]*region {
	t.Helper()
	cassandra := cluster.Private(t, cluster.StartCassandra, cluster.CassandraConfig{DataCenters: []string{"dc1", "dc2"}, Logf: t.Logf})
	var regions [2]*region
	for i, name := range []string{"east", "west"} {
		kafka := cluster.Private(t, cluster.StartKafka, cluster.KafkaConfig{Quick: true, Logf: t.Logf})
		redis := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{})
		dataCenters := [][]string{{"dc1", "dc2"}, {"dc2", "dc1"}}[i]
		regions[i] = &region{
			name: name, cassandra: cassandra.Servers[i], kafka: kafka.Servers[0], redis: redis.Servers[0],
			Deployment: deployment.New(t, deployment.Options{Cassandra: cassandra.Addrs(), DataCenters: dataCenters, Kafka: kafka.Addrs(), Redis: redis.Addrs()}),
		}
	}
	for i, r := range regions {
		mirror(t, r.name, r.Deployment, regions[1-i].Deployment)
	}
	for _, r := range regions {
		r.node = r.Serve(t, append([]string{"--region=" + r.name}, flags...)...)
	}
	return regions
}

// waitForReplication waits until both data centers have all writes. Until then, verify finds
// differences.
func (r *region) waitForReplication(t *testing.T) {
	t.Helper()
	deployment.Eventually(t, func(ctx context.Context) error { return cluster.CheckReplicated(ctx, r.Cassandra) })
}

// waitForBoards waits until the region sees the boards of a ledger. Until then, results of these
// boards become dead letters.
func (r *region) waitForBoards(t *testing.T, l *ledger) {
	t.Helper()
	deployment.Eventually(t, func(ctx context.Context) error {
		for _, b := range l.boards {
			if _, err := readPage(ctx, r.node.Client, b, ""); err != nil {
				return fmt.Errorf("region %s: board %s: %w", r.name, b.id, err)
			}
		}
		return nil
	})
}

// Each result is sent to a random region, so a result and its correction often enter different
// regions. After 400 of 600 results, a board gets a division. The ladders of both regions must
// equal the recount. They must also equal the ladders of a single deployment that gets all results.
func TestRegionsConverge(t *testing.T) {
	needs.Slow(t, "regions")
	s := seed.New(t)
	regions := newRegions(t)
	nodes := []*deployment.Node{regions[0].node, regions[1].node}
	single := deployment.New(t, deployment.Options{Cassandra: regions[0].Cassandra, DataCenters: []string{"dc1"}, Kafka: regions[0].Kafka})
	singleNode := single.Serve(t)

	// Both ledgers have the same seed, so they generate the same results, each for its own boards.
	ledger, singleLedger := newLedger(t, nodes[0], "regions", s), newLedger(t, singleNode, "region", s)
	regions[1].waitForBoards(t, ledger)
	logs := []resultWriter{newResultWriter(t, regions[0].Kafka), newResultWriter(t, regions[1].Kafka)}
	random := rand.New(rand.NewPCG(s, 1))
	var halves [2]int
	send := func(toRegion, toSingle *result) {
		half := random.IntN(2)
		halves[half]++
		must(t, logs[half].send(t.Context(), regions[half].TopicPrefix+"match-results", toRegion))
		must(t, logs[0].send(t.Context(), single.TopicPrefix+"match-results", toSingle))
	}
	for i := range 600 {
		if i == 400 {
			// The division must reach an index that has already loaded the seasons.
			deployment.Eventually(t, func(ctx context.Context) error { return hasUsers(ctx, nodes[1], ledger) })
			addTeams(t, nodes[0], ledger)
			addTeams(t, singleNode, singleLedger)
		}
		send(ledger.next(), singleLedger.next())
	}
	for r := ledger.unsent(); r != nil; r = ledger.unsent() {
		send(r, singleLedger.unsent())
	}
	t.Logf("results per region: %d and %d", halves[0], halves[1])
	check(t, ledger, nodes...)
	check(t, singleLedger, singleNode)
	for i, b := range ledger.boards {
		for _, team := range b.ladders() {
			want, err := readPage(t.Context(), singleNode.Client, singleLedger.boards[i], team)
			must(t, err)
			for r, n := range nodes {
				got, err := readPage(t.Context(), n.Client, b, team)
				must(t, err)
				if diff := cmp.Diff(text(want.Standings), text(got.Standings)); diff != "" {
					t.Errorf("board with the policy %s, team %q (-single deployment +region %s):\n%s", b.policy, team, regions[r].name, diff)
				}
			}
		}
	}
	// Without Redis, a node answers from its own Cassandra data center, without ranks.
	for i, n := range nodes {
		must(t, regions[i].redis.Kill())
		deployment.Eventually(t, func(ctx context.Context) error { return equalsRecount(ctx, n, ledger, true) })
	}
}

func hasUsers(ctx context.Context, n *deployment.Node, l *ledger) error {
	for _, b := range l.boards {
		page, err := readPage(ctx, n.Client, b, "")
		if err != nil {
			return err
		}
		if len(page.Standings) == 0 || page.Degraded {
			return fmt.Errorf("board %s has %d users, want more than 0; degraded is %v, want false", b.id, len(page.Standings), page.Degraded)
		}
	}
	return nil
}

func addTeams(t *testing.T, n *deployment.Node, l *ledger) {
	t.Helper()
	for _, b := range l.boards {
		if b.teams {
			continue
		}
		status, err := n.Client.Call(t.Context(), http.MethodPatch, "/v1/boards/"+b.id, object{"divisions": []string{"team"}}, nil)
		if err != nil || status != http.StatusOK {
			t.Fatalf("add a division to board %s: status %d, error %v", b.id, status, err)
		}
		b.teams = true
	}
}

// mirror copies the results of a region to another region until t ends, like MirrorMaker. Copies
// keep partition, key, value, headers and timestamp.
func mirror(t *testing.T, region string, from, to *deployment.Deployment) {
	t.Helper()
	topic, mirrored := from.TopicPrefix+"match-results", region+"."+to.TopicPrefix+"match-results"
	source, err := kgo.NewClient(kgo.SeedBrokers(from.Kafka...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	must(t, err)
	target, err := kgo.NewClient(kgo.SeedBrokers(to.Kafka...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	must(t, err)
	create := kmsg.NewPtrCreateTopicsRequest()
	created := kmsg.NewCreateTopicsRequestTopic()
	created.Topic, created.NumPartitions, created.ReplicationFactor = mirrored, int32(from.Partitions), 1
	create.Topics = append(create.Topics, created)
	answer, err := create.RequestWith(t.Context(), target)
	must(t, err)
	if code := answer.Topics[0].ErrorCode; code != 0 {
		t.Fatalf("create topic %s: error %d", mirrored, code)
	}
	var copying sync.WaitGroup
	copying.Go(func() {
		for t.Context().Err() == nil {
			source.PollFetches(t.Context()).EachRecord(func(r *kgo.Record) {
				for t.Context().Err() == nil {
					copied := &kgo.Record{Topic: mirrored, Partition: r.Partition, Key: r.Key, Value: r.Value, Headers: r.Headers, Timestamp: r.Timestamp}
					if target.ProduceSync(t.Context(), copied).FirstErr() == nil {
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() {
		copying.Wait()
		source.Close()
		target.Close()
	})
}
