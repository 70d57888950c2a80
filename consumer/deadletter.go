package consumer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/open-leaderboard/leaderboard"
)

// cause is the reason of a dead letter, in its header and in a metric.
type cause string

const (
	causeForm    cause = "form"    // the value cannot be decoded
	causeInvalid cause = "invalid" // a field is outside its limits
	causeBoard   cause = "board"   // the board does not exist
	causeSeason  cause = "season"  // the board has no season for the result
	causeDamaged cause = "damaged" // stored data of the user or board cannot be decoded
	causeFetch   cause = "fetch"   // the game's own store has no valid result
)

const (
	// By default, Kafka accepts messages of at most 1 MiB, including Kafka's overhead.
	maxDeadLetterBytes = 1_000_000
	minDeadLetterBytes = 4 << 10
	// maxPartBytes bounds the key of a dead letter, and the size of all copied headers. If a dead
	// letter has a small limit, both bounds are limit / partsPerLimit.
	maxPartBytes  = 64 << 10
	partsPerLimit = 15
	// maxDetailBytes bounds the text of an error, which may quote the message.
	maxDetailBytes = 4 << 10
)

// permanentCause returns the cause for an error that no retry can fix, and otherwise "".
func permanentCause(err error) cause {
	switch {
	case errors.Is(err, leaderboard.ErrUnavailable):
		return ""
	case errors.Is(err, leaderboard.ErrBoardNotFound):
		return causeBoard
	case errors.Is(err, leaderboard.ErrSeasonNotFound):
		return causeSeason
	case errors.Is(err, leaderboard.ErrFormat):
		return causeDamaged
	case errors.Is(err, leaderboard.ErrInvalid):
		return causeInvalid
	case errors.Is(err, errNoStore):
		return causeFetch
	}
	return ""
}

var errNoStore = errors.New("the message has fetch set, but this consumer has no canonical.url from which it could fetch the result")

func (i *item) failIfPermanent(err error) bool {
	if cause := permanentCause(err); cause != "" {
		i.cause, i.detail = cause, err
		return true
	}
	return false
}

// newDeadLetter returns a dead letter of at most limit bytes. It cuts a key or value that does not
// fit, omits headers that do not fit, and records the original size.
//
// Kafka would reject a longer dead letter at every retry, and the partition would be blocked.
func newDeadLetter(topic string, i *item, limit int) *sarama.ProducerMessage {
	m := i.message
	part := min(maxPartBytes, limit/partsPerLimit)
	d := &sarama.ProducerMessage{Topic: topic}
	add := func(key, value string) {
		d.Headers = append(d.Headers, sarama.RecordHeader{Key: []byte(key), Value: []byte(value)})
	}
	add("cause", string(i.cause))
	add("detail", truncate(i.detail.Error(), min(part, maxDetailBytes)))
	add("origin-topic", m.Topic)
	add("origin-partition", strconv.Itoa(int(m.Partition)))
	add("origin-offset", strconv.FormatInt(m.Offset, 10))
	add("origin-timestamp", m.Timestamp.UTC().Format(time.RFC3339Nano))
	if key := m.Key; key != nil {
		if len(key) > part {
			add("origin-key-bytes", strconv.Itoa(len(key)))
			key = key[:part]
		}
		d.Key = sarama.ByteEncoder(key)
	}
	size := d.ByteSize(2)
	ownHeaders := d.Headers
	for _, h := range m.Headers {
		d.Headers = append(d.Headers, *h)
	}
	if n := d.ByteSize(2) - size; n > part {
		d.Headers = ownHeaders
		add("origin-headers-bytes", strconv.Itoa(n))
	}
	value := m.Value
	if len(value) > limit-d.ByteSize(2) {
		sum := sha256.Sum256(value)
		add("origin-value-bytes", strconv.Itoa(len(value)))
		add("origin-value-sha256", hex.EncodeToString(sum[:]))
		value = value[:limit-d.ByteSize(2)]
	}
	d.Value = sarama.ByteEncoder(value)
	return d
}

func truncate(text string, limit int) string {
	if len(text) > limit {
		text = text[:limit]
	}
	return strings.ToValidUTF8(text, "")
}

// sendOneByOne sends messages separately, after Kafka has rejected a message as too large. It
// halves the limit of dead letters until Kafka accepts them.
func (c *Consumer) sendOneByOne(ctx context.Context, items []*item, messages []*sarama.ProducerMessage) error {
	limit := maxDeadLetterBytes
	for _, m := range messages {
		index := slices.IndexFunc(items, func(i *item) bool { return i.deadLetter == m })
		for {
			if index >= 0 {
				m = newDeadLetter(c.o.Topics.DeadLetters(), items[index], limit)
			}
			err := c.sender.Send(ctx, []*sarama.ProducerMessage{m})
			if err == nil {
				break
			}
			if index < 0 || limit/2 < minDeadLetterBytes || !errors.Is(err, sarama.ErrMessageSizeTooLarge) {
				return err
			}
			limit /= 2
		}
	}
	return nil
}
