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
	h := handler{Consumer: c, topics: topics, endCause: new(error), positions: new(positions)}
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
	if err := h.resetInvalidOffsets(s); err != nil {
		h.o.Log.Warn("cannot compare committed offsets with the log", "err", err)
	}
	h.positions.reset(s.Claims(), h.o.maxGapUsers)
	go h.keepPositions(s)
	go h.followServers(s)
	go h.measureLag(s)
	return nil
}

// Cleanup ends a session. sarama then commits the marked offsets.
func (h handler) Cleanup(s sarama.ConsumerGroupSession) error {
	h.metrics.partitions.Set(0)
	h.metrics.lag.Reset()
	h.metrics.indexLag.Reset()
	h.storeLastPositions()
	h.recordLastPositions(s)
	*h.endCause = context.Cause(s.Context())
	return nil
}

// ConsumeClaim applies the messages of one partition. Another goroutine reports the outcomes.
func (h handler) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	ctx, cancel := context.WithCancelCause(s.Context())
	defer cancel(nil)
	applied := make(chan progress)
	var reporting, following sync.WaitGroup
	found := make(chan struct{})
	following.Go(func() { h.followIndex(ctx, claim, found) })
	// Wait for the position, because no offset is marked before. If a short session marked no offset,
	// the next session would apply its messages again.
	select {
	case <-found:
	case <-time.After(maxPositionDelay):
	case <-ctx.Done():
	}
	reporting.Go(func() {
		if err := h.reportAndMark(s, claim, applied); err != nil {
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
		if err := h.positions.apply(partition{claim.Topic(), claim.Partition()}, func() error { return h.applyBatch(traced, items) }); err != nil {
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

// reportAndMark reports applied batches, and marks their offsets for commit. While the index is not
// synced, it marks an offset only if Kafka has a position (see position.go).
func (h handler) reportAndMark(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim, applied <-chan progress) error {
	offset := int64(-1) // offset after the last reported batch; -1 before the first batch
	p := partition{claim.Topic(), claim.Partition()}
	mark := func() {
		if offset >= 0 && h.positions.advance(p, offset, h.service.Synced()) {
			s.MarkOffset(p.topic, p.id, offset, h.topics[p.topic]) // repeated calls change nothing
		}
	}
	tick := time.NewTicker(syncPoll)
	defer tick.Stop()
	for {
		select {
		case p, ok := <-applied:
			if !ok {
				return nil
			}
			if len(p.items) > 0 {
				if err := h.report(p.ctx, p.items); err != nil {
					p.spans.end(err)
					return err
				}
				h.metrics.applyTime.Observe(time.Since(p.items[0].readAt).Seconds())
				h.metrics.batch.Observe(float64(len(p.items)))
			}
			p.spans.end(nil)
			offset = p.offset
			mark()
		case <-tick.C:
			mark()
			h.deadLetterLog.flush()
		}
	}
}
