package consumer

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

const (
	// maxLetterBytes bounds a dead letter in all. Producers and brokers take 1 MiB
	// unless they are told otherwise, and Kafka adds a little to what it is given.
	maxLetterBytes = 1_000_000
	// minLetterBytes is what a dead letter always has room in, cut as it may be.
	minLetterBytes = 4 << 10
	// maxPartBytes bounds its key, and together the headers that the message had,
	// so that most is left for the value; smallPart of it in a letter that is smaller.
	maxPartBytes = 64 << 10
	smallPart    = 15
	// maxDetailBytes bounds what is told about a fault, which may quote the message.
	maxDetailBytes = 4 << 10
)

// deadLetter returns the message that keeps m, as it was, with why it is there
// and where it came from in its headers. What is too large is cut, which headers
// tell too: a letter fits into limit, or its partition would wait behind it for ever.
func deadLetter(topic string, m *sarama.ConsumerMessage, c cause, detail string, limit int) *sarama.ProducerMessage {
	part := min(maxPartBytes, limit/smallPart)
	letter := &sarama.ProducerMessage{Topic: topic}
	add := func(key, value string) {
		letter.Headers = append(letter.Headers, sarama.RecordHeader{Key: []byte(key), Value: []byte(value)})
	}
	add("cause", string(c))
	add("detail", short(detail, part))
	add("origin-topic", m.Topic)
	add("origin-partition", strconv.Itoa(int(m.Partition)))
	add("origin-offset", strconv.FormatInt(m.Offset, 10))
	add("origin-timestamp", m.Timestamp.UTC().Format(time.RFC3339Nano))
	if key := m.Key; key != nil {
		if len(key) > part {
			add("origin-key-bytes", strconv.Itoa(len(key)))
			key = key[:part]
		}
		letter.Key = sarama.ByteEncoder(key)
	}
	size := letter.ByteSize(2)
	before := letter.Headers
	for _, h := range m.Headers {
		letter.Headers = append(letter.Headers, *h)
	}
	if n := letter.ByteSize(2) - size; n > part {
		letter.Headers = before
		add("origin-headers-bytes", strconv.Itoa(n))
	}
	value := m.Value
	if len(value) > limit-letter.ByteSize(2) {
		sum := sha256.Sum256(value)
		add("origin-value-bytes", strconv.Itoa(len(value)))
		add("origin-value-sha256", hex.EncodeToString(sum[:]))
		value = value[:limit-letter.ByteSize(2)]
	}
	letter.Value = sarama.ByteEncoder(value)
	return letter
}

// short returns the beginning of a text, for a log line or a header.
func short(text string, most int) string {
	if len(text) > most {
		text = text[:most]
	}
	return strings.ToValidUTF8(text, "")
}
