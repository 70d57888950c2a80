package consumer

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

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

	message *sarama.ConsumerMessage
	headers []sarama.RecordHeader // of the message
}

// DeadLetterQuery selects dead letters.
type DeadLetterQuery struct {
	Since       time.Time // the zero time selects all
	User, Cause string    // if empty, all
	Limit       int       // of each partition, the newest, unless User or Cause selects
}

// ReadDeadLetters returns the dead letters that q selects, the newest first. Errors:
// [kafka.ErrRejected], [leaderboard.ErrUnavailable], and a missing topic.
func ReadDeadLetters(ctx context.Context, brokers []string, connection Connection, topics Topics, q DeadLetterQuery) (list []*DeadLetter, err error) {
	topic := topics.DeadLetters()
	client, partitions, err := openDeadLetters(brokers, connection, topic)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	for _, p := range partitions {
		from, end, err := rangeOf(client, topic, p, q)
		if err == nil {
			err = readRange(ctx, client, topic, p, from, end, func(d *DeadLetter) {
				if (q.User == "" || d.User == q.User) && (q.Cause == "" || d.Cause == q.Cause) {
					list = append(list, d)
				}
			})
		}
		if err != nil {
			return nil, fmt.Errorf("consumer: read partition %d of %s: %w", p, topic, err)
		}
	}
	slices.SortStableFunc(list, func(x, y *DeadLetter) int { return y.At.Compare(x.At) })
	return list, nil
}

// ReadDeadLetter returns one dead letter, or nil if it does not exist.
func ReadDeadLetter(ctx context.Context, brokers []string, connection Connection, topics Topics, partition int32, offset int64) (found *DeadLetter, err error) {
	topic := topics.DeadLetters()
	client, partitions, err := openDeadLetters(brokers, connection, topic)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	if !slices.Contains(partitions, partition) {
		return nil, nil
	}
	from, end, err := rangeOf(client, topic, partition, DeadLetterQuery{Limit: math.MaxInt32})
	if err != nil || offset < from || offset >= end {
		return nil, err
	}
	err = readRange(ctx, client, topic, partition, offset, offset+1, func(d *DeadLetter) {
		if d.Offset == offset {
			found = d
		}
	})
	return found, err
}

// The caller must close the client.
func openDeadLetters(brokers []string, connection Connection, topic string) (sarama.Client, []int32, error) {
	c := connection.Config("leaderboard-dlq")
	c.Consumer.Return.Errors = true
	client, err := sarama.NewClient(brokers, c)
	if err != nil {
		return nil, nil, fmt.Errorf("consumer: read %s: %w", topic, kafka.ConnectError(brokers, c, err))
	}
	partitions, err := client.Partitions(topic)
	if err != nil {
		return nil, nil, fmt.Errorf("consumer: read %s: %w", topic, errors.Join(kafka.Unavailable(err), client.Close()))
	}
	return client, partitions, nil
}

// readRange calls handle for the dead letters from an offset until the one before end, which exists.
func readRange(ctx context.Context, client sarama.Client, topic string, partition int32, from, end int64, handle func(*DeadLetter)) (err error) {
	if from >= end {
		return nil
	}
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return kafka.Unavailable(err)
	}
	defer func() { err = errors.Join(err, consumer.Close()) }()
	reader, err := consumer.ConsumePartition(topic, partition, from)
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

// rangeOf returns the offsets [from, end) that contain what q selects. If q selects by content, they are
// all offsets since q.Since.
func rangeOf(client sarama.Client, topic string, partition int32, q DeadLetterQuery) (from, end int64, err error) {
	oldest, err := client.GetOffset(topic, partition, sarama.OffsetOldest)
	if err == nil {
		end, err = client.GetOffset(topic, partition, sarama.OffsetNewest)
	}
	from = oldest
	if err == nil && !q.Since.IsZero() {
		if from, err = client.GetOffset(topic, partition, q.Since.UnixMilli()); from < 0 {
			from = end // all messages are older
		}
	}
	if err != nil {
		return 0, 0, kafka.Unavailable(err)
	}
	if q.User == "" && q.Cause == "" {
		from = max(from, end-int64(min(q.Limit, math.MaxInt32)))
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
	return d
}

// Value returns the message as JSON: its fields or, if it cannot be decoded, its bytes in base64.
func (d *DeadLetter) Value() (json.RawMessage, error) {
	if record, err := decode(d.message); err == nil {
		return protojson.MarshalOptions{UseProtoNames: true}.Marshal(record)
	}
	return json.Marshal(map[string]string{"base64": base64.StdEncoding.EncodeToString(d.message.Value)})
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
	record := d.record()
	if record == nil {
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

// record returns nil if the message cannot be decoded, or is cut.
func (d *DeadLetter) record() *pb.MatchResultRecord {
	record, err := decode(d.message)
	if err != nil || d.Cut {
		return nil
	}
	return record
}
