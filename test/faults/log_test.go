package faults

import (
	"encoding/json"
	"testing"

	"github.com/IBM/sarama"
)

// resultWriter writes results to Kafka. It shares no code with the service.
type resultWriter struct{ sarama.SyncProducer }

func newResultWriter(t *testing.T, brokers []string) resultWriter {
	t.Helper()
	c := sarama.NewConfig()
	c.Version = sarama.V2_8_0_0
	c.Producer.RequiredAcks, c.Producer.Idempotent, c.Net.MaxOpenRequests = sarama.WaitForAll, true, 1
	c.Producer.Return.Successes, c.Producer.Return.Errors = true, true
	c.Producer.Partitioner = sarama.NewMurmur2Partitioner
	c.Producer.Retry.Max = 50
	p, err := sarama.NewSyncProducer(brokers, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return resultWriter{p}
}

// message returns the result as a Kafka message in JSON.
func (r *result) message(topic string) (*sarama.ProducerMessage, error) {
	value := map[string]any{"board_id": r.board.id, "result": r.json()}
	if r.retracted {
		value["retracted"], value["season"] = true, "all"
	}
	text, err := json.Marshal(value)
	return &sarama.ProducerMessage{
		Topic: topic, Key: sarama.StringEncoder(r.user), Value: sarama.ByteEncoder(text),
		Headers: []sarama.RecordHeader{{Key: []byte("content-type"), Value: []byte("application/json")}},
	}, err
}

// send writes the result and returns once Kafka acknowledges it.
func (w resultWriter) send(topic string, r *result) error {
	m, err := r.message(topic)
	if err == nil {
		_, _, err = w.SendMessage(m)
	}
	return err
}
