package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"

	"github.com/IBM/sarama"
	"github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/deployment"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

// Two regions each have their own Cassandra data center, Redis, topics and consumers.
// Each result goes to a random region and is mirrored to the other. A correction
// therefore often arrives in another region than the result. The ladders of both
// regions must equal the recount, which is computed from all results without the
// service. They must also equal the ladders of a deployment with a single region that
// receives all results. Meanwhile, one region adds a division to a board, which must appear in
// both.
func TestRegionsConverge(t *testing.T) {
	s := seed.New(t)
	cassandra := cluster.Private(t, cluster.StartCassandra, cluster.CassandraConfig{DataCenters: []string{"dc1", "dc2"}, Logf: t.Logf})
	single := deployment.New(t, deployment.Options{})
	names := []string{"east", "west"}
	var redis []*cluster.Cluster
	var regions []*deployment.Deployment
	for _, dcs := range [][]string{{"dc1", "dc2"}, {"dc2", "dc1"}} {
		r := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{})
		redis = append(redis, r)
		regions = append(regions, deployment.New(t, deployment.Options{
			Cassandra: cassandra.Addrs(), DataCenters: dcs, Kafka: single.Kafka, Redis: r.Addrs(),
		}))
	}
	for i, from := range regions {
		mirror(t, names[i], from, regions[1-i])
	}
	nodes := []*deployment.Node{regions[0].Serve(t, "--region="+names[0]), regions[1].Serve(t, "--region="+names[1])}
	singleNode := single.Serve(t)

	// Both ledgers have the same seed, so they generate the same results, each for its own boards.
	ledger, singleLedger := newLedger(t, nodes[0], "regions", s), newLedger(t, singleNode, "region", s)
	// A result whose board the other region does not see yet would become a dead letter.
	deployment.Eventually(t, func(ctx context.Context) error {
		for _, b := range ledger.boards {
			if _, err := readPage(ctx, nodes[1].Client, b, ""); err != nil {
				return err
			}
		}
		return nil
	})
	log := newResultWriter(t, single.Kafka)
	random := rand.New(rand.NewPCG(s, 1))
	var halves [2]int
	send := func(toRegion, toSingle *result) {
		half := random.IntN(2)
		halves[half]++
		must(t, log.send(regions[half].TopicPrefix+"match-results", toRegion))
		must(t, log.send(single.TopicPrefix+"match-results", toSingle))
	}
	for i := range 600 {
		if i == 400 {
			// The seasons are in the index of the other region, without the new division.
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
					t.Errorf("%s, team %q (-one region +%s):\n%s", b.policy, team, names[r], diff)
				}
			}
		}
	}
	// Without Redis, a node answers from its own Cassandra data center, without ranks.
	// The scores must equal the recount too.
	for i, n := range nodes {
		must(t, redis[i].Servers[0].Kill())
		deployment.Eventually(t, func(ctx context.Context) error { return equalsRecount(ctx, n, ledger, true) })
	}
}

// hasUsers returns an error if a node has no ranks on a board of a ledger.
func hasUsers(ctx context.Context, n *deployment.Node, l *ledger) error {
	for _, b := range l.boards {
		page, err := readPage(ctx, n.Client, b, "")
		if err != nil {
			return err
		}
		if len(page.Standings) == 0 || page.Degraded {
			return fmt.Errorf("board %s has %d users, degraded: %v", b.id, len(page.Standings), page.Degraded)
		}
	}
	return nil
}

// addTeams ranks the users of every board of a ledger by team too.
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

// mirror copies the results of a region to another region until t ends, as MirrorMaker
// does. The target topic's name begins with the source region's name. Each message
// keeps its partition, key, value, headers and timestamp.
func mirror(t *testing.T, region string, from, to *deployment.Deployment) {
	t.Helper()
	topic, mirrored := from.TopicPrefix+"match-results", region+"."+to.TopicPrefix+"match-results"
	c := sarama.NewConfig()
	c.Version = sarama.V2_8_0_0
	c.Producer.Partitioner = sarama.NewManualPartitioner
	c.Producer.RequiredAcks, c.Producer.Return.Successes = sarama.WaitForAll, true
	client, err := sarama.NewClient(from.Kafka, c)
	must(t, err)
	admin, err := sarama.NewClusterAdmin(to.Kafka, c)
	must(t, err)
	must(t, admin.CreateTopic(mirrored, &sarama.TopicDetail{NumPartitions: int32(from.Partitions), ReplicationFactor: 1}, false))
	must(t, admin.Close())
	consumer, err := sarama.NewConsumerFromClient(client)
	must(t, err)
	producer, err := sarama.NewSyncProducer(to.Kafka, c)
	must(t, err)
	var copying sync.WaitGroup
	var partitions []sarama.PartitionConsumer
	for n := range from.Partitions {
		p, err := consumer.ConsumePartition(topic, int32(n), sarama.OffsetOldest)
		must(t, err)
		partitions = append(partitions, p)
		copying.Go(func() {
			for m := range p.Messages() {
				headers := make([]sarama.RecordHeader, len(m.Headers))
				for i, h := range m.Headers {
					headers[i] = *h
				}
				_, _, err := producer.SendMessage(&sarama.ProducerMessage{
					Topic: mirrored, Partition: m.Partition, Timestamp: m.Timestamp, Headers: headers,
					Key: sarama.ByteEncoder(m.Key), Value: sarama.ByteEncoder(m.Value),
				})
				if err != nil {
					t.Errorf("mirror %s: %v", topic, err)
				}
			}
		})
	}
	t.Cleanup(func() {
		for _, p := range partitions {
			p.AsyncClose()
		}
		copying.Wait()
		for _, closer := range []func() error{consumer.Close, producer.Close, client.Close} {
			if err := closer(); err != nil {
				t.Error(err)
			}
		}
	})
}
