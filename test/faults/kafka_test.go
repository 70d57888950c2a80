package faults

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/deployment"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

// The brokers are killed in turn. Calls succeed again while a broker is down, and no acknowledged
// result is lost.
func TestBrokersKilled(t *testing.T) {
	needs.Slow(t, "faults")
	kafka := cluster.Private(t, cluster.StartKafka, cluster.KafkaConfig{Brokers: 3, Logf: t.Logf})
	s := newService(t, deployment.Options{Kafka: kafka.Addrs(), KafkaReplicas: 3})
	ledger := s.ledger(t, "brokers")
	load := s.load(t, ledger)
	load.waitForMore(t, 100)
	kill := func(role string, broker *cluster.Server) {
		must(t, broker.Kill())
		delay := load.waitForRecovery(t, time.Now())
		load.waitForMore(t, 100)
		t.Logf("%s killed (%s): %d consecutive calls succeeded, the first started after %v", broker.Name, role, steadyCalls, delay.Round(time.Millisecond))
		must(t, broker.Start(t.Context()))
		load.waitForMore(t, 50)
	}
	coordinator := s.coordinator(t, kafka)
	kill("coordinator", coordinator)
	controller := activeController(t, kafka)
	kill("controller", controller)
	for _, broker := range kafka.Servers {
		if broker != coordinator && broker != controller {
			kill("neither coordinator nor controller", broker)
		}
	}
	load.stop()
	check(t, ledger, s.apis...)
}

// An API node starts without Kafka. It answers reads, and answers submits with 503 until a broker
// runs.
func TestStartWithoutKafka(t *testing.T) {
	needs.Slow(t, "faults")
	kafka := cluster.Private(t, cluster.StartKafka, cluster.KafkaConfig{Brokers: 1, Logf: t.Logf})
	d := deployment.New(t, deployment.Options{Kafka: kafka.Addrs()})
	broker := kafka.Servers[0]
	must(t, broker.Kill())
	api := d.Serve(t, "--roles=api")
	scores := "/v1/boards/" + api.Board(t, "early", map[string]any{"order": "HIGHER_FIRST", "policy": "SUM", "season": map[string]any{"schedule": "NONE"}}) + "/scores"
	if status, err := api.Call(t.Context(), http.MethodGet, scores, nil, nil); err != nil || status != http.StatusOK {
		t.Errorf("read without Kafka: status %d, error %v, want status 200", status, err)
	}
	submit := func(ctx context.Context) (int, error) {
		return api.Call(ctx, http.MethodPost, scores, map[string]any{"user_id": "ann", "match_id": "m", "points": 1}, nil)
	}
	if status, err := submit(t.Context()); err != nil || status != http.StatusServiceUnavailable {
		t.Errorf("submit without Kafka: status %d, error %v, want status 503", status, err)
	}
	must(t, broker.Start(t.Context()))
	d.Serve(t, "--roles=consumer")
	deployment.Eventually(t, func(ctx context.Context) error {
		status, err := submit(ctx)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("submit: status %d, want 200", status)
		}
		return err
	})
}

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
	t.Fatalf("the coordinator's address %s is not the address of a broker", broker.Addr())
	return nil
}

func activeController(t *testing.T, kafka *cluster.Cluster) *cluster.Server {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(kafka.Addrs()...))
	must(t, err)
	defer client.Close()
	request := kmsg.NewPtrDescribeQuorumRequest()
	topic := kmsg.NewDescribeQuorumRequestTopic()
	topic.Topic, topic.Partitions = "__cluster_metadata", []kmsg.DescribeQuorumRequestTopicPartition{kmsg.NewDescribeQuorumRequestTopicPartition()}
	request.Topics = append(request.Topics, topic)
	answer, err := request.RequestWith(t.Context(), client)
	must(t, err)
	if answer.ErrorCode != 0 || len(answer.Topics) != 1 || len(answer.Topics[0].Partitions) != 1 {
		t.Fatalf("describe the quorum of controllers: error %d and %d topics, want error 0 and one topic with one partition", answer.ErrorCode, len(answer.Topics))
	}
	id := answer.Topics[0].Partitions[0].LeaderID // the broker with id i is kafka.Servers[i-1]
	if id < 1 || int(id) > len(kafka.Servers) {
		t.Fatalf("the active controller is broker %d, want 1 to %d", id, len(kafka.Servers))
	}
	return kafka.Servers[id-1]
}
