package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
)

// DeadLetter is a message that a consumer could not apply.
type DeadLetter struct {
	Partition int32
	Offset    int64
	At        time.Time // when it became a dead letter
	User      string    // the key of the message
	Cause     string    // as in the metric dead_letters_total
	Detail    string    // the error of the consumer
	// Origin is the place and the time of the message.
	Origin struct {
		Topic     string
		Partition int32
		Offset    int64
		At        time.Time
	}
	// Cut reports whether a part of the message is lost, because it was too large.
	Cut bool
	// Board and Match are in the message. They are empty if it cannot be decoded.
	Board, Match string
	// Replayable reports whether a replay can succeed, because the message can be decoded and is not cut.
	Replayable bool

	message *sarama.ConsumerMessage
	headers []sarama.RecordHeader // of the message
}

// DeadLetterID is the place of a dead letter in its topic.
type DeadLetterID struct {
	Partition int32
	Offset    int64
}

// ID returns the id of d.
func (d *DeadLetter) ID() DeadLetterID { return DeadLetterID{d.Partition, d.Offset} }

func (id DeadLetterID) String() string { return fmt.Sprintf("%d:%d", id.Partition, id.Offset) }

// ParseDeadLetterID is the inverse of [DeadLetterID.String].
func ParseDeadLetterID(text string) (DeadLetterID, error) {
	p, o, ok := strings.Cut(text, ":")
	partition, err := strconv.ParseUint(p, 10, 31)
	offset, err2 := strconv.ParseUint(o, 10, 63)
	if !ok || err != nil || err2 != nil {
		return DeadLetterID{}, fmt.Errorf("consumer: %.40q is not the id of a dead letter, such as 3:17: %w", text, leaderboard.ErrInvalid)
	}
	return DeadLetterID{int32(partition), int64(offset)}, nil
}

// DeadLetterQuery selects a page of dead letters.
type DeadLetterQuery struct {
	Since       time.Time // the zero time selects all
	User, Cause string    // if empty, all
	Limit       int       // at least 1
	// Before are the offsets, by partition, before which the page begins: those of the page before. Partitions
	// without an offset begin at their end.
	Before map[int32]int64
	// Examine bounds the dead letters that a page reads of each partition; 0 means all. A page may then have fewer
	// than Limit dead letters, even none, although more follow.
	Examine int64
	// Summary omits the messages: the dead letters then have no Value, and cannot be replayed.
	Summary bool
}

// DeadLetters reads the topic of dead letters over one connection. Create it with [OpenDeadLetters]. Its methods must
// not be called concurrently.
type DeadLetters struct {
	client     sarama.Client
	consumer   sarama.Consumer
	topic      string
	partitions []int32
}

// deadLetterWait is the longest time that a broker waits for a further message. A read ends before the end of a
// partition, so it needs no wait, but the end of a read may wait for the answer of a broker.
const deadLetterWait = 50 * time.Millisecond

// OpenDeadLetters connects to Kafka. The caller must close the result. Errors: [kafka.ErrRejected],
// [leaderboard.ErrUnavailable], and a missing topic.
func OpenDeadLetters(brokers []string, connection Connection, topics Topics) (*DeadLetters, error) {
	l := &DeadLetters{topic: topics.DeadLetters()}
	c := connection.Config("leaderboard-dlq")
	c.Consumer.Return.Errors = true
	c.Consumer.MaxWaitTime = deadLetterWait
	var err error
	if l.client, err = sarama.NewClient(brokers, c); err != nil {
		return nil, fmt.Errorf("consumer: read %s: %w", l.topic, kafka.ConnectError(brokers, c, err))
	}
	if l.partitions, err = l.client.Partitions(l.topic); err == nil {
		l.consumer, err = sarama.NewConsumerFromClient(l.client)
	}
	if err != nil {
		return nil, fmt.Errorf("consumer: read %s: %w", l.topic, errors.Join(kafka.Unavailable(err), l.client.Close()))
	}
	return l, nil
}

// Close closes the connection.
func (l *DeadLetters) Close() error { return errors.Join(l.consumer.Close(), l.client.Close()) }

// Page returns the dead letters that q selects, the newest first, and the field Before of the next page, which is
// nil on the last page. In a partition, a greater offset is newer. Errors: [leaderboard.ErrUnavailable].
func (l *DeadLetters) Page(ctx context.Context, q DeadLetterQuery) (list []*DeadLetter, next map[int32]int64, err error) {
	rests := make([]*rest, len(l.partitions))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelPartitions)
	for i, p := range l.partitions {
		group.Go(func() (err error) {
			if rests[i], err = l.readBackward(ctx, p, &q); err != nil {
				err = fmt.Errorf("consumer: read partition %d of %s: %w", p, l.topic, err)
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, nil, err
	}
	for len(list) < q.Limit {
		newest := -1
		for i, r := range rests {
			if len(r.found) > 0 && (newest < 0 || r.found[0].At.After(rests[newest].found[0].At)) {
				newest = i
			}
		}
		// What precedes the offset from in a partition may be newer than the rest of the others.
		if newest < 0 || slices.ContainsFunc(rests, func(r *rest) bool { return len(r.found) == 0 && r.more }) {
			break
		}
		list = append(list, rests[newest].found[0])
		rests[newest].found = rests[newest].found[1:]
	}
	next, more := map[int32]int64{}, false
	for i, r := range rests {
		next[l.partitions[i]] = r.from
		if len(r.found) > 0 {
			next[l.partitions[i]] = r.found[0].Offset + 1
		}
		more = more || r.more || len(r.found) > 0
	}
	if !more {
		next = nil
	}
	return list, next, nil
}

// parallelPartitions bounds the partitions that are read at the same time.
const parallelPartitions = 16

// rest is what a page has not listed yet of one partition.
type rest struct {
	found []*DeadLetter // the newest first
	from  int64         // the offset of the first dead letter that was examined
	more  bool          // whether dead letters that the query may select precede from
}

// deadLetterChunk is the number of dead letters that a read examines at a time, if the query selects by content.
const deadLetterChunk = 1000

// readBackward reads up to q.Limit dead letters of a partition, from the newest to the oldest one.
func (l *DeadLetters) readBackward(ctx context.Context, partition int32, q *DeadLetterQuery) (*rest, error) {
	oldest, end, err := l.rangeOf(partition, q.Since)
	if err != nil {
		return nil, err
	}
	if before, ok := q.Before[partition]; ok {
		end = min(end, before)
	}
	chunk := int64(q.Limit)
	if q.User != "" || q.Cause != "" {
		chunk = max(chunk, deadLetterChunk)
	}
	if q.Examine > 0 {
		chunk = min(chunk, q.Examine)
	}
	r := &rest{from: max(oldest, end)}
	for examined := int64(0); r.from > oldest && len(r.found) < q.Limit && (q.Examine == 0 || examined < q.Examine); {
		var part []*DeadLetter
		from := max(oldest, r.from-chunk)
		if err := l.readRange(ctx, partition, from, r.from, func(d *DeadLetter) {
			if (q.User == "" || d.User == q.User) && (q.Cause == "" || d.Cause == q.Cause) {
				if q.Summary {
					d.message = nil
				}
				part = append(part, d)
			}
		}); err != nil {
			return nil, err
		}
		slices.Reverse(part)
		examined += r.from - from
		r.found, r.from = append(r.found, part...), from
	}
	r.more = r.from > oldest
	return r, nil
}

// Get returns the dead letters with these ids, in their order. Errors: [leaderboard.ErrDeadLetterNotFound],
// [leaderboard.ErrUnavailable].
func (l *DeadLetters) Get(ctx context.Context, ids []DeadLetterID) ([]*DeadLetter, error) {
	list := make([]*DeadLetter, len(ids))
	for i, id := range ids {
		missing := fmt.Errorf("consumer: dead letter %v: %w", id, leaderboard.ErrDeadLetterNotFound)
		if !slices.Contains(l.partitions, id.Partition) {
			return nil, missing
		}
		oldest, end, err := l.rangeOf(id.Partition, time.Time{})
		if err == nil && oldest <= id.Offset && id.Offset < end {
			err = l.readRange(ctx, id.Partition, id.Offset, id.Offset+1, func(d *DeadLetter) {
				if d.Offset == id.Offset {
					list[i] = d
				}
			})
		}
		if err != nil {
			return nil, fmt.Errorf("consumer: read dead letter %v: %w", id, err)
		}
		if list[i] == nil {
			return nil, missing
		}
	}
	return list, nil
}

// readRange calls handle for the dead letters from an offset until the one before end, which exists.
func (l *DeadLetters) readRange(ctx context.Context, partition int32, from, end int64, handle func(*DeadLetter)) (err error) {
	if from >= end {
		return nil
	}
	reader, err := l.consumer.ConsumePartition(l.topic, partition, from)
	if err != nil {
		return kafka.Unavailable(err)
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	for {
		select {
		case m := <-reader.Messages():
			if m.Offset < end {
				handle(parseDeadLetter(m))
			}
			if m.Offset >= end-1 {
				return nil
			}
		case err := <-reader.Errors():
			return kafka.Unavailable(err)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// rangeOf returns the offsets [from, end) of the dead letters since a time, or of all.
func (l *DeadLetters) rangeOf(partition int32, since time.Time) (from, end int64, err error) {
	from, err = l.client.GetOffset(l.topic, partition, sarama.OffsetOldest)
	if err == nil {
		end, err = l.client.GetOffset(l.topic, partition, sarama.OffsetNewest)
	}
	if err == nil && !since.IsZero() {
		if from, err = l.client.GetOffset(l.topic, partition, since.UnixMilli()); from < 0 {
			from = end // all messages are older
		}
	}
	if err != nil {
		return 0, 0, kafka.Unavailable(err)
	}
	return from, end, nil
}

func parseDeadLetter(m *sarama.ConsumerMessage) *DeadLetter {
	d := &DeadLetter{Partition: m.Partition, Offset: m.Offset, At: m.Timestamp, User: string(m.Key), message: m}
	for _, h := range m.Headers {
		name, value := string(h.Key), string(h.Value)
		switch name {
		case "cause":
			d.Cause = value
		case "detail":
			d.Detail = value
		case "origin-topic":
			d.Origin.Topic = value
		case "origin-partition":
			n, _ := strconv.ParseInt(value, 10, 32)
			d.Origin.Partition = int32(n)
		case "origin-offset":
			d.Origin.Offset, _ = strconv.ParseInt(value, 10, 64)
		case "origin-timestamp":
			d.Origin.At, _ = time.Parse(time.RFC3339Nano, value)
		default:
			if strings.HasPrefix(name, "origin-") {
				d.Cut = true
				continue
			}
			d.headers = append(d.headers, *h)
		}
	}
	d.message.Headers = nil
	for _, h := range d.headers {
		d.message.Headers = append(d.message.Headers, &h)
	}
	if record, _ := d.Value(); record != nil {
		d.Board, d.Match, d.Replayable = record.GetBoardId(), record.GetResult().GetMatchId(), !d.Cut
	}
	return d
}

// Value returns the message or, if it cannot be decoded, its bytes.
func (d *DeadLetter) Value() (*pb.MatchResultRecord, []byte) {
	record, err := decode(d.message)
	if err != nil {
		return nil, d.message.Value
	}
	return record, nil
}

// ReplayDeadLetters writes the messages of dead letters to the topic of results, so that a consumer
// applies them again, in the order of list. It skips dead letters whose replay cannot succeed, because the
// message cannot be decoded or is cut. A nil sender sends nothing. After an error, the caller may
// repeat the call, because a result counts once.
//
// A message keeps its times: a result counts at its own time, and an erasure of the user since then
// removes it.
func ReplayDeadLetters(ctx context.Context, send sender, topics Topics, list []*DeadLetter) (skipped []*DeadLetter, err error) {
	var messages []*sarama.ProducerMessage
	for _, d := range list {
		m, err := d.replay(topics)
		switch {
		case err != nil:
			return nil, err
		case m == nil:
			skipped = append(skipped, d)
		default:
			messages = append(messages, m)
		}
	}
	if send == nil || len(messages) == 0 {
		return skipped, nil
	}
	return skipped, send.Send(ctx, messages)
}

// replay returns nil if a replay cannot succeed.
func (d *DeadLetter) replay(topics Topics) (*sarama.ProducerMessage, error) {
	record, _ := d.Value()
	if record == nil || d.Cut {
		return nil, nil
	}
	if at := d.Origin.At; !at.IsZero() {
		if record.GetReceivedAt() == nil || record.GetReceivedAt().AsTime().After(at) {
			record.ReceivedAt = timestamppb.New(at)
		}
		if record.GetResult().GetAchievedAt() == nil {
			record.Result.AchievedAt, record.Assigned = timestamppb.New(at), true
		}
	}
	value, err := proto.Marshal(record)
	if err != nil {
		return nil, err
	}
	m := &sarama.ProducerMessage{Topic: topics.Results(), Key: sarama.ByteEncoder(d.message.Key), Value: sarama.ByteEncoder(value)}
	for _, h := range d.headers {
		if string(h.Key) != kafka.ContentType {
			m.Headers = append(m.Headers, h)
		}
	}
	m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte(kafka.ContentType), Value: []byte(kafka.Protobuf)})
	return m, nil
}
