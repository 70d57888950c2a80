package consumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// session consumes topics. It returns nil after a rebalance, after a change of the topics, or once
// ctx is done.
func (c *Consumer) session(ctx context.Context, topics map[string]string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		ticker := time.NewTicker(c.o.topicPoll)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				if current, err := c.topics(); err == nil && !maps.Equal(current, topics) {
					cancel()
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	for topic, id := range topics {
		if c.firstTopics[topic] == "" {
			c.firstTopics[topic] = id
		}
	}
	h := handler{Consumer: c, topics: topics, endCause: new(error), positions: newPositions(c.o.maxGapUsers)}
	err := c.group.Consume(ctx, slices.Sorted(maps.Keys(topics)), h)
	if errors.Is(err, sarama.ErrClosedConsumerGroup) || ctx.Err() != nil {
		return nil
	}
	if cause := *h.endCause; err == nil && !errors.Is(cause, sarama.ErrRebalanceInProgress) && !errors.Is(cause, sarama.ErrSessionPartitionCountChanged) {
		return cause
	}
	return err
}

// handler implements [sarama.ConsumerGroupHandler] for one session. A claim is an assigned
// partition.
type handler struct {
	*Consumer
	topics    map[string]string // topic ids by name
	endCause  *error            // why the session ended
	positions *positions
}

// Setup begins a session.
func (h handler) Setup(s sarama.ConsumerGroupSession) error {
	h.metrics.sessions.Inc()
	partitions := 0
	for _, claims := range s.Claims() {
		partitions += len(claims)
	}
	h.metrics.partitions.Set(float64(partitions))
	h.joined.Store(true)
	if err := h.beginPositions(s); err != nil {
		return err
	}
	go h.followServers(s)
	go h.measureLag(s)
	return nil
}

// Cleanup ends a session. sarama then commits the marked offsets.
func (h handler) Cleanup(s sarama.ConsumerGroupSession) error {
	h.metrics.partitions.Set(0)
	h.metrics.lag.Reset()
	h.metrics.indexLag.Reset()
	h.recordLastPositions(s)
	*h.endCause = context.Cause(s.Context())
	return nil
}

// ConsumeClaim applies the messages of one partition. Another goroutine reports the outcomes.
func (h handler) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	p := partition{claim.Topic(), claim.Partition()}
	g, begun := h.positions.gap(p)
	if !begun {
		if err := h.beginPosition(p); err != nil {
			return err
		}
		g, _ = h.positions.gap(p)
	}
	ctx, cancel := context.WithCancelCause(s.Context())
	defer cancel(nil)
	applied := make(chan progress)
	var reporting, following sync.WaitGroup
	following.Go(func() { h.followIndex(ctx, p, g) })
	reporting.Go(func() {
		if err := h.reportAndMark(s, p, applied); err != nil {
			cancel(err)
			for p := range applied { // after the error, no offset may be marked
				p.spans.end(context.Canceled)
			}
		}
	})
	var waits waitingItems
	last := claim.InitialOffset() - 1 // offset of the last message that was read
	for {
		batch, ok := h.nextBatch(ctx, claim, &waits)
		if !ok {
			break
		}
		if len(batch) > 0 {
			h.metrics.delay.WithLabelValues(claim.Topic()).Set(time.Since(batch[0].Timestamp).Seconds())
			last = batch[len(batch)-1].Offset
		}
		items := waits.admit(h.decodeBatch(batch))
		traced, spans := h.startSpans(s.Context(), claim.Topic(), items)
		if err := h.positions.apply(p, func() error { return h.applyBatch(traced, items) }); err != nil {
			spans.end(err)
			cancel(fmt.Errorf("batch at offset %d: %w", items[0].message.Offset, err))
			break
		}
		h.measureVisible(items)
		done := waits.keepWaiting(items, h.o.BoardWait)
		applied <- progress{done, waits.nextOffset(last), traced, spans}
	}
	close(applied)
	reporting.Wait()
	err := context.Cause(ctx)
	cancel(nil)
	following.Wait()
	if err != nil && s.Context().Err() == nil {
		h.metrics.stuck.Inc()
		return fmt.Errorf("consumer: partition %d of %s: %w", claim.Partition(), claim.Topic(), err)
	}
	return nil
}

func (h handler) decodeBatch(batch []*sarama.ConsumerMessage) []*item {
	now := time.Now()
	items := make([]*item, len(batch))
	for n, m := range batch {
		items[n] = &item{message: m, readAt: now}
		if items[n].decode(); items[n].record != nil {
			h.countMisplaced(items[n])
		}
	}
	return items
}

// nextBatch waits for a message, and returns the messages that have arrived. If items in waits are due
// first, the batch is empty. ok is false at the end of the claim.
func (h handler) nextBatch(ctx context.Context, claim sarama.ConsumerGroupClaim, waits *waitingItems) (batch []*sarama.ConsumerMessage, ok bool) {
	messages := claim.Messages()
	if waits.full() {
		messages = nil
	}
	var due <-chan time.Time
	if timer := waits.timer(); timer != nil {
		defer timer.Stop()
		due = timer.C
	}
	select {
	case m, ok := <-messages:
		if !ok {
			return nil, false
		}
		batch = append(batch, m)
	case <-due:
		return nil, true
	case <-ctx.Done():
		return nil, false
	}
	for len(batch) < h.o.BatchResults {
		select {
		case m, ok := <-messages:
			if !ok {
				return batch, true
			}
			batch = append(batch, m)
		default:
			return batch, true
		}
	}
	return batch, true
}

type progress struct {
	items  []*item         // without the items that wait for their boards
	offset int64           // offset to commit after items are reported
	ctx    context.Context // session's context with the batch's first span
	spans  spans
}

const syncPoll = 100 * time.Millisecond

// reportAndMark reports applied batches, and marks their offsets for commit, with the position of the
// rank index (see position.go).
func (h handler) reportAndMark(s sarama.ConsumerGroupSession, p partition, applied <-chan progress) error {
	offset := int64(-1) // offset after the last reported batch; -1 before the first batch
	mark := func() {
		if c, changed := h.positions.advance(p, offset, h.topics[p.topic], h.service.Synced()); changed {
			c.mark(s, p)
		}
	}
	defer mark()
	tick := time.NewTicker(syncPoll)
	defer tick.Stop()
	for {
		select {
		case batch, ok := <-applied:
			if !ok {
				return nil
			}
			if len(batch.items) > 0 {
				if err := h.report(batch.ctx, batch.items); err != nil {
					batch.spans.end(err)
					return err
				}
				h.metrics.applyTime.Observe(time.Since(batch.items[0].readAt).Seconds())
				h.metrics.batch.Observe(float64(len(batch.items)))
			}
			batch.spans.end(nil)
			offset = batch.offset
			mark()
		case <-tick.C:
			mark()
			h.deadLetterLog.flush()
		}
	}
}
