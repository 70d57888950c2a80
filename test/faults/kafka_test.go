package faults

import (
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/deployment"
)

// The broker that coordinates the consumers, and leads some partitions, is
// killed under load and comes back.
func TestBrokerKilled(t *testing.T) {
	kafka := cluster.Private(t, cluster.StartKafka, cluster.KafkaConfig{Brokers: 3, Logf: t.Logf})
	s := newService(t, deployment.Options{Kafka: kafka.Addrs(), KafkaReplicas: 3})
	ledger := s.ledger(t, "broker")
	load := s.load(t, ledger)
	load.more(t, 100)
	broker := s.coordinator(t, kafka)
	must(t, broker.Kill())
	after := load.recovered(t, time.Now())
	load.more(t, 100)
	t.Logf("%s killed: %d calls in a row succeeded, the first begun after %v", broker.Name, steady, after.Round(time.Millisecond))
	must(t, broker.Start(t.Context()))
	load.more(t, 50)
	load.stop()
	check(t, ledger, s.apis...)
}

// coordinator returns the broker that coordinates the group of consumers.
func (s *service) coordinator(t *testing.T, kafka *cluster.Cluster) *cluster.Server {
	t.Helper()
	c := sarama.NewConfig()
	c.Version = sarama.V2_8_0_0
	client, err := sarama.NewClient(s.Kafka, c)
	must(t, err)
	defer func() { must(t, client.Close()) }()
	broker, err := client.Coordinator(s.Group)
	must(t, err)
	for _, server := range kafka.Servers {
		if server.Addr == broker.Addr() {
			return server
		}
	}
	t.Fatalf("no broker is at %s", broker.Addr())
	return nil
}
