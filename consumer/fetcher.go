package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/cenkalti/backoff/v5"
	"github.com/sony/gobreaker/v2"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/api/canonical"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/api/protoconv"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
)

// A message with fetch set takes these steps (ADR 035):
//
//  1. The consumer of the results moves it to the topic Fetches, and commits its offset. So a fetch never
//     delays results.
//  2. The fetcher, a member of another group, fetches the result, and writes it to the topic of results,
//     like a game server. The revision decides whether it counts, so repeated and reordered fetches are
//     harmless.
//  3. If its attempts fail, the fetcher writes the message to the topic ParkedFetches, where it waits for
//     RetryInterval. Messages there are due in the order of the topic.
//
// The fetcher commits an offset once Kafka has acknowledged what became of this message and of all
// earlier ones: the result, the parked message or the dead letter. Messages of different boards do not
// wait for each other: see fetchqueue.go.

// Canonical has the settings for fetching results from the game's own store.
type Canonical struct {
	// Store is usually a [canonical.Client]. The error of Fetch is a [canonical.Error].
	Store interface {
		Fetch(ctx context.Context, k canonical.Key) (*pb.GetCanonicalResultResponse, error)
	}
	// Concurrency is the largest number of concurrent calls for one board. Default 16.
	Concurrency int
	// RetryInterval is the time between attempts, after the first few. Default 1m.
	RetryInterval time.Duration
	// NotFoundFor is how long the store may lack a result before the message becomes a dead letter.
	// Default 1h.
	NotFoundFor time.Duration
	// RetryFor is how long other failures are retried. Default 72h.
	RetryFor time.Duration
}

func (c *Canonical) withDefaults() *Canonical {
	if c == nil {
		return nil
	}
	d := *c
	d.Concurrency = cmp.Or(d.Concurrency, 16)
	d.RetryInterval = cmp.Or(d.RetryInterval, time.Minute)
	d.NotFoundFor = cmp.Or(d.NotFoundFor, time.Hour)
	d.RetryFor = cmp.Or(d.RetryFor, 72*time.Hour)
	return &d
}

// fetchMessage returns the message of i for the topic Fetches.
func (c *Consumer) fetchMessage(i *item) (*sarama.ProducerMessage, error) {
	m, err := kafka.NewMessage(c.o.Topics.Fetches(), string(i.result.User), &pb.MatchResultRecord{
		BoardId: string(i.board.ID), Fetch: true, ReceivedAt: protoconv.Timestamp(i.result.ReceivedAt),
		Result: &pb.Result{UserId: string(i.result.User), MatchId: string(i.result.Match)},
	})
	if err == nil {
		kafka.CopyTrace(i.message, m)
	}
	return m, err
}

// fetcher fetches results from the game's own store.
type fetcher struct {
	*Consumer
	bounds     fetchBounds
	running    sync.WaitGroup
	publishing chan struct{} // see publishSoon

	mu      sync.Mutex
	boards  map[leaderboard.BoardID]*fetchQueue
	pending int // the sum of pending of all queues
}

func newFetcher(c *Consumer) *fetcher {
	return &fetcher{Consumer: c, bounds: defaultFetchBounds, publishing: make(chan struct{}, maxPublishing), boards: map[leaderboard.BoardID]*fetchQueue{}}
}

// run fetches until ctx is done.
func (f *fetcher) run(ctx context.Context) {
	defer f.running.Wait()
	f.running.Go(func() { f.parkOldFetches(ctx) })
	c := *f.conf
	c.ClientID = "leaderboard-fetcher"
	c.Consumer.Return.Errors = false
	c.Consumer.Group.ResetInvalidOffsets = true
	topics := []string{f.o.Topics.Fetches(), f.o.Topics.ParkedFetches()}
	_ = kafka.Retry(ctx, func() error {
		return consumeTopics(ctx, f.o.Brokers, &c, f.o.Group+".fetch", topics, fetchHandler{f}, func() error { return nil })
	}, func(err error, wait time.Duration) {
		f.o.Log.Warn("cannot read fetches, retrying; if a topic is missing, create it with `leaderboard topics`", "err", err, "in", wait)
	})
}

// fetch is a message of a fetch, and its progress.
type fetch struct {
	item
	ctx      context.Context // done at the end of the session: another process may own the partition then
	since    time.Time       // when the message came into the topic Fetches
	parked   bool            // whether the message was parked before
	delays   *backoff.ExponentialBackOff
	attempts int
	done     func() // commits the offset
}

const (
	// sinceHeader is the header of a parked message with the time of fetch.since.
	sinceHeader = "fetch-since"
	// firstAttempts is the number of attempts before a message is parked. Each later attempt is one
	// RetryInterval after the previous one.
	firstAttempts = 4
)

func (f *fetcher) newFetch(ctx context.Context, m *sarama.ConsumerMessage, done func()) *fetch {
	x := &fetch{item: item{message: m, readAt: time.Now()}, ctx: ctx, since: m.Timestamp, parked: m.Topic == f.o.Topics.ParkedFetches(), done: done}
	x.delays = backoff.NewExponentialBackOff()
	x.delays.Multiplier = 2
	if since, err := time.Parse(time.RFC3339Nano, kafka.Header(m, sinceHeader)); err == nil && x.parked {
		x.since = since
	}
	x.decode()
	if x.record != nil {
		if err := f.check(x.record); err != nil {
			x.fail(causeInvalid, err)
		}
	}
	return x
}

// check returns an error for a message that the consumer of the results would not have moved.
func (f *fetcher) check(record *pb.MatchResultRecord) error {
	if !record.GetFetch() {
		return &leaderboard.FieldError{Field: "fetch", Problem: "must be true in this topic: write results to " + f.o.Topics.Results()}
	}
	_, err := toResult(nil, record, time.Time{})
	return errors.Join(err, (&item{record: record}).boardID().Validate())
}

func (x *fetch) fail(c cause, err error) { x.cause, x.detail = c, err }

func (x *fetch) key() canonical.Key {
	r := x.record.GetResult()
	return canonical.Key{Board: x.boardID(), User: leaderboard.UserID(r.GetUserId()), Match: leaderboard.MatchID(r.GetMatchId())}
}

// call fetches the result of x once. Its error is a [canonical.Error], or that of the end of the session.
func (f *fetcher) call(x *fetch) (*pb.GetCanonicalResultResponse, error) {
	start := time.Now()
	answer, err := f.o.Canonical.Store.Fetch(x.ctx, x.key())
	if x.ctx.Err() != nil {
		return nil, x.ctx.Err()
	}
	f.metrics.fetchTime.Observe(time.Since(start).Seconds())
	outcome := outcomeFetched
	if err != nil {
		outcome = string(problemOf(err))
	}
	f.metrics.fetches.WithLabelValues(outcome).Inc()
	return answer, err
}

const outcomeFetched = "fetched"

func problemOf(err error) canonical.Problem {
	if e, ok := errors.AsType[*canonical.Error](err); ok {
		return e.Problem
	}
	return canonical.Unavailable
}

func retryAfterOf(err error) time.Duration {
	if e, ok := errors.AsType[*canonical.Error](err); ok {
		return e.RetryAfter
	}
	return 0
}

// finish decides what becomes of x after an attempt, and reports whether it was decided. If it was not,
// another attempt may succeed.
func (f *fetcher) finish(x *fetch, answer *pb.GetCanonicalResultResponse, err error) bool {
	limit := f.o.Canonical.RetryFor
	if err == nil {
		var m *sarama.ProducerMessage
		if m, err = f.resultMessage(x, answer); err == nil {
			f.publish(x, m)
			return true
		}
		if cause := permanentCause(err); cause == causeInvalid {
			x.fail(causeFetch, err)
		} else if cause != "" {
			x.fail(cause, err)
		}
	} else {
		switch problemOf(err) {
		case canonical.Invalid:
			x.fail(causeFetch, err)
		case canonical.NotFound:
			limit = f.o.Canonical.NotFoundFor
		}
	}
	if age := time.Since(x.since); x.cause == "" && age >= limit {
		x.fail(causeFetch, fmt.Errorf("no result after %v: %w", age.Round(time.Second), err))
	}
	if x.cause == "" {
		return false
	}
	f.publishDeadLetter(x)
	return true
}

// resultMessage returns the message for the topic of results. It checks the answer as the consumer will
// check this message, so that a dead letter has the message of the fetch: its replay fetches again.
func (f *fetcher) resultMessage(x *fetch, answer *pb.GetCanonicalResultResponse) (*sarama.ProducerMessage, error) {
	record := &pb.MatchResultRecord{
		BoardId: string(x.boardID()), Result: answer.GetResult(), Retracted: answer.GetRetracted(), Season: answer.GetSeason(),
		ReceivedAt: x.record.GetReceivedAt(),
	}
	if record.ReceivedAt == nil { // an erasure after the message removes the result
		record.ReceivedAt = timestamppb.New(x.since)
	}
	b, err := f.service.Board(x.ctx, x.boardID())
	if err != nil {
		return nil, err
	}
	if checkRecord(&b, record) != nil { // the board may have changed
		if b, err = f.service.BoardSince(x.ctx, x.boardID(), x.readAt); err == nil {
			err = checkRecord(&b, record)
		}
		if err != nil {
			return nil, fmt.Errorf("the result in the game's store: %w", err)
		}
	}
	m, err := kafka.NewMessage(f.o.Topics.Results(), record.GetResult().GetUserId(), record)
	if err == nil {
		kafka.CopyTrace(x.message, m)
	}
	return m, err
}

func checkRecord(b *leaderboard.Board, record *pb.MatchResultRecord) error {
	now := time.Now()
	r, err := toResult(b, record, now)
	if err == nil && !r.Retracted {
		err = b.Check(&r, now)
	}
	return err
}

type parkReason string

const (
	parkFailed   parkReason = "failed"   // the first attempts have failed
	parkBreaker  parkReason = "breaker"  // the circuit breaker of the board is open
	parkCooldown parkReason = "cooldown" // the store has asked to wait
	parkFull     parkReason = "full"     // too many fetches are in memory
)

// park writes x to the topic ParkedFetches.
func (f *fetcher) park(x *fetch, reason parkReason) {
	f.metrics.parkedFetches.WithLabelValues(string(reason)).Inc()
	m := &sarama.ProducerMessage{Topic: f.o.Topics.ParkedFetches(), Key: sarama.ByteEncoder(x.message.Key), Value: sarama.ByteEncoder(x.message.Value)}
	for _, h := range []string{kafka.ContentType, sinceHeader} {
		value := kafka.Header(x.message, h)
		if h == sinceHeader {
			value = x.since.UTC().Format(time.RFC3339Nano)
		}
		m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte(h), Value: []byte(value)})
	}
	kafka.CopyTrace(x.message, m)
	f.publish(x, m)
}

func (f *fetcher) publishDeadLetter(x *fetch) {
	f.metrics.deadLetters.WithLabelValues(string(x.cause)).Inc()
	f.deadLetterLog.add(&x.item)
	f.publish(x, newDeadLetter(f.o.Topics.DeadLetters(), &x.item, maxDeadLetterBytes))
}

// publish sends m, and commits the offset of x once Kafka has acknowledged m. It retries until the end of
// the session. If Kafka refuses a result for good, x becomes a dead letter.
func (f *fetcher) publish(x *fetch, m *sarama.ProducerMessage) {
	result := m.Topic == f.o.Topics.Results()
	err := kafka.Retry(x.ctx, func() error {
		ctx, cancel := context.WithTimeout(x.ctx, f.o.ApplyTimeout)
		defer cancel()
		err := f.sender.Send(ctx, []*sarama.ProducerMessage{m})
		if result && err != nil && !errors.Is(err, leaderboard.ErrUnavailable) {
			return backoff.Permanent(err)
		}
		return err
	}, func(err error, wait time.Duration) {
		f.metrics.retries.Inc()
		f.o.Log.Warn("cannot publish the outcome of a fetch, retrying", "err", err, "in", wait)
	})
	switch {
	case err == nil:
		x.done()
	case x.ctx.Err() == nil:
		x.fail(causeFetch, err)
		f.publishDeadLetter(x)
	}
}

// newBreaker returns the circuit breaker of a board. It opens after breakerFailures consecutive failures.
// After a cooldown, a single call decides whether it closes.
func (f *fetcher) newBreaker(id leaderboard.BoardID) *gobreaker.CircuitBreaker[*pb.GetCanonicalResultResponse] {
	const breakerFailures, maxCooldown = 5, 30 * time.Second
	return gobreaker.NewCircuitBreaker[*pb.GetCanonicalResultResponse](gobreaker.Settings{
		Name:         string(id),
		Timeout:      min(maxCooldown, f.o.Canonical.RetryInterval/2),
		ReadyToTrip:  func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= breakerFailures },
		IsSuccessful: func(err error) bool { return err == nil || problemOf(err) != canonical.Unavailable },
		IsExcluded:   func(err error) bool { return errors.Is(err, context.Canceled) },
		OnStateChange: func(board string, from, to gobreaker.State) {
			switch {
			case to == gobreaker.StateOpen && from == gobreaker.StateClosed:
				f.o.Log.Warn("the game's store fails for a board, its fetches are parked", "board", board)
			case to == gobreaker.StateClosed:
				f.o.Log.Info("the game's store answers again for a board", "board", board)
			}
		},
	})
}
