package kafka

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/IBM/sarama"
)

// Risks returns a line for each topic setting that could make Kafka lose results, with the
// correction. Risks also reports topics with fewer replicas than o.ReplicationFactor. If
// o.ReplicationFactor is 1, Risks also reports missing topics, because [EnsureTopics] would
// create them with one replica.
//
// Errors: [leaderboard.ErrUnavailable], [ErrRejected]. A retry cannot correct other errors.
func Risks(brokers []string, c *sarama.Config, o TopicOptions) (risks []string, err error) {
	admin, existing, err := listTopics(brokers, c)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, admin.Close()) }()
	settings, err := topicSettings(admin, o, existing)
	if err != nil {
		return nil, err
	}
	for _, topic := range o.names() {
		switch detail, ok := existing[topic]; {
		case ok:
			risks = append(risks, o.risksOf(topic, int(detail.ReplicationFactor), settings[topic])...)
		case o.ReplicationFactor == 1:
			risks = append(risks, fmt.Sprintf("topic %q would have 1 replica, and the loss of its broker would lose results: choose --replication-factor 3", topic))
		}
	}
	return risks, nil
}

func topicSettings(admin sarama.ClusterAdmin, o TopicOptions, existing map[string]sarama.TopicDetail) (map[string]map[string]string, error) {
	var topics []*sarama.ConfigResource
	for _, topic := range o.names() {
		if _, ok := existing[topic]; ok {
			topics = append(topics, &sarama.ConfigResource{Type: sarama.TopicResource, Name: topic})
		}
	}
	if len(topics) == 0 {
		return nil, nil
	}
	results, err := admin.DescribeConfigs(topics, sarama.DescribeConfigsOptions{})
	if err != nil {
		return nil, fmt.Errorf("kafka: settings of the topics: %w", Unavailable(err))
	}
	settings := map[string]map[string]string{}
	for _, r := range results {
		switch {
		case errors.Is(r.ErrorCode, sarama.ErrNoError):
		case errors.Is(r.ErrorCode, sarama.ErrTopicAuthorizationFailed), errors.Is(r.ErrorCode, sarama.ErrClusterAuthorizationFailed):
			return nil, fmt.Errorf("kafka: topic %q: this user may not read its settings: allow the operation DescribeConfigs: %w", r.Name, r.ErrorCode)
		default:
			return nil, fmt.Errorf("kafka: settings of topic %q: %w", r.Name, Unavailable(r.ErrorCode))
		}
		settings[r.Name] = map[string]string{}
		for _, e := range r.Configs {
			settings[r.Name][e.Name] = e.Value
		}
	}
	return settings, nil
}

func (o TopicOptions) risksOf(topic string, replicas int, settings map[string]string) (risks []string) {
	add := func(format string, args ...any) {
		risks = append(risks, fmt.Sprintf("topic %q "+format, append([]any{topic}, args...)...))
	}
	const reassign = "add replicas with kafka-reassign-partitions"
	switch {
	case replicas < o.ReplicationFactor:
		add("has %d replicas, but %d are required: "+reassign+", or lower --replication-factor", replicas, o.ReplicationFactor)
	case replicas == 1:
		add("has 1 replica, and the loss of its broker loses results: " + reassign)
	}
	if settings["min.insync.replicas"] == "1" && replicas > 1 {
		add("acknowledges results that only one of its %d replicas has stored: set its min.insync.replicas to 2", replicas)
	}
	if policy := settings["cleanup.policy"]; policy != "" && policy != "delete" {
		add("has cleanup.policy=%s, which deletes results before the end of the retention: set it to delete", policy)
	}
	ms, err := strconv.ParseInt(settings["retention.ms"], 10, 64)
	if retention := time.Duration(ms) * time.Millisecond; err == nil && ms >= 0 && ms < o.Retention.Milliseconds() {
		add("keeps messages for %v, less than the required %v: raise its retention.ms to %d, or lower kafka.retention", retention, o.Retention, o.Retention.Milliseconds())
	}
	return risks
}
