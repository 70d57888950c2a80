package kafka_test

import (
	"crypto/rand"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/open-leaderboard/leaderboard/internal/kafka"
	"github.com/open-leaderboard/leaderboard/test/cluster"
)

func fake(t *testing.T, opts ...kfake.Opt) []string {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(3)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c.ListenAddrs()
}

func TestEnsureTopics(t *testing.T) {
	brokers := cluster.Kafka(t, 1)
	o := kafka.TopicOptions{Topics: kafka.Topics{Prefix: "producer-" + rand.Text() + "-"}, Partitions: 1, ReplicationFactor: 1, Retention: time.Hour}
	ensure := func() ([]string, error) {
		return kafka.EnsureTopics(t.Context(), brokers, kafka.Options{}.Config("test"), o)
	}
	if created, err := ensure(); err != nil || len(created) != 5 {
		t.Fatalf("EnsureTopics created %v, error %v; want 5 topics", created, err)
	}
	checkSettings(t, brokers, o, map[string]string{"cleanup.policy": "delete", "retention.ms": "3600000", "min.insync.replicas": "1"})
	if created, err := ensure(); err != nil || len(created) != 0 {
		t.Errorf("the second EnsureTopics created %v, error %v; want no topics and no error", created, err)
	}
	risks, err := kafka.Risks(brokers, kafka.Options{}.Config("test"), o)
	if err != nil || len(risks) != 5 || !strings.Contains(risks[0], "has 1 replica, and the loss of its broker") {
		t.Errorf("Risks = %q, %v; want the risk of one replica for each topic", risks, err)
	}
	o.ReplicationFactor, o.Retention = 3, 2*time.Hour
	risks, err = kafka.Risks(brokers, kafka.Options{}.Config("test"), o)
	if err != nil || len(risks) != 10 || !strings.Contains(risks[0], "has 1 replicas, but 3 are required") || !strings.Contains(risks[1], "keeps messages for 1h0m0s, less than the required 2h0m0s") {
		t.Errorf("Risks = %q, %v; want two risks for each topic: the replicas and the retention", risks, err)
	}
}

func TestSettingsOfNewTopics(t *testing.T) {
	brokers := fake(t, kfake.BrokerConfigs(map[string]string{"log.cleanup.policy": "compact", "log.retention.ms": "1000", "min.insync.replicas": "1"}))
	o := kafka.TopicOptions{Partitions: 1, ReplicationFactor: 3, Retention: time.Hour}
	if _, err := kafka.EnsureTopics(t.Context(), brokers, kafka.Options{}.Config("test"), o); err != nil {
		t.Fatal(err)
	}
	checkSettings(t, brokers, o, map[string]string{"cleanup.policy": "delete", "retention.ms": "3600000", "min.insync.replicas": "2"})
}

// checkSettings ignores settings that a topic has from the brokers' defaults.
func checkSettings(t *testing.T, brokers []string, o kafka.TopicOptions, want map[string]string) {
	t.Helper()
	admin, err := sarama.NewClusterAdmin(brokers, kafka.Options{}.Config("test"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close() }()
	for _, topic := range []string{o.Results(), o.DeadLetters(), o.Updates(), o.Fetches(), o.ParkedFetches()} {
		results, err := admin.DescribeConfigs([]*sarama.ConfigResource{{Type: sarama.TopicResource, Name: topic}}, sarama.DescribeConfigsOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, e := range results[0].Configs {
			if _, ok := want[e.Name]; ok && e.Source == sarama.SourceTopic {
				got[e.Name] = e.Value
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("topic %s has the settings %v, want %v", topic, got, want)
		}
	}
}

func TestRisks(t *testing.T) {
	const day = "86400000"
	safe := map[string]string{"min.insync.replicas": "2", "retention.ms": day, "cleanup.policy": "delete"}
	tests := []struct {
		name     string
		replicas int
		settings map[string]string // in place of those in safe
		factor   int               // required replicas
		want     []string          // parts of the risks of match-results
	}{
		{"safe settings", 3, nil, 3, nil},
		{"more replicas and a longer retention than required", 3, map[string]string{"retention.ms": "-1"}, 2, nil},
		{"one replica", 1, map[string]string{"min.insync.replicas": "1"}, 0, []string{`"match-results" has 1 replica, and the loss`}},
		{"fewer replicas than required", 2, nil, 3, []string{"has 2 replicas, but 3 are required"}},
		{"one acknowledgement", 3, map[string]string{"min.insync.replicas": "1"}, 0, []string{"set its min.insync.replicas to 2"}},
		{"cleanup policy compact", 3, map[string]string{"cleanup.policy": "compact"}, 0, []string{"cleanup.policy=compact"}},
		{"cleanup policies compact and delete", 3, map[string]string{"cleanup.policy": "compact,delete"}, 0, []string{"cleanup.policy=compact,delete"}},
		{"a short retention", 3, map[string]string{"retention.ms": "3600000"}, 0, []string{"keeps messages for 1h0m0s, less than the required 24h0m0s"}},
		{"all risks at once", 1, map[string]string{"cleanup.policy": "compact", "retention.ms": "0"}, 0, []string{"has 1 replica,", "cleanup.policy=compact", "keeps messages for 0s"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			brokers := fake(t)
			admin, err := sarama.NewClusterAdmin(brokers, kafka.Options{}.Config("test"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = admin.Close() }()
			o := kafka.TopicOptions{ReplicationFactor: tt.factor, Retention: 24 * time.Hour, Partitions: 1}
			for _, topic := range []string{o.Results(), o.DeadLetters(), o.Updates(), o.Fetches(), o.ParkedFetches()} {
				detail := &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 3, ConfigEntries: map[string]*string{}}
				overrides := map[string]string{}
				if topic == o.Results() {
					overrides, detail.ReplicationFactor = tt.settings, int16(tt.replicas)
				}
				for name, value := range safe {
					if override, ok := overrides[name]; ok {
						value = override
					}
					detail.ConfigEntries[name] = &value
				}
				if err := admin.CreateTopic(topic, detail, false); err != nil {
					t.Fatal(err)
				}
			}
			got, err := kafka.Risks(brokers, kafka.Options{}.Config("test"), o)
			if err != nil || len(got) != len(tt.want) {
				t.Fatalf("Risks = %q, %v; want %q", got, err, tt.want)
			}
			for i, want := range tt.want {
				if !strings.Contains(got[i], want) {
					t.Errorf("Risks[%d] = %q, want %q", i, got[i], want)
				}
			}
		})
	}
}

func TestRisksOfMissingTopics(t *testing.T) {
	brokers := fake(t)
	for factor, want := range map[int]int{0: 0, 1: 5, 2: 0, 3: 0} {
		got, err := kafka.Risks(brokers, kafka.Options{}.Config("test"), kafka.TopicOptions{ReplicationFactor: factor})
		if err != nil || len(got) != want || want > 0 && !strings.Contains(got[0], "would have 1 replica") {
			t.Errorf("replication factor %d: Risks = %q, %v; want %d risks", factor, got, err, want)
		}
	}
}
