package main

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/api/protoconv"
	"github.com/open-leaderboard/leaderboard/api/restjson"
	apiserver "github.com/open-leaderboard/leaderboard/api/server"
	"github.com/open-leaderboard/leaderboard/consumer"
	"github.com/open-leaderboard/leaderboard/internal/cli"
	"github.com/open-leaderboard/leaderboard/internal/config"
	"github.com/open-leaderboard/leaderboard/producer"
)

// deadLetters reads the topic of dead letters for the API and for the command dlq. Each call has a connection of its
// own, because calls are rare.
type deadLetters struct {
	kafka    *config.Kafka
	producer *producer.Producer // for Replay
}

var _ apiserver.DeadLetters = (*deadLetters)(nil)

func (l *deadLetters) read(f func(*consumer.DeadLetters) error) error {
	connection, err := kafkaOptions(l.kafka)
	if err != nil {
		return err
	}
	source, err := consumer.OpenDeadLetters(l.kafka.Brokers, connection, topicsOf(l.kafka))
	if err != nil {
		return err
	}
	return errors.Join(f(source), source.Close())
}

// page returns the first page.
func (l *deadLetters) page(ctx context.Context, q consumer.DeadLetterQuery) (list []*consumer.DeadLetter, err error) {
	err = l.read(func(source *consumer.DeadLetters) error {
		list, _, err = source.Page(ctx, q)
		return err
	})
	return list, err
}

func (l *deadLetters) find(ctx context.Context, ids []consumer.DeadLetterID) (list []*consumer.DeadLetter, err error) {
	err = l.read(func(source *consumer.DeadLetters) error {
		list, err = source.Get(ctx, ids)
		return err
	})
	return list, err
}

// maxExamined bounds the dead letters that a call of the API reads of each partition, if it selects by content.
const maxExamined = 10_000

func (l *deadLetters) List(ctx context.Context, req *pb.ListDeadLettersRequest, limit int, since time.Time) (*pb.ListDeadLettersResponse, error) {
	q := consumer.DeadLetterQuery{Since: since, User: req.GetUserId(), Cause: req.GetCause(), Limit: limit, Examine: maxExamined, Summary: true}
	if _, ok := deadLetterCures[q.Cause]; q.Cause != "" && !ok {
		return nil, &leaderboard.FieldError{Field: "cause", Problem: "must be one of " + strings.Join(slices.Sorted(maps.Keys(deadLetterCures)), ", ")}
	}
	var err error
	if q.Before, err = parseDeadLetterToken(req.GetPageToken()); err != nil {
		return nil, err
	}
	res := &pb.ListDeadLettersResponse{}
	err = l.read(func(source *consumer.DeadLetters) error {
		list, next, err := source.Page(ctx, q)
		res.NextPageToken = deadLetterToken(next)
		for _, d := range list {
			res.DeadLetters = append(res.DeadLetters, deadLetterMessage(d, false))
		}
		return err
	})
	return res, err
}

func (l *deadLetters) Get(ctx context.Context, ids []string) ([]*pb.DeadLetter, error) {
	list, err := l.named(ctx, ids)
	messages := make([]*pb.DeadLetter, len(list))
	for i, d := range list {
		messages[i] = deadLetterMessage(d, true)
	}
	return messages, err
}

func (l *deadLetters) Replay(ctx context.Context, ids []string) error {
	list, err := l.named(ctx, ids)
	if err == nil {
		_, err = consumer.ReplayDeadLetters(ctx, l.producer, topicsOf(l.kafka), list)
	}
	return err
}

func (l *deadLetters) named(ctx context.Context, ids []string) ([]*consumer.DeadLetter, error) {
	parsed := make([]consumer.DeadLetterID, len(ids))
	for i, id := range ids {
		var err error
		if parsed[i], err = consumer.ParseDeadLetterID(id); err != nil {
			return nil, &leaderboard.FieldError{Field: "dead_letter_id", Problem: fmt.Sprintf("%.40q is not a partition and an offset, such as 3:17", id)}
		}
	}
	return l.find(ctx, parsed)
}

// deadLetterMessage returns d as the API and the command show it. Others may have written its key and headers.
func deadLetterMessage(d *consumer.DeadLetter, whole bool) *pb.DeadLetter {
	valid := func(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }
	m := &pb.DeadLetter{
		DeadLetterId: d.ID().String(), At: protoconv.Timestamp(d.At), Cause: valid(d.Cause), Detail: valid(d.Detail), Cure: deadLetterCures[d.Cause],
		UserId: valid(d.User), Board: d.Board, MatchId: d.Match, OriginTopic: valid(d.Origin.Topic), OriginPartition: d.Origin.Partition,
		OriginOffset: d.Origin.Offset, OriginAt: protoconv.Timestamp(d.Origin.At), Cut: d.Cut, Replayable: d.Replayable,
	}
	if whole {
		record, raw := d.Value()
		if m.Message = record; record == nil {
			m.MessageBytes = new(base64.StdEncoding.EncodeToString(raw))
		}
	}
	return m
}

var deadLetterColumns = []string{
	"dead_letter_id", "at", "cause", "user_id", "board", "match_id", "detail", "cure", "origin_topic", "origin_partition", "origin_offset", "origin_at", "cut", "replayable",
	"message", "message_bytes",
}

func deadLetterDocument(list []*consumer.DeadLetter) (cli.Document, error) {
	text := []byte{'['}
	for i, d := range list {
		if i > 0 {
			text = append(text, ',')
		}
		var err error
		if text, err = restjson.Append(text, deadLetterMessage(d, true)); err != nil {
			return cli.Document{}, err
		}
	}
	return cli.Document{JSON: append(text, ']'), Columns: deadLetterColumns}, nil
}

// A token has the partition and the offset of each partition of a page's field Before, as varints.
func deadLetterToken(before map[int32]int64) string {
	var b []byte
	for _, p := range slices.Sorted(maps.Keys(before)) {
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(p)), uint64(before[p]))
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

func parseDeadLetterToken(token string) (map[int32]int64, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	before := map[int32]int64{}
	for last := int64(-1); len(b) > 0 && err == nil; {
		p, n := binary.Uvarint(b)
		offset, m := binary.Uvarint(b[max(n, 0):])
		if n <= 0 || m <= 0 || p > math.MaxInt32 || int64(p) <= last || offset > math.MaxInt64 {
			err = leaderboard.ErrInvalid
			break
		}
		last, b, before[int32(p)] = int64(p), b[n+m:], int64(offset)
	}
	if err != nil {
		return nil, &leaderboard.FieldError{Field: "page_token", Problem: "must be the next_page_token of an earlier answer"}
	}
	return before, nil
}
