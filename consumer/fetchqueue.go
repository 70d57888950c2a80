package consumer

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/sony/gobreaker/v2"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

// fetchBounds bound the fetches in memory. Above them, a fetch is parked instead, so a board with many
// fetches delays only its own.
type fetchBounds struct {
	board int // of a board; enough to keep its calls busy for RetryInterval
	all   int // of all boards together
	few   int // a board with fewer may exceed all
}

var defaultFetchBounds = fetchBounds{board: 16_384, all: 49_152, few: 256}

const (
	// maxOpenOffsets bounds the offsets of a partition that follow an uncommitted one. No fetch stays in
	// memory for much longer than RetryInterval, so only a flood of messages reaches the bound.
	maxOpenOffsets = 1 << 18
	// maxPublishing bounds the fetches that are published without an attempt. Only while Kafka does not
	// acknowledge messages, more of them wait.
	maxPublishing = 1024
)

// fetchQueue has the fetches of one board. fetcher.mu protects its fields.
type fetchQueue struct {
	board         leaderboard.BoardID
	breaker       *gobreaker.CircuitBreaker[*pb.GetCanonicalResultResponse]
	waiting       []*fetch // for a worker
	pending       int      // fetches in waiting, with workers, and between two attempts
	workers       int
	cooldownUntil time.Time
}

// add begins to fetch x, or parks it.
func (f *fetcher) add(x *fetch) {
	switch {
	case x.cause != "":
		f.publishSoon(x, func() { f.publishDeadLetter(x) })
	case !f.admit(x):
		f.publishSoon(x, func() { f.park(x, parkFull) })
	}
}

// publishSoon calls publish in the background. It waits only while maxPublishing calls run.
func (f *fetcher) publishSoon(x *fetch, publish func()) {
	select {
	case f.publishing <- struct{}{}:
	case <-x.ctx.Done():
		return
	}
	f.running.Go(func() {
		defer func() { <-f.publishing }()
		publish()
	})
}

// admit begins to fetch x, unless too many fetches are in memory.
func (f *fetcher) admit(x *fetch) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := x.boardID()
	q := f.boards[id]
	if q == nil {
		q = &fetchQueue{board: id, breaker: f.newBreaker(id)}
		f.boards[id] = q
	}
	if q.pending >= f.bounds.board || f.pending >= f.bounds.all && q.pending >= f.bounds.few {
		return false
	}
	f.count(q, 1)
	f.enqueue(q, x)
	return true
}

// parkOldFetches parks the fetches that no worker has taken for RetryInterval, until ctx is done. Their
// offsets must not keep those of other boards uncommitted.
func (f *fetcher) parkOldFetches(ctx context.Context) {
	interval := f.o.Canonical.RetryInterval
	tick := time.NewTicker(interval / 4)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for _, x := range f.takeOld(time.Now().Add(-interval)) {
			f.publishSoon(x, func() { f.park(x, parkFull) })
		}
	}
}

// takeOld removes the fetches from the queues that were read before a time.
func (f *fetcher) takeOld(before time.Time) (old []*fetch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, q := range f.boards {
		n := 0
		for n < len(q.waiting) && q.waiting[n].readAt.Before(before) {
			n++
		}
		old = append(old, q.waiting[:n]...)
		q.waiting = slices.Clone(q.waiting[n:])
		f.count(q, -n)
	}
	return old
}

// count adds n to the number of pending fetches of q. The caller must hold f.mu.
func (f *fetcher) count(q *fetchQueue, n int) {
	q.pending += n
	f.pending += n
	f.metrics.pendingFetches.Set(float64(f.pending))
	if q.pending == 0 && q.breaker.State() == gobreaker.StateClosed && q.breaker.Counts().ConsecutiveFailures == 0 && !time.Now().Before(q.cooldownUntil) {
		delete(f.boards, q.board)
	}
}

// enqueue gives x to a worker. The caller must hold f.mu.
func (f *fetcher) enqueue(q *fetchQueue, x *fetch) {
	q.waiting = append(q.waiting, x)
	f.startWorkers(q)
}

// startWorkers starts a worker for each waiting fetch, up to Concurrency. The caller must hold f.mu.
func (f *fetcher) startWorkers(q *fetchQueue) {
	for range min(len(q.waiting), f.o.Canonical.Concurrency-q.workers) {
		q.workers++
		f.running.Go(func() { f.work(q) })
	}
}

// work fetches until no fetch waits.
func (f *fetcher) work(q *fetchQueue) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(q.waiting) > 0 {
		x := q.waiting[0]
		q.waiting[0] = nil
		q.waiting = q.waiting[1:]
		cooldown := time.Now().Before(q.cooldownUntil)
		f.mu.Unlock()
		again, err := f.attempt(q, x, cooldown)
		f.mu.Lock()
		switch {
		case errors.Is(err, gobreaker.ErrTooManyRequests):
			// Another worker tests whether the store answers again. x waits for its outcome. That worker, or
			// one that it starts, takes x.
			q.waiting = append([]*fetch{x}, q.waiting...)
			if q.workers > 1 {
				q.workers--
				return
			}
		case again > 0:
			time.AfterFunc(again, func() { f.attemptAgain(q, x) })
		default:
			f.count(q, -1)
			f.startWorkers(q) // after a test of the store, the other workers are gone
		}
	}
	q.workers--
}

// attemptAgain gives x to a worker again, unless the session has ended meanwhile.
func (f *fetcher) attemptAgain(q *fetchQueue, x *fetch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if x.ctx.Err() != nil {
		f.count(q, -1)
		return
	}
	f.enqueue(q, x)
}

// attempt makes one attempt to fetch x. If x needs another one soon, attempt returns the delay. Otherwise
// the outcome of x is published, or its session has ended.
func (f *fetcher) attempt(q *fetchQueue, x *fetch, cooldown bool) (again time.Duration, err error) {
	if x.ctx.Err() != nil {
		return 0, x.ctx.Err()
	}
	if cooldown {
		f.park(x, parkCooldown)
		return 0, nil
	}
	answer, err := q.breaker.Execute(func() (*pb.GetCanonicalResultResponse, error) { return f.call(x) })
	switch {
	case errors.Is(err, gobreaker.ErrTooManyRequests), x.ctx.Err() != nil:
		return 0, err
	case f.finish(x, answer, err):
		return 0, nil
	case errors.Is(err, gobreaker.ErrOpenState):
		f.park(x, parkBreaker)
		return 0, nil
	}
	if wait := retryAfterOf(err); wait > 0 {
		f.mu.Lock()
		q.cooldownUntil = time.Now().Add(wait)
		f.mu.Unlock()
		f.park(x, parkCooldown)
		return 0, nil
	}
	if x.attempts++; x.parked || x.attempts >= firstAttempts {
		f.park(x, parkFailed)
		return 0, nil
	}
	return x.delays.NextBackOff(), nil
}

// fetchHandler implements [sarama.ConsumerGroupHandler].
type fetchHandler struct{ *fetcher }

// Setup does nothing.
func (fetchHandler) Setup(sarama.ConsumerGroupSession) error { return nil }

// Cleanup does nothing.
func (fetchHandler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// ConsumeClaim adds the fetches of a partition. It does not wait for their outcomes.
func (h fetchHandler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	ctx := session.Context()
	open := openOffsets{slots: make(chan struct{}, maxOpenOffsets), mark: func(offset int64) {
		if ctx.Err() == nil {
			session.MarkOffset(claim.Topic(), claim.Partition(), offset, "")
		}
	}}
	for {
		select {
		case m, ok := <-claim.Messages():
			if !ok || !h.waitUntilDue(ctx, m) {
				return nil
			}
			select {
			case open.slots <- struct{}{}:
			case <-ctx.Done():
				return nil
			}
			h.add(h.newFetch(ctx, m, open.add(m.Offset)))
		case <-ctx.Done():
			return nil
		}
	}
}

// waitUntilDue waits until a parked message has been in its topic for RetryInterval. It returns false if
// ctx is done first.
func (h fetchHandler) waitUntilDue(ctx context.Context, m *sarama.ConsumerMessage) bool {
	if m.Topic != h.o.Topics.ParkedFetches() {
		return true
	}
	interval := h.o.Canonical.RetryInterval
	due := time.NewTimer(min(interval, time.Until(m.Timestamp.Add(interval)))) // the clocks may differ
	defer due.Stop()
	select {
	case <-due.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// openOffsets are the offsets of a partition whose messages have no outcome yet. Messages may be done in
// any order.
type openOffsets struct {
	slots chan struct{}
	mark  func(offset int64) // commits all messages before the offset

	mu   sync.Mutex
	list []*openOffset // in order
}

type openOffset struct {
	offset int64
	done   bool
}

// add adds the next message. The caller must call done once.
func (o *openOffsets) add(offset int64) (done func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	entry := &openOffset{offset: offset}
	o.list = append(o.list, entry)
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		entry.done = true
		next := int64(-1)
		for len(o.list) > 0 && o.list[0].done {
			next = o.list[0].offset + 1
			o.list = o.list[1:]
			<-o.slots
		}
		if next >= 0 {
			o.mark(next)
		}
	}
}
