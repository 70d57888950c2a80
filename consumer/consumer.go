// Package consumer takes match results from Kafka to the service: it polls,
// decodes, applies, reports, and commits.
//
// A partition's messages are applied in batches, one batch after another, each
// made of whatever has come meanwhile: results of different users in parallel,
// those of one user in their order, and a burst on one user as one. What became of
// a batch is reported while the next is applied. Offsets are
// marked once everything before them is durable, reported, or in the
// dead-letter topic. So a message may be applied again, which changes nothing, and is never skipped.
package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/cenkalti/backoff/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/wire"
	"github.com/open-leaderboard/leaderboard/producer"
)

// service is what the consumer needs of the ranking service.
type service interface {
	Board(ctx context.Context, id leaderboard.BoardID) (leaderboard.Board, error)
	Complete(ctx context.Context, b *leaderboard.Board, r leaderboard.MatchResult) (leaderboard.MatchResult, error)
	Apply(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) (leaderboard.ApplyReport, error)
	RanksOf(ctx context.Context, s leaderboard.Scope, keys []leaderboard.RankKey) ([]int64, error)
	Refresh(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, user leaderboard.UserID) (leaderboard.Change, error)
	Settled() bool
}

// sender publishes messages, and returns once all are acknowledged.
type sender interface {
	Send(ctx context.Context, messages []*sarama.ProducerMessage) error
}

// Options are the settings of a [Consumer].
type Options struct {
	Brokers []string
	Topics  producer.Topics
	// Region is the name of the consumer's own: results that come back under it,
	// by way of another region's mirror, were read already.
	Region string
	// Group is the consumer group, one a region. Default "leaderboard".
	Group string
	// InstanceID makes the group membership static if it is not empty: a process that comes
	// back under it within SessionTimeout gets its partitions back without a rebalance.
	InstanceID string
	// SessionTimeout is after how much silence the group gives a consumer's
	// partitions to others. Default 10s.
	SessionTimeout time.Duration
	// BatchResults bounds the results applied as one. Default 512.
	BatchResults int
	// ApplyTimeout bounds one try to apply a batch, and so how long a consumer
	// that leaves may take. A store goes on with what was given up, while it is
	// tried again: too short a time doubles the load on a slow one. Default 30s.
	ApplyTimeout time.Duration
	// StuckAfter is how long a batch may make no progress before its consumer gives
	// up its partitions and joins the group anew. A server that is down is no
	// reason: for that a batch waits as long as it takes. Default 2m.
	StuckAfter time.Duration
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

func (o Options) withDefaults() Options {
	o.Group = cmp.Or(o.Group, "leaderboard")
	o.SessionTimeout = cmp.Or(o.SessionTimeout, 10*time.Second)
	o.BatchResults = cmp.Or(o.BatchResults, 512)
	o.ApplyTimeout = cmp.Or(o.ApplyTimeout, 30*time.Second)
	o.StuckAfter = cmp.Or(o.StuckAfter, 2*time.Minute)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
	return o
}

// isMirror says whether a topic is where another region's results come on.
func (o *Options) isMirror(topic string) bool {
	region, ok := strings.CutSuffix(topic, "."+o.Topics.Results())
	return ok && region != "" && region != o.Region && !strings.Contains(region, ".")
}

// topicsEvery is how often new mirrored topics are looked for.
const topicsEvery = 30 * time.Second

// Consumer is one member of the group. Create it with [New] and run it once.
type Consumer struct {
	o       Options
	service service
	sender  sender
	conf    *sarama.Config
	client  sarama.Client        // nil until it is connected
	group   sarama.ConsumerGroup // likewise
	metrics metrics
	atOnce  atomic.Int64 // how many results the stores apply in time
	joined  atomic.Bool
	away    atomic.Bool
}

type metrics struct {
	results      *prometheus.CounterVec
	dead         *prometheus.CounterVec
	retries      prometheus.Counter
	stuck        prometheus.Counter
	sessions     prometheus.Counter
	misplaced    prometheus.Counter
	offsetResets prometheus.Counter
	applyTime    prometheus.Histogram
	batch        prometheus.Histogram
	lagSeconds   *prometheus.GaugeVec
	partitions   prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) metrics {
	f := promauto.With(reg)
	const namespace, subsystem = "leaderboard", "consumer"
	return metrics{
		results: f.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Subsystem: subsystem, Name: "results_total",
			Help: "Results that were read and settled, by status."}, []string{"status"}),
		dead: f.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Subsystem: subsystem, Name: "dead_letters_total",
			Help: "Messages that were moved to the dead-letter topic, by cause."}, []string{"cause"}),
		retries: f.NewCounter(prometheus.CounterOpts{Namespace: namespace, Subsystem: subsystem, Name: "retries_total",
			Help: "Batches that were tried again because a server did not answer."}),
		stuck: f.NewCounter(prometheus.CounterOpts{Namespace: namespace, Subsystem: subsystem, Name: "stuck_total",
			Help: "Batches that were given up because they made no progress though no server was down."}),
		sessions: f.NewCounter(prometheus.CounterOpts{Namespace: namespace, Subsystem: subsystem, Name: "sessions_total",
			Help: "Times that the group gave this consumer its share of the partitions."}),
		misplaced: f.NewCounter(prometheus.CounterOpts{Namespace: namespace, Subsystem: subsystem, Name: "misplaced_total",
			Help: "Messages on another partition than the murmur2 hash of their user: their producer partitions otherwise."}),
		offsetResets: f.NewCounter(prometheus.CounterOpts{Namespace: namespace, Subsystem: subsystem, Name: "offset_resets_total",
			Help: "Times that a partition was read on from its oldest message, as the log did not have the committed offset, or was another."}),
		applyTime: f.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Subsystem: subsystem, Name: "apply_seconds",
			Help: "Time from taking a batch to its offsets being marked.", Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16)}),
		batch: f.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Subsystem: subsystem, Name: "batch_results",
			Help: "Messages in a batch.", Buckets: prometheus.ExponentialBuckets(1, 2, 12)}),
		lagSeconds: f.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Subsystem: subsystem, Name: "delay_seconds",
			Help: "Age of the oldest message of the last batch when it was taken, by topic."}, []string{"topic"}),
		partitions: f.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Subsystem: subsystem, Name: "partitions",
			Help: "Partitions that the group has given this consumer, of all topics."}),
	}
}

// New returns a consumer. s applies results; send publishes updates and dead
// letters. Neither brokers nor topics are asked for before Run, which waits until
// they are there. It returns an error for settings that cannot be.
func New(o Options, s service, send sender) (*Consumer, error) {
	o = o.withDefaults()
	c := producer.Config("leaderboard-consumer")
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Group.ResetInvalidOffsets = false // silently; mendOffsets does it
	c.Consumer.Offsets.AutoCommit.Interval = time.Second
	c.Consumer.Group.Session.Timeout = o.SessionTimeout
	c.Consumer.Group.Heartbeat.Interval = o.SessionTimeout / 4
	c.Consumer.Group.InstanceId = o.InstanceID
	// Range gives partition n of every topic to one member, so that a user's
	// results of all regions meet in one process.
	c.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyRange()}
	c.Consumer.Return.Errors = true
	c.ChannelBufferSize = o.BatchResults
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("consumer: %w", err)
	}
	con := &Consumer{o: o, service: s, sender: send, conf: c, metrics: newMetrics(o.Registerer)}
	con.atOnce.Store(int64(o.BatchResults))
	return con, nil
}

// Joined says whether the group has ever given this consumer its share of the
// partitions, which may be none. What it has now, a metric tells.
func (c *Consumer) Joined() bool { return c.joined.Load() }

// Away says whether no broker could be reached yet.
func (c *Consumer) Away() bool { return c.away.Load() }

// Run consumes until ctx is done; then it finishes the batches under way,
// commits, and leaves the group.
func (c *Consumer) Run(ctx context.Context) error {
	var logging sync.WaitGroup
	retry := backoff.NewExponentialBackOff()
	retry.MaxInterval = 10 * time.Second
	for ctx.Err() == nil {
		began := time.Now()
		err := c.connect(&logging)
		if err == nil {
			var topics map[string]string
			if topics, err = c.topics(); err == nil {
				err = c.session(ctx, topics)
			}
		}
		if err == nil || time.Since(began) > 2*retry.MaxInterval {
			retry.Reset()
		}
		if err == nil {
			continue
		}
		wait := retry.NextBackOff()
		c.o.Log.Warn("not consuming, trying again", "err", err, "in", wait)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
	if c.group == nil {
		return nil
	}
	err := errors.Join(c.group.Close(), c.client.Close())
	logging.Wait()
	return err
}

// connect connects to the brokers, once, and logs what becomes of it in the background.
func (c *Consumer) connect(logging *sync.WaitGroup) error {
	if c.group != nil {
		return nil
	}
	client, err := sarama.NewClient(c.o.Brokers, c.conf)
	c.away.Store(err != nil)
	if err != nil {
		return fmt.Errorf("consumer: brokers %v: %w", c.o.Brokers, err)
	}
	group, err := sarama.NewConsumerGroupFromClient(c.o.Group, client)
	if err != nil {
		return errors.Join(fmt.Errorf("consumer: group %q: %w", c.o.Group, err), client.Close())
	}
	c.client, c.group = client, group
	logging.Go(func() {
		for err := range group.Errors() {
			c.o.Log.Warn("kafka", "err", err)
		}
	})
	return nil
}

// topics returns the ids of the results topic and of those mirrored from other
// regions, by name. One that is made again has another id; an empty one is unknown.
func (c *Consumer) topics() (map[string]string, error) {
	if err := c.client.RefreshMetadata(); err != nil {
		return nil, err
	}
	admin, err := sarama.NewClusterAdminFromClient(c.client) // not closed: it would close the client
	if err != nil {
		return nil, err
	}
	all, err := admin.DescribeTopics(nil)
	if err != nil {
		return nil, err
	}
	topics := map[string]string{}
	for _, t := range all {
		if t.Name == c.o.Topics.Results() || c.o.isMirror(t.Name) {
			topics[t.Name] = ""
			if t.Uuid != (sarama.Uuid{}) { // brokers before 2.8 have none
				topics[t.Name] = fmt.Sprintf("%x", t.Uuid[:])
			}
		}
	}
	if _, ok := topics[c.o.Topics.Results()]; !ok {
		return nil, fmt.Errorf("consumer: there is no topic %q; make it with `leaderboard topics`", c.o.Topics.Results())
	}
	return topics, nil
}

// session consumes topics until the next rebalance, and ends early when there are
// others. It returns an error if it ended for another reason.
func (c *Consumer) session(ctx context.Context, topics map[string]string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		ticker := time.NewTicker(topicsEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				if now, err := c.topics(); err == nil && !maps.Equal(now, topics) {
					cancel()
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	h := handler{Consumer: c, topics: topics, ended: new(error)}
	err := c.group.Consume(ctx, slices.Sorted(maps.Keys(topics)), h)
	if errors.Is(err, sarama.ErrClosedConsumerGroup) || ctx.Err() != nil {
		return nil
	}
	if why := *h.ended; err == nil && !errors.Is(why, sarama.ErrRebalanceInProgress) && !errors.Is(why, sarama.ErrSessionPartitionCountChanged) {
		return why
	}
	return err
}

// handler is the consumer as sarama sees it, for one session.
type handler struct {
	*Consumer
	topics map[string]string // their ids, kept with every offset
	ended  *error            // why the session did
}

func (h handler) Setup(s sarama.ConsumerGroupSession) error {
	h.metrics.sessions.Inc()
	partitions := 0
	for _, claims := range s.Claims() {
		partitions += len(claims)
	}
	h.metrics.partitions.Set(float64(partitions))
	h.joined.Store(true)
	if err := h.mendOffsets(s); err != nil {
		h.o.Log.Warn("committed offsets not compared with the log", "err", err)
	}
	return nil
}

// Cleanup commits nothing: what was marked is committed after it, so that the
// next owner begins behind it.
func (h handler) Cleanup(s sarama.ConsumerGroupSession) error {
	h.metrics.partitions.Set(0)
	*h.ended = context.Cause(s.Context())
	return nil
}

// ConsumeClaim applies a partition's messages until the session ends. While what
// became of a batch is being reported, the next is applied.
func (h handler) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	ctx, cancel := context.WithCancelCause(s.Context())
	defer cancel(nil)
	applied := make(chan []*item)
	var reporting sync.WaitGroup
	reporting.Go(func() {
		if err := h.reportAll(s, applied); err != nil {
			cancel(err)
			for range applied { // nothing is marked after it
			}
		}
	})
	for {
		batch := h.take(ctx, claim)
		if len(batch) == 0 {
			break
		}
		now := time.Now()
		h.metrics.lagSeconds.WithLabelValues(claim.Topic()).Set(now.Sub(batch[0].Timestamp).Seconds())
		items := make([]*item, len(batch))
		for i, m := range batch {
			items[i] = &item{message: m, taken: now}
		}
		if err := h.applyAll(s.Context(), items); err != nil {
			cancel(fmt.Errorf("at offset %d: %w", batch[0].Offset, err))
			break
		}
		applied <- items
	}
	close(applied)
	reporting.Wait()
	if err := context.Cause(ctx); err != nil && s.Context().Err() == nil {
		h.metrics.stuck.Inc()
		return fmt.Errorf("consumer: partition %d of %s: %w", claim.Partition(), claim.Topic(), err)
	}
	return nil // if the session ended meanwhile, the next owner does it again
}

// settleEvery is how often it is looked whether the rank index has settled.
const settleEvery = 100 * time.Millisecond

// reportAll tells what became of applied batches, and marks them. While the rank
// index lacks something that only this process knows of, nothing is marked: if
// the process ends, another is given the same messages, and brings the index up
// to date with them.
func (h handler) reportAll(s sarama.ConsumerGroupSession, applied <-chan []*item) error {
	var last *sarama.ConsumerMessage // to be marked
	mark := func() {
		if last != nil && h.service.Settled() {
			s.MarkMessage(last, h.topics[last.Topic])
			last = nil
		}
	}
	tick := time.NewTicker(settleEvery)
	defer tick.Stop()
	for {
		select {
		case items, ok := <-applied:
			if !ok {
				return nil
			}
			if err := h.report(s.Context(), items); err != nil {
				return err
			}
			last = items[len(items)-1].message
			mark()
			h.metrics.applyTime.Observe(time.Since(items[0].taken).Seconds())
			h.metrics.batch.Observe(float64(len(items)))
		case <-tick.C:
			mark()
		}
	}
}

var errStuck = errors.New("no progress for too long")

// take waits for a message and returns it with those that are there already,
// or nothing when the session ends.
func (h handler) take(ctx context.Context, claim sarama.ConsumerGroupClaim) []*sarama.ConsumerMessage {
	var batch []*sarama.ConsumerMessage
	select {
	case m, ok := <-claim.Messages():
		if !ok {
			return nil
		}
		batch = append(batch, m)
	case <-ctx.Done():
		return nil
	}
	for len(batch) < h.o.BatchResults {
		select {
		case m, ok := <-claim.Messages():
			if !ok {
				return batch
			}
			batch = append(batch, m)
		default:
			return batch
		}
	}
	return batch
}

// item is a message of a batch on its way.
type item struct {
	message *sarama.ConsumerMessage
	taken   time.Time
	record  *pb.MatchResultRecord
	board   *leaderboard.Board
	result  leaderboard.MatchResult
	outcome leaderboard.Outcome
	before  leaderboard.RankKey // the user's before the batch
	repeats bool                // another notification of the batch tells of the user
	// cause is why the message goes to the dead letters, or empty.
	cause  cause
	detail error
	letter *sarama.ProducerMessage
}

func (i *item) deadLetter(topic string, limit int) *sarama.ProducerMessage {
	return deadLetter(topic, i.message, i.cause, short(i.detail.Error(), maxDetailBytes), limit)
}

// cause is why a message could not be a result, a label of metrics.
type cause string

const (
	causeForm    cause = "form"    // not decodable
	causeInvalid cause = "invalid" // a field breaks a limit
	causeBoard   cause = "board"   // no such board
	causeSeason  cause = "season"  // the board has no season for it
)

// applyAll finds out what messages are, and applies those that are results. While
// a server does not answer it tries again, until session is done; then it returns
// an error, as when it is stuck.
func (h handler) applyAll(session context.Context, items []*item) error {
	for _, i := range items {
		h.checkPlace(i.message)
	}
	for len(items) > 0 {
		if err := h.retry(session, func(ctx context.Context) error { return h.understand(ctx, items) }); err != nil {
			return err
		}
		n := beforeRetry(items)
		left := slices.DeleteFunc(slices.Clone(items[:n]), func(i *item) bool { return i.cause != "" })
		for len(left) > 0 {
			if err := h.retry(session, func(ctx context.Context) (err error) {
				left, err = h.applySome(ctx, left)
				return err
			}); err != nil {
				return err
			}
		}
		items = items[n:]
		for _, i := range items {
			i.board = nil // to be understood with those before
		}
	}
	h.atOnce.Store(min(2*h.atOnce.Load(), int64(h.o.BatchResults)))
	return nil
}

// beforeRetry returns how many items come before the first that has no time of its
// own and is about a match that an earlier one puts into another season. Once that
// is applied, it is known to which of them the match belongs.
func beforeRetry(items []*item) int {
	first := map[leaderboard.ResultKey]leaderboard.SeasonID{} // by key without season
	for n, i := range items {
		if i.cause != "" || !i.result.Assigned {
			continue
		}
		match := i.result.ResultKey
		match.Season = ""
		if season, ok := first[match]; ok && season != i.result.Season {
			return n
		}
		first[match] = i.result.Season
	}
	return len(items)
}

// report tells what became of items, as persistently as they are applied.
func (h handler) report(session context.Context, items []*item) error {
	var messages []*sarama.ProducerMessage
	if err := h.retry(session, func(ctx context.Context) (err error) {
		messages, err = h.reports(ctx, items)
		return err
	}); err != nil {
		return err
	}
	return h.retry(session, func(ctx context.Context) error {
		err := h.sender.Send(ctx, messages)
		if errors.Is(err, sarama.ErrMessageSizeTooLarge) {
			return h.sendCut(ctx, items, messages)
		}
		return err
	})
}

// sendCut sends messages one by one, as where a topic takes less than others do,
// and dead letters as large as it takes them.
func (h handler) sendCut(ctx context.Context, items []*item, messages []*sarama.ProducerMessage) error {
	limit := maxLetterBytes
	for _, m := range messages {
		at := slices.IndexFunc(items, func(i *item) bool { return i.letter == m })
		for {
			if at >= 0 {
				m = items[at].deadLetter(h.o.Topics.DeadLetters(), limit)
			}
			err := h.sender.Send(ctx, []*sarama.ProducerMessage{m})
			if err == nil {
				break
			}
			if at < 0 || limit/2 < minLetterBytes || !errors.Is(err, sarama.ErrMessageSizeTooLarge) {
				return err
			}
			limit /= 2
		}
	}
	return nil
}

// retry calls f until it succeeds, with growing pauses with jitter. It gives up
// when session is done, and when f is stuck: it does not return, or fails and
// fails for another reason than that a server is down.
func (h handler) retry(session context.Context, f func(context.Context) error) error {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 50*time.Millisecond, 5*time.Second
	stuckAt := time.Now().Add(h.o.StuckAfter)
	for {
		err := h.try(session, f)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, errStuck):
			return err
		case errors.Is(err, leaderboard.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
			stuckAt = time.Now().Add(h.o.StuckAfter)
		case time.Now().After(stuckAt):
			return fmt.Errorf("%w: %w", errStuck, err)
		}
		wait := pause.NextBackOff()
		h.metrics.retries.Inc()
		h.o.Log.WarnContext(session, "a batch waits for a server", "err", err, "in", wait)
		select {
		case <-time.After(wait):
		case <-session.Done():
			return errors.Join(err, session.Err())
		}
	}
}

// try calls f, and leaves it behind when it does not return. The session's end
// does not stop it: what it did would have to be done again.
func (h handler) try(session context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(session), h.o.ApplyTimeout)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	stuck := time.NewTimer(h.o.StuckAfter)
	defer stuck.Stop()
	select {
	case err := <-done:
		return err
	case <-stuck.C:
		return errStuck
	}
}

// checkPlace counts messages that are not on their user's partition. They are
// applied all the same: order across partitions is not needed, only helpful.
func (h handler) checkPlace(m *sarama.ConsumerMessage) {
	partitions, err := h.client.Partitions(m.Topic)
	if err != nil || len(partitions) == 0 {
		return
	}
	want, err := sarama.NewMurmur2Partitioner(m.Topic).Partition(&sarama.ProducerMessage{Key: sarama.ByteEncoder(m.Key)}, int32(len(partitions)))
	if err == nil && (len(m.Key) == 0 || want != m.Partition) {
		h.metrics.misplaced.Inc()
	}
}

// understand makes results of messages, or finds out why they are none. It asks
// for each board once, and several things at a time.
func (h handler) understand(ctx context.Context, items []*item) error {
	byBoard := map[leaderboard.BoardID][]*item{}
	for _, i := range items {
		if i.board != nil || i.cause != "" {
			continue // understood in an earlier try
		}
		var err error
		if i.record, err = decode(i.message); err != nil {
			i.cause, i.detail = causeForm, err
			if errors.Is(err, leaderboard.ErrInvalid) {
				i.cause = causeInvalid
			}
			continue
		}
		id := cmp.Or(leaderboard.BoardID(i.record.GetBoardId()), leaderboard.DefaultBoard)
		byBoard[id] = append(byBoard[id], i)
	}
	type onBoard struct {
		item  *item
		board *leaderboard.Board
	}
	var mu sync.Mutex
	var found []onBoard
	err := each(slices.Collect(maps.Keys(byBoard)), func(id leaderboard.BoardID) error {
		board, err := h.service.Board(ctx, id)
		mu.Lock()
		defer mu.Unlock()
		for _, i := range byBoard[id] {
			switch {
			case errors.Is(err, leaderboard.ErrBoardNotFound), errors.Is(err, leaderboard.ErrInvalid):
				i.cause, i.detail = causeBoard, err
			case err != nil:
				return err
			default:
				found = append(found, onBoard{i, &board})
			}
		}
		return nil
	})
	rerr := each(found, func(on onBoard) error {
		i := on.item
		result, err := h.result(ctx, on.board, i)
		switch {
		case errors.Is(err, leaderboard.ErrSeasonNotFound):
			i.cause, i.detail = causeSeason, err
		case errors.Is(err, leaderboard.ErrInvalid):
			i.cause, i.detail = causeInvalid, err
		case err != nil:
			return err
		default:
			i.board, i.result = on.board, result
		}
		return nil
	})
	if err == nil {
		err = rerr
	}
	return err
}

func (h handler) result(ctx context.Context, b *leaderboard.Board, i *item) (leaderboard.MatchResult, error) {
	r, err := toResult(b, i.record, i.message.Timestamp)
	if err != nil {
		return r, err
	}
	season := leaderboard.SeasonID(i.record.GetSeason())
	if season == "" || !r.Retracted && !i.record.GetNotification() {
		return h.service.Complete(ctx, b, r)
	}
	in, err := b.Season.ByID(season)
	r.Board, r.Season = b.ID, in.ID
	return r, err
}

// applySome applies as many items as can be done in time: all, until that was too
// slow. A batch that is tried again as it was would never end while its stores
// are slower than that, and ask them for more and more.
func (h handler) applySome(ctx context.Context, items []*item) (left []*item, err error) {
	n := min(len(items), int(h.atOnce.Load()))
	left, err = h.apply(ctx, items[:n])
	if err != nil && ctx.Err() != nil {
		h.atOnce.Store(int64(max(1, n/4)))
	}
	return append(left, items[n:]...), err
}

// apply applies items, and returns those that are left to be tried again with
// the reason.
func (h handler) apply(ctx context.Context, items []*item) (left []*item, err error) {
	byBoard := map[leaderboard.BoardID][]*item{}
	var notifications []*item
	for _, i := range items {
		if i.record.GetNotification() {
			notifications = append(notifications, i)
		} else {
			byBoard[i.board.ID] = append(byBoard[i.board.ID], i)
		}
	}
	left, err = h.refresh(ctx, notifications)
	for _, items := range byBoard {
		results := make([]leaderboard.MatchResult, len(items))
		for n, i := range items {
			results[n] = i.result
		}
		report, aerr := h.service.Apply(ctx, items[0].board, results)
		switch {
		case errors.Is(aerr, leaderboard.ErrBoardNotFound): // deleted since
			for _, i := range items {
				i.cause, i.detail = causeBoard, aerr
			}
		case aerr != nil:
			left, err = append(left, items...), aerr
		default:
			type place struct {
				leaderboard.Scope
				leaderboard.UserID
			}
			before := map[place]leaderboard.RankKey{}
			for _, c := range report.Changes {
				before[place{c.Before.Scope, c.Before.User}] = rankedKey(&c.Before)
			}
			for n, i := range items {
				i.outcome = report.Outcomes[n]
				if i.outcome.Err != nil {
					left, err = append(left, i), i.outcome.Err
					continue
				}
				var changed bool
				if i.before, changed = before[place{i.result.Scope, i.result.User}]; !changed {
					i.before = rankedKey(&i.outcome.Entry)
				}
			}
		}
	}
	return left, err
}

// refresh makes the entries anew of those whom notifications are about, each once
// and several at a time, and returns what is left to be tried again with the reason.
func (h handler) refresh(ctx context.Context, notifications []*item) (left []*item, err error) {
	type entry struct {
		leaderboard.Scope
		user leaderboard.UserID
	}
	byEntry := map[entry][]*item{}
	for _, i := range notifications {
		e := entry{i.result.Scope, i.result.User}
		byEntry[e] = append(byEntry[e], i)
	}
	var mu sync.Mutex
	err = each(slices.Collect(maps.Values(byEntry)), func(items []*item) error {
		first := items[0]
		change, err := h.service.Refresh(ctx, first.board, first.result.Season, first.result.User)
		if errors.Is(err, leaderboard.ErrBoardNotFound) { // deleted since
			for _, i := range items {
				i.cause, i.detail = causeBoard, err
			}
			return nil
		}
		if err != nil {
			mu.Lock()
			defer mu.Unlock()
			left = append(left, items...)
			return err
		}
		first.before, first.outcome = rankedKey(&change.Before), leaderboard.Outcome{Status: leaderboard.Applied, Entry: change.After}
		for _, i := range items[1:] {
			i.repeats = true
		}
		return nil
	})
	return left, err
}

// each calls f of all, several at a time, and returns an error of theirs if there
// is one.
func each[T any](all []T, f func(T) error) error {
	const atOnce = 32 // each is a call of the store, or some
	var calls errgroup.Group
	calls.SetLimit(atOnce)
	for _, x := range all {
		calls.Go(func() error { return f(x) })
	}
	return calls.Wait()
}

// reports returns the messages that tell of settled items: updates, and dead letters.
func (h handler) reports(ctx context.Context, items []*item) ([]*sarama.ProducerMessage, error) {
	bands := h.bands(ctx, items)
	var messages []*sarama.ProducerMessage
	for _, i := range items {
		switch {
		case i.cause != "":
			h.metrics.dead.WithLabelValues(string(i.cause)).Inc()
			h.o.Log.Warn("message moved to the dead letters", "topic", i.message.Topic, "partition", i.message.Partition,
				"offset", i.message.Offset, "cause", i.cause, "err", short(i.detail.Error(), maxDetailBytes))
			i.letter = i.deadLetter(h.o.Topics.DeadLetters(), maxLetterBytes)
			messages = append(messages, i.letter)
		case i.repeats:
			h.metrics.results.WithLabelValues("NOTIFICATION").Inc()
		default:
			status := i.outcome.Status.String()
			if i.record.GetNotification() {
				status = "NOTIFICATION"
			}
			h.metrics.results.WithLabelValues(status).Inc()
			value, err := proto.Marshal(update(i, bands))
			if err != nil {
				return nil, err
			}
			messages = append(messages, &sarama.ProducerMessage{
				Topic: h.o.Topics.Updates(), Key: sarama.StringEncoder(i.result.User), Value: sarama.ByteEncoder(value),
				Headers: []sarama.RecordHeader{{Key: []byte(producer.ContentType), Value: []byte(producer.Protobuf)}},
			})
		}
	}
	return messages, nil
}

// rankedKey returns the key of an entry that stands in its ladders.
func rankedKey(e *leaderboard.Entry) leaderboard.RankKey {
	if !e.Ranked() {
		return ""
	}
	return e.Key
}

// bandsOf holds the rank bands of keys in scopes.
type bandsOf map[leaderboard.Scope]map[leaderboard.RankKey]int64

// bands asks for the ranks of all scores of a batch, once a scope. Without
// ranks the updates go out without bands.
func (h handler) bands(ctx context.Context, items []*item) bandsOf {
	bands := bandsOf{}
	for _, i := range items {
		if i.cause != "" || i.repeats {
			continue
		}
		keys := bands[i.result.Scope]
		if keys == nil {
			keys = map[leaderboard.RankKey]int64{}
			bands[i.result.Scope] = keys
		}
		for _, k := range []leaderboard.RankKey{i.before, rankedKey(&i.outcome.Entry)} {
			if k != "" {
				keys[k] = 0
			}
		}
	}
	for scope, band := range bands {
		keys := slices.Collect(maps.Keys(band))
		if len(keys) == 0 {
			continue
		}
		ranks, err := h.service.RanksOf(ctx, scope, keys)
		if err != nil {
			h.o.Log.WarnContext(ctx, "updates go out without rank bands", "err", err)
			continue
		}
		for n, k := range keys {
			band[k] = bandOf(ranks[n])
		}
	}
	return bands
}

// bandOf returns the least of 1, 3, 10, 100, 1000, … that is not below a rank.
func bandOf(rank int64) int64 {
	switch {
	case rank <= 1:
		return 1
	case rank <= 3:
		return 3
	}
	band := int64(10)
	for band < rank {
		band *= 10
	}
	return band
}

func update(i *item, bands bandsOf) *pb.LeaderboardUpdate {
	now := time.Now()
	u := &pb.LeaderboardUpdate{
		BoardId: string(i.result.Board), Season: string(i.result.Season), UserId: string(i.result.User),
		MatchId: string(i.result.Match), Revision: i.result.Revision, Status: wire.FromStatus(i.outcome.Status),
		Reason: string(i.outcome.Reason), AppliedAt: wire.Timestamp(now), RankKey: []byte(i.outcome.Entry.Key),
	}
	if i.record.GetNotification() { // it is about the user, and says nothing of a result
		u.MatchId, u.Revision = "", 0
	}
	tell := func(k leaderboard.RankKey, score, band **int64) {
		if k == "" {
			return
		}
		*score = new(int64)
		**score = int64(i.board.ScoreOf(k, now))
		if b := bands[i.result.Scope][k]; b != 0 {
			*band = &b
		}
	}
	tell(i.before, &u.OldScore, &u.OldRankBand)
	tell(rankedKey(&i.outcome.Entry), &u.NewScore, &u.NewRankBand)
	return u
}
