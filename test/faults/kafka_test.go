package faults

import (
	"context"
	"fmt"
	"net/http"
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

// A server that is started while no broker is there reads, refuses results, and
// takes them once a broker is back.
func TestStartWithoutKafka(t *testing.T) {
	kafka := cluster.Private(t, cluster.StartKafka, cluster.KafkaConfig{Brokers: 1, Logf: t.Logf})
	d := deployment.New(t, deployment.Options{Kafka: kafka.Addrs()})
	broker := kafka.Servers[0]
	must(t, broker.Kill())
	api := d.Serve(t, "--roles=api")
	scores := "/v1/boards/" + api.Board(t, "early", map[string]any{"order": "HIGHER_FIRST", "policy": "SUM", "season": map[string]any{"schedule": "NONE"}}) + "/scores"
	if status, err := api.Call(t.Context(), http.MethodGet, scores, nil, nil); err != nil || status != http.StatusOK {
		t.Errorf("a read without Kafka: status %d, %v", status, err)
	}
	submit := func(ctx context.Context) (int, error) {
		return api.Call(ctx, http.MethodPost, scores, map[string]any{"user_id": "ann", "match_id": "m", "points": 1}, nil)
	}
	if status, err := submit(t.Context()); err != nil || status != http.StatusServiceUnavailable {
		t.Errorf("a submit without Kafka: status %d, %v", status, err)
	}
	must(t, broker.Start(t.Context()))
	d.Serve(t, "--roles=consumer")
	eventually(t, func(ctx context.Context) error {
		status, err := submit(ctx)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("submit: status %d", status)
		}
		return err
	})
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
