package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/IBM/sarama"
)

const (
	// fetchVersion is the first version of the request that supports every compression codec.
	fetchVersion = 10
	fetchBytes   = 1 << 20
	fetchWait    = 500 * time.Millisecond
	// If a broker's answers lack messages of a gap for longer than maxFetchWait, the messages are lost.
	// If a broker does not answer, the request fails earlier, and is repeated.
	maxFetchWait = 90 * time.Second
)

// readGap passes each batch of a gap's messages to the function use, and then moves g.from. It sets
// g.lost if the log lacks a message. See gap.go.
//
// The gap may end with markers of transactions. [sarama.Consumer] skips them silently, so readGap
// fetches the messages itself. use also gets messages of aborted and open transactions. They are
// harmless, because use takes only the users from the messages.
func (h handler) readGap(ctx context.Context, p partition, g *gap, use func(context.Context, []*item) error) error {
	for last := time.Now(); g.from < g.to; {
		if err := ctx.Err(); err != nil {
			return err
		}
		messages, next, err := h.fetch(p, g.from)
		if errors.Is(err, sarama.ErrOffsetOutOfRange) || err == nil && next == g.from && time.Since(last) > maxFetchWait {
			g.lost = true
			return nil
		}
		if err != nil {
			_ = h.client.RefreshMetadata(p.topic) // the partition may have another leader
			return fmt.Errorf("consumer: read partition %d of %s again: %w", p.id, p.topic, err)
		}
		if next == g.from {
			continue
		}
		last = time.Now()
		messages = slices.DeleteFunc(messages, func(m *sarama.ConsumerMessage) bool { return m.Offset < g.from || m.Offset >= g.to })
		for chunk := range slices.Chunk(messages, h.o.BatchResults) {
			var items []*item
			for _, m := range chunk {
				items = append(items, &item{message: m, readAt: last})
			}
			if err := use(ctx, items); err != nil {
				return err
			}
			g.from = chunk[len(chunk)-1].Offset + 1
		}
		g.from = min(next, g.to)
	}
	return nil
}

// fetch returns messages of a partition. The first messages may be before the given offset. next is
// the offset after all returned messages and markers. If the broker has no messages yet, next is the
// given offset.
func (h handler) fetch(p partition, offset int64) (messages []*sarama.ConsumerMessage, next int64, err error) {
	leader, err := h.client.Leader(p.topic, p.id)
	if err != nil {
		return nil, 0, err
	}
	request := &sarama.FetchRequest{
		Version: fetchVersion, MinBytes: 1, MaxBytes: fetchBytes, MaxWaitTime: int32(fetchWait.Milliseconds()),
		SessionEpoch: -1, // without a fetch session
	}
	request.AddBlock(p.topic, p.id, offset, fetchBytes, -1)
	response, err := leader.Fetch(request)
	if err != nil {
		_ = leader.Close() // the next call opens a new connection
		return nil, 0, err
	}
	block := response.GetBlock(p.topic, p.id)
	if block == nil {
		return nil, 0, sarama.ErrIncompleteResponse
	}
	if !errors.Is(block.Err, sarama.ErrNoError) {
		return nil, 0, block.Err
	}
	next = offset
	for _, set := range block.RecordsSet {
		batch := set.RecordBatch
		if batch == nil {
			return nil, 0, errors.New("the topic has messages in a format from before Kafka 0.11; copy them to a new topic")
		}
		if batch.PartialTrailingRecord {
			break
		}
		next = max(next, batch.LastOffset()+1)
		if !batch.Control {
			messages = append(messages, messagesOf(p, batch)...)
		}
	}
	return messages, next, nil
}

func messagesOf(p partition, batch *sarama.RecordBatch) []*sarama.ConsumerMessage {
	messages := make([]*sarama.ConsumerMessage, len(batch.Records))
	for i, r := range batch.Records {
		at := batch.FirstTimestamp.Add(r.TimestampDelta)
		if batch.LogAppendTime {
			at = batch.MaxTimestamp
		}
		messages[i] = &sarama.ConsumerMessage{
			Topic: p.topic, Partition: p.id, Offset: batch.FirstOffset + r.OffsetDelta,
			Key: r.Key, Value: r.Value, Headers: r.Headers, Timestamp: at,
		}
	}
	return messages
}
