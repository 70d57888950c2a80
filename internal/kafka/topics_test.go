package kafka_test

import (
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard/internal/kafka"
	"github.com/open-leaderboard/leaderboard/test/cluster"
)

// EnsureTopics rejects an existing topic with fewer replicas than required, because
// the loss of one broker could lose acknowledged results.
func TestEnsureTopicsRejectsTooFewReplicas(t *testing.T) {
	brokers := cluster.Kafka(t, 1)
	o := kafka.TopicOptions{Topics: kafka.Topics{Prefix: "producer-" + rand.Text() + "-"}, Partitions: 1, ReplicationFactor: 1, Retention: time.Hour}
	ensure := func() ([]string, error) {
		return kafka.EnsureTopics(t.Context(), brokers, kafka.Config("test"), o)
	}
	if created, err := ensure(); err != nil || len(created) != 3 {
		t.Fatalf("EnsureTopics created %v, %v", created, err)
	}
	if created, err := ensure(); err != nil || len(created) != 0 {
		t.Errorf("EnsureTopics again created %v, %v", created, err)
	}
	o.ReplicationFactor = 3
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(5 * time.Minute); ; {
		_, err := ensure()
		if err != nil && strings.Contains(err.Error(), "has 1 replicas, but 3 are required") {
			return
		}
		select { // a broker may not list the new topics yet
		case <-tick.C:
		case <-deadline:
			t.Fatalf("EnsureTopics with three replicas = %v", err)
		}
	}
}
