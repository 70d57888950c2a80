package producer

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/IBM/sarama"
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
// results with a broker.
func EnsureTopics(brokers []string, c *sarama.Config, o TopicOptions) (made []string, err error) {
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
	return made, nil
}
