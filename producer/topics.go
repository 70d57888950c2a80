package producer

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/IBM/sarama"
	"github.com/cenkalti/backoff/v5"
)

// TopicOptions say how the topics are made.
type TopicOptions struct {
	Topics
	// Partitions of every topic. More than are ever needed: users move between
	// partitions when the number grows, and mirrored topics must have as many.
	Partitions int
	// ReplicationFactor of every topic; of 3 replicas 2 must acknowledge.
	ReplicationFactor int
	// Retention is how long messages are kept. It must exceed the longest outage.
	Retention time.Duration
}

// EnsureTopics makes the topics that are missing, and checks those that are
// there: a topic on fewer replicas than asked for would lose acknowledged
// results with a broker. When it returns, brokers serve those that it made.
func EnsureTopics(ctx context.Context, brokers []string, c *sarama.Config, o TopicOptions) (made []string, err error) {
	admin, err := sarama.NewClusterAdmin(brokers, c)
	if err != nil {
		return nil, fmt.Errorf("producer: brokers %v: %w", brokers, unavailable(err))
	}
	defer func() { err = errors.Join(err, admin.Close()) }()
	have, err := admin.ListTopics()
	if err != nil {
		return nil, fmt.Errorf("producer: topics: %w", unavailable(err))
	}
	retention, inSync := strconv.FormatInt(o.Retention.Milliseconds(), 10), strconv.Itoa(o.ReplicationFactor/2+1)
	for _, topic := range []string{o.Results(), o.DeadLetters(), o.Updates()} {
		if d, ok := have[topic]; ok {
			if int(d.ReplicationFactor) < o.ReplicationFactor {
				return made, fmt.Errorf("producer: topic %q has %d replicas, %d are asked for: raise them with kafka-reassign-partitions, or ask for fewer", topic, d.ReplicationFactor, o.ReplicationFactor)
			}
			continue
		}
		err := admin.CreateTopic(topic, &sarama.TopicDetail{
			NumPartitions: int32(o.Partitions), ReplicationFactor: int16(o.ReplicationFactor),
			ConfigEntries: map[string]*string{"retention.ms": &retention, "min.insync.replicas": &inSync},
		}, false)
		switch {
		case errors.Is(err, sarama.ErrTopicAlreadyExists): // made by another, a moment ago
		case err != nil:
			return made, fmt.Errorf("producer: topic %q: %w", topic, unavailable(err))
		default:
			made = append(made, topic)
		}
	}
	return made, served(ctx, brokers, c, made)
}

// served waits until every partition of topics has a leader that knows of it.
func served(ctx context.Context, brokers []string, c *sarama.Config, topics []string) (err error) {
	if len(topics) == 0 {
		return nil
	}
	client, err := sarama.NewClient(brokers, c)
	if err != nil {
		return fmt.Errorf("producer: brokers %v: %w", brokers, unavailable(err))
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	const patience, pause = time.Minute, 50 * time.Millisecond
	_, err = backoff.Retry(ctx, func() (struct{}, error) { return struct{}{}, answered(client, topics) },
		backoff.WithBackOff(backoff.NewConstantBackOff(pause)), backoff.WithMaxElapsedTime(patience))
	return err
}

// answered asks for the end of every partition, which only its leader tells.
func answered(client sarama.Client, topics []string) error {
	if err := client.RefreshMetadata(topics...); err != nil {
		return fmt.Errorf("producer: topics: %w", unavailable(err))
	}
	for _, topic := range topics {
		ids, err := client.Partitions(topic)
		if err != nil {
			return fmt.Errorf("producer: topic %q: %w", topic, unavailable(err))
		}
		for _, id := range ids {
			if _, err := client.GetOffset(topic, id, sarama.OffsetNewest); err != nil {
				return fmt.Errorf("producer: partition %d of %q: %w", id, topic, unavailable(err))
			}
		}
	}
	return nil
}
