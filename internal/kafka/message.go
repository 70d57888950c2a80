package kafka

import (
	"github.com/IBM/sarama"
	"google.golang.org/protobuf/proto"
)

// ContentType is the header with the encoding of a message's value: [Protobuf] by default,
// or [JSON].
const (
	ContentType = "content-type"
	Protobuf    = "application/x-protobuf"
	JSON        = "application/json"
)

// NewMessage returns a message whose value is encoded as protobuf.
func NewMessage(topic, key string, value proto.Message) (*sarama.ProducerMessage, error) {
	bytes, err := proto.Marshal(value)
	if err != nil {
		return nil, err
	}
	return &sarama.ProducerMessage{
		Topic: topic, Key: sarama.StringEncoder(key), Value: sarama.ByteEncoder(bytes),
		Headers: []sarama.RecordHeader{{Key: []byte(ContentType), Value: []byte(Protobuf)}},
	}, nil
}

// Header returns the value of m's first header named key, or "".
func Header(m *sarama.ConsumerMessage, key string) string {
	for _, h := range m.Headers {
		if string(h.Key) == key {
			return string(h.Value)
		}
	}
	return ""
}
