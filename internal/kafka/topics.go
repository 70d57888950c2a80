package kafka

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/IBM/sarama"
	"github.com/cenkalti/backoff/v5"
)

// Topics contains the names of the topics of one service.
type Topics struct {
	// Prefix separates services that share a Kafka cluster. It must not contain a dot.
	Prefix string
}

// Results returns the name of the topic for match results. The topic mirrored from a region eu
// is named "eu." + t.Results().
func (t Topics) Results() string { return t.Prefix + "match-results" }

// DeadLetters returns the name of the topic for messages that can never be applied.
func (t Topics) DeadLetters() string { return t.Prefix + "match-results.dlq" }

// Fetches returns the name of the topic for results to fetch from the game's own store. Consumers
// write it.
func (t Topics) Fetches() string { return t.Prefix + "match-results.fetch" }

// ParkedFetches returns the name of the topic for fetches whose first attempts have failed.
func (t Topics) ParkedFetches() string { return t.Prefix + "match-results.fetch-parked" }

// Updates returns the name of the topic for the outcomes of results.
func (t Topics) Updates() string { return t.Prefix + "leaderboard-updates" }

// TopicOptions are the settings that [EnsureTopics] sets and [Risks] requires.
type TopicOptions struct {
	Topics
	// Partitions is the number of partitions of each topic, mirrored topics included. It
	// must never grow, because users would move to other partitions.
	Partitions int
	// ReplicationFactor is the number of replicas. A majority must acknowledge a message.
	ReplicationFactor int
	// Retention must exceed the longest outage.
	Retention time.Duration
}

func (o TopicOptions) minInSync() int { return o.ReplicationFactor/2 + 1 }

func (t Topics) names() []string {
	return []string{t.Results(), t.DeadLetters(), t.Updates(), t.Fetches(), t.ParkedFetches()}
}

// The caller must close the client.
func listTopics(brokers []string, c *sarama.Config) (sarama.ClusterAdmin, map[string]sarama.TopicDetail, error) {
	admin, err := sarama.NewClusterAdmin(brokers, c)
	if err != nil {
		return nil, nil, fmt.Errorf("kafka: %w", ConnectError(brokers, c, err))
	}
	existing, err := admin.ListTopics()
	if err != nil {
		return nil, nil, fmt.Errorf("kafka: topics: %w", errors.Join(Unavailable(err), admin.Close()))
	}
	return admin, existing, nil
}

// EnsureTopics creates the missing topics, waits until each of their partitions has a
// leader, and returns their names. It does not change existing topics: see [Risks].
func EnsureTopics(ctx context.Context, brokers []string, c *sarama.Config, o TopicOptions) (created []string, err error) {
	admin, existing, err := listTopics(brokers, c)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, admin.Close()) }()
	retention, inSync, cleanup := strconv.FormatInt(o.Retention.Milliseconds(), 10), strconv.Itoa(o.minInSync()), "delete"
	for _, topic := range o.names() {
		if _, ok := existing[topic]; ok {
			continue
		}
		config := map[string]*string{"retention.ms": &retention, "min.insync.replicas": &inSync, "cleanup.policy": &cleanup}
		if topic != o.DeadLetters() && topic != o.Updates() {
			// A consumer compares the times in a result, and the age of a fetch, with the time of the
			// message. The broker sets this time, because a producer's clock may be wrong.
			config["message.timestamp.type"] = new("LogAppendTime")
		}
		err := admin.CreateTopic(topic, &sarama.TopicDetail{
			NumPartitions: int32(o.Partitions), ReplicationFactor: int16(o.ReplicationFactor), ConfigEntries: config,
		}, false)
		switch {
		case errors.Is(err, sarama.ErrTopicAlreadyExists):
		case err != nil:
			return created, fmt.Errorf("kafka: topic %q: %w", topic, Unavailable(err))
		default:
			created = append(created, topic)
		}
	}
	return created, awaitLeaders(ctx, brokers, c, created)
}

func awaitLeaders(ctx context.Context, brokers []string, c *sarama.Config, topics []string) (err error) {
	if len(topics) == 0 {
		return nil
	}
	client, err := sarama.NewClient(brokers, c)
	if err != nil {
		return fmt.Errorf("kafka: %w", ConnectError(brokers, c, err))
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	const timeout, interval = time.Minute, 50 * time.Millisecond
	_, err = backoff.Retry(ctx, func() (struct{}, error) { return struct{}{}, checkLeaders(client, topics) },
		backoff.WithBackOff(backoff.NewConstantBackOff(interval)), backoff.WithMaxElapsedTime(timeout))
	return err
}

// checkLeaders returns an error unless each partition has a leader. Only a leader can return
// the newest offset.
func checkLeaders(client sarama.Client, topics []string) error {
	if err := client.RefreshMetadata(topics...); err != nil {
		return fmt.Errorf("kafka: topics: %w", Unavailable(err))
	}
	for _, topic := range topics {
		ids, err := client.Partitions(topic)
		if err != nil {
			return fmt.Errorf("kafka: topic %q: %w", topic, Unavailable(err))
		}
		for _, id := range ids {
			if _, err := client.GetOffset(topic, id, sarama.OffsetNewest); err != nil {
				return fmt.Errorf("kafka: partition %d of %q: %w", id, topic, Unavailable(err))
			}
		}
	}
	return nil
}

// MissingTopics returns the names of the service's topics that do not exist. Errors: those of [Risks].
func MissingTopics(brokers []string, c *sarama.Config, t Topics) (missing []string, err error) {
	admin, existing, err := listTopics(brokers, c)
	if err != nil {
		return nil, err
	}
	for _, topic := range t.names() {
		if _, ok := existing[topic]; !ok {
			missing = append(missing, topic)
		}
	}
	return missing, admin.Close()
}
