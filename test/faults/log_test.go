package faults

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// resultWriter writes results to Kafka. It shares no code with the service.
type resultWriter struct{ client *kgo.Client }

func newResultWriter(t *testing.T, brokers []string) resultWriter {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...)) // the default partitioner maps keys to partitions like Java's client
	must(t, err)
	t.Cleanup(client.Close)
	return resultWriter{client}
}

func (r *result) message(topic string) (*kgo.Record, error) {
	value := map[string]any{"board_id": r.board.id, "result": r.json()}
	if r.retracted {
		value["retracted"], value["season"] = true, "all"
	}
	text, err := json.Marshal(value)
	return &kgo.Record{
		Topic: topic, Key: []byte(r.user), Value: text,
		Headers: []kgo.RecordHeader{{Key: "content-type", Value: []byte("application/json")}},
	}, err
}

func (w resultWriter) send(ctx context.Context, topic string, r *result) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	m, err := r.message(topic)
	if err == nil {
		err = w.client.ProduceSync(ctx, m).FirstErr()
	}
	return err
}
