package consumer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	gocmp "github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/consumer"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

// follower counts calls of a service. Call n of Board fails if failBoard(n) is true.
type follower struct {
	consumer.Service
	failBoard, failCatchUp, failCatchUpAll func(n int) bool

	mu                           sync.Mutex
	boards, catchUps, dropsOfAll int
	drops                        map[leaderboard.SeasonKey]int // calls of CatchUp that dropped the season
}

var errFollower = errors.New("follower: the test lets this call fail")

func (f *follower) fails(n *int, fail func(int) bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	*n++
	return fail != nil && fail(*n)
}

func (f *follower) Board(ctx context.Context, id leaderboard.BoardID) (leaderboard.Board, error) {
	if f.fails(&f.boards, f.failBoard) {
		return leaderboard.Board{}, errFollower
	}
	return f.Service.Board(ctx, id)
}

func (f *follower) CatchUp(ctx context.Context, key leaderboard.SeasonKey, users []leaderboard.UserID) ([]leaderboard.UserID, bool, error) {
	if f.fails(&f.catchUps, f.failCatchUp) {
		return users, false, errFollower
	}
	rest, dropped, err := f.Service.CatchUp(ctx, key, users)
	if dropped {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.drops[key]++
	}
	return rest, dropped, err
}

func (f *follower) CatchUpAll(ctx context.Context) error {
	if f.fails(&f.dropsOfAll, f.failCatchUpAll) {
		return errFollower
	}
	return f.Service.CatchUpAll(ctx)
}

func (r *region) follow(f *follower, o consumer.Options) *member {
	f.Service, f.drops = ranking.New(r.store, r.index.Process(nil), ranking.Options{}), map[leaderboard.SeasonKey]int{}
	o.BatchResults, o.SessionTimeout = 20, 2*time.Second
	return r.join(f, o)
}

// leaveGap lets a consumer apply the messages in indexed, and loads boards into the index. Then the
// consumer is cut off from the index, and applies the messages in missing.
func (r *region) leaveGap(indexed, missing []*sarama.ProducerMessage, boards ...leaderboard.BoardID) {
	r.t.Helper()
	first := r.start(false)
	r.send(indexed...)
	eventually(r.t, "the first results are committed and in the index", func() bool { return r.allCommitted() == len(indexed) && r.positionsReach(r.committed()) })
	for _, b := range boards {
		r.ranks(b)
	}
	first.index.SetCut(true)
	r.send(missing...)
	eventually(r.t, "the results are committed", func() bool { return r.allCommitted() == len(indexed)+len(missing) })
	first.stop()
}

func (r *region) positionsReach(committed [partitions]int64) bool {
	for p, position := range r.positionsOf() {
		if max(position, 0) != committed[p] {
			return false
		}
	}
	return true
}

func (r *region) result(board, user, match string) *sarama.ProducerMessage {
	record := points(user, match, 1)
	record.BoardId = board
	m := message(record)
	m.Topic = r.topics.Results()
	return m
}

// If a batch of a gap fails, the next attempt continues with this batch.
func TestCatchingUpContinues(t *testing.T) {
	r := openRegion(t)
	r.leaveGap(r.next(1, 1), r.next(120, 1), "b", "linked")
	f := &follower{
		failBoard:   func(n int) bool { return n > 30 || n%3 == 0 },
		failCatchUp: func(n int) bool { return n <= 3 },
	}
	r.follow(f, consumer.Options{})
	eventually(t, "the position is the committed offset", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.boards > 30 {
			t.Fatalf("the gap of 6 batches is not closed after %d reads of the board; each batch needs one read", f.boards)
		}
		return r.positionsReach(r.committed())
	})
	if f.boards != 8 || f.catchUps != 4 {
		t.Errorf("the consumer read the board %d times and called CatchUp %d times; want 8 reads (6 batches, 2 failures) and 4 calls (1 success, 3 failures)", f.boards, f.catchUps)
	}
	r.checkRanks()
}

// If the gaps have more users than the limit, the consumer drops the largest season, once.
func TestGapsWithManyUsers(t *testing.T) {
	r := openRegion(t)
	if _, err := r.reader.CreateBoard(t.Context(), leaderboard.Board{ID: "small", Policy: leaderboard.Sum}); err != nil {
		t.Fatal(err)
	}
	fill, gap := []*sarama.ProducerMessage{r.result("b", "u0", "first"), r.result("small", "u0", "first")}, r.results(0, 200, 200)
	small, large := map[string]int{"u0": 1}, map[string]int{"u0": 1}
	for i := range 200 {
		large[fmt.Sprint("u", i)]++
		if i < 10 {
			gap = append(gap, r.result("small", fmt.Sprint("u", i), "second"))
			small[fmt.Sprint("u", i)]++
		}
	}
	r.leaveGap(fill, gap, "b", "linked", "small")
	f := &follower{}
	r.follow(f, consumer.Options{}.WithMaxGapUsers(40))
	r.waitForPositions()
	want := map[leaderboard.SeasonKey]int{{Board: "b", Season: leaderboard.SeasonAll}: 1}
	if diff := gocmp.Diff(want, f.drops); diff != "" || f.dropsOfAll != 0 {
		t.Errorf("all seasons were dropped %d times, want 0; drops of single seasons (-want +got):\n%s", f.dropsOfAll, diff)
	}
	r.scores = large
	r.checkRanks()
	if diff := gocmp.Diff(recount(small), r.ranks("small")); diff != "" {
		t.Errorf("ranks of small (-want +got):\n%s", diff)
	}
}

func TestGapsWithManySeasons(t *testing.T) {
	r := openRegion(t)
	var fill, gap []*sarama.ProducerMessage
	var boards []leaderboard.BoardID
	for i := range 30 {
		id := fmt.Sprint("board-", i)
		if _, err := r.reader.CreateBoard(t.Context(), leaderboard.Board{ID: leaderboard.BoardID(id), Policy: leaderboard.Sum}); err != nil {
			t.Fatal(err)
		}
		boards = append(boards, leaderboard.BoardID(id))
		fill = append(fill, r.result(id, fmt.Sprint("u", i), "first"))
		gap = append(gap, r.result(id, fmt.Sprint("u", i), "second"))
	}
	r.leaveGap(fill, gap, boards...)
	f := &follower{}
	r.follow(f, consumer.Options{}.WithMaxGapUsers(8))
	r.waitForPositions()
	if f.dropsOfAll != 1 {
		t.Errorf("all seasons were dropped %d times, want once", f.dropsOfAll)
	}
	for i, b := range boards {
		if diff := gocmp.Diff([]string{fmt.Sprintf("u%d 2 1", i)}, r.ranks(b)); diff != "" {
			t.Errorf("ranks of %s (-want +got):\n%s", b, diff)
		}
	}
}

// loseMessages lets a consumer apply 40 results, and adds a result of dan to the store only, as if the
// log and the index had lost it.
func (r *region) loseMessages() {
	r.t.Helper()
	r.scores["dan"] = 1
	first := r.start(false)
	r.send(r.next(40, 10)...)
	eventually(r.t, "the results are committed", func() bool { return r.allCommitted() == 40 && r.positionsReach(r.committed()) })
	r.ranks("b")
	r.ranks("linked")
	first.stop()
	x := r.index.Process(nil)
	x.SetCut(true)
	s := ranking.New(r.store, x, ranking.Options{})
	b := boardB(r.t, s)
	result, err := s.Complete(r.t.Context(), b, leaderboard.MatchResult{ResultKey: leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Board: "b"}, User: "dan", Match: "lost"}, Score: 1})
	if err == nil {
		_, err = s.Apply(r.t.Context(), b, []leaderboard.MatchResult{result})
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// checkLoss checks that consumers drop all seasons: only a fill from the store adds dan to the ranks.
// The first consumer notices the loss, but ends before it drops the seasons. The next must drop them.
func (r *region) checkLoss() {
	r.t.Helper()
	dying := &follower{failCatchUpAll: func(int) bool { return true }}
	m := r.follow(dying, consumer.Options{})
	ends := r.ends()
	eventually(r.t, "all offsets are committed, and a consumer tries to drop all seasons", func() bool {
		dying.mu.Lock()
		defer dying.mu.Unlock()
		return dying.dropsOfAll > 0 && r.committed() == ends
	})
	m.stop()
	r.start(false)
	r.send(r.next(10, 10)...) // the positions move only after the seasons are dropped
	ends = r.ends()
	eventually(r.t, "the positions are the ends of the log", func() bool { return r.positionsReach(ends) })
	r.checkRanks()
}

func (r *region) ends() (all [partitions]int64) {
	r.t.Helper()
	client, err := sarama.NewClient(r.brokers, kafka.Options{}.Config("test"))
	if err != nil {
		r.t.Fatal(err)
	}
	defer client.Close()
	for p := range all {
		if all[p], err = client.GetOffset(r.topics.Results(), int32(p), sarama.OffsetNewest); err != nil {
			r.t.Fatal(err)
		}
	}
	return all
}

func TestIndexAfterALossOfNewestMessages(t *testing.T) {
	onBoth(t, func(_ *testing.T, c *cluster) { openRegionOn(c).indexAfterALossOfNewestMessages() })
}

// The log is rewound: it ends before the committed offsets, whose metadata remain.
func (r *region) indexAfterALossOfNewestMessages() {
	r.loseMessages()
	r.commit(func(_ int, b sarama.OffsetFetchResponseBlock) sarama.OffsetAndMetadata {
		return sarama.OffsetAndMetadata{Offset: b.Offset + 5, LeaderEpoch: -1, Metadata: b.Metadata}
	})
	r.checkLoss()
}

// Kafka has removed messages, and the committed offsets.
func TestIndexAfterALossOfAllOffsets(t *testing.T) {
	r := openRegion(t)
	r.loseMessages()
	expired := map[int32]int64{}
	for p, offset := range r.committed() {
		if offset > 0 {
			expired[int32(p)] = max(1, offset-3)
		}
	}
	if err := r.admin.DeleteRecords(r.topics.Results(), expired); err != nil {
		t.Fatal(err)
	}
	if err := r.admin.DeleteConsumerGroup(r.group()); err != nil {
		t.Fatal(err)
	}
	r.checkLoss()
}

// A topic with messages of a gap is recreated. Kafka removes its offsets too.
func TestIndexAfterARecreatedTopic(t *testing.T) {
	onBoth(t, func(t *testing.T, c *cluster) { indexAfterARecreatedTopic(t, openRegionOn(c)) })
}

func indexAfterARecreatedTopic(t *testing.T, r *region) {
	r.leaveGap(r.next(40, 10), r.next(33, 10), "b", "linked")
	f := &follower{failCatchUp: func(int) bool { return true }}
	r.follow(f, consumer.Options{}.WithTopicPoll(100*time.Millisecond))
	eventually(t, "a consumer finds the gap", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.catchUps > 0
	})
	r.recreateTopic()
	eventually(t, "the consumer drops all seasons", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.dropsOfAll > 0
	})
	eventually(t, "the offsets of the new topic have positions", func() bool { return r.positionsOf() == [partitions]int64{} })
	r.checkRanks()
}

// An operator's tool commits offsets without a position, for example with kafka-consumer-groups
// --reset-offsets. The index lacks updates of messages before these offsets.
func TestOffsetsOfOtherPrograms(t *testing.T) {
	t.Parallel()
	t.Run("text, in process", func(t *testing.T) { offsetsOfOtherPrograms(t, openRegion(t), "reset by an operator") })
	t.Run("empty, Kafka", func(t *testing.T) { offsetsOfOtherPrograms(t, openRegionOn(startReal(t)), "") })
	longest := strings.Repeat("m", 4096) // Kafka's default of offset.metadata.max.bytes
	t.Run("longest, Kafka", func(t *testing.T) { offsetsOfOtherPrograms(t, openRegionOn(startReal(t)), longest) })
}

func offsetsOfOtherPrograms(t *testing.T, r *region, text string) {
	r.leaveGap(r.next(40, 10), r.next(33, 10), "b", "linked")
	r.commit(func(_ int, b sarama.OffsetFetchResponseBlock) sarama.OffsetAndMetadata {
		return sarama.OffsetAndMetadata{Offset: b.Offset, LeaderEpoch: -1, Metadata: text}
	})
	f := &follower{}
	r.follow(f, consumer.Options{})
	r.waitForPositions()
	r.checkRanks()
	if f.dropsOfAll != 1 {
		t.Errorf("all seasons were dropped %d times, want once", f.dropsOfAll)
	}
}

// An operator rewinds the log to its start. No season is dropped, because the consumer repeats all updates.
func TestOffsetsAreRewoundToTheStart(t *testing.T) {
	r := openRegion(t)
	r.leaveGap(r.next(40, 10), r.next(33, 10), "b", "linked")
	r.commit(func(int, sarama.OffsetFetchResponseBlock) sarama.OffsetAndMetadata {
		return sarama.OffsetAndMetadata{LeaderEpoch: -1}
	})
	f := &follower{}
	r.follow(f, consumer.Options{})
	r.waitCommitted()
	r.waitForPositions()
	r.checkRanks()
	if f.dropsOfAll != 0 || len(f.drops) > 0 {
		t.Errorf("all seasons were dropped %d times, and single seasons %v; want no drops", f.dropsOfAll, f.drops)
	}
}

// A consumer starts while Redis is down. It commits offsets, but its positions stay.
func TestASessionStartsWithoutTheIndex(t *testing.T) {
	onBoth(t, func(t *testing.T, c *cluster) { aSessionStartsWithoutTheIndex(t, openRegionOn(c)) })
}

func aSessionStartsWithoutTheIndex(t *testing.T, r *region) {
	r.leaveGap(r.next(40, 10), r.next(33, 10), "b", "linked")
	before := r.positionsOf()
	second := r.start(true)
	r.send(r.next(26, 10)...)
	r.waitCommitted()
	second.stop()
	if got := r.positionsOf(); got != before {
		t.Errorf("the positions moved to %v while the index is not synced, want %v as before", got, before)
	}
	if n := second.gate.count(); n != 26 {
		t.Errorf("%d results were applied, want 26", n)
	}
	third := r.start(false)
	r.waitForPositions()
	r.checkRanks()
	if n := third.gate.count(); n != 0 {
		t.Errorf("%d results were applied again, want 0", n)
	}
}

// A consumer without the index hands over a part of its partitions, and then all. Each owner closes the
// gaps of its partitions, and applies no result again.
func TestPositionsAreHandedOver(t *testing.T) {
	onBoth(t, func(t *testing.T, c *cluster) { positionsAreHandedOver(t, openRegionOn(c)) })
}

func positionsAreHandedOver(t *testing.T, r *region) {
	first := r.start(false)
	const users = 40 // so many that every partition has messages
	r.send(r.next(40, users)...)
	r.waitCommitted()
	r.waitForPositions()
	r.checkRanks() // fills the index
	before := r.positionsOf()
	first.index.SetCut(true)
	r.send(r.next(40, users)...)
	r.waitCommitted()
	second := r.start(false)
	reached := func() (n int) {
		for p, position := range r.positionsOf() {
			if position == r.committed()[p] {
				n++
			}
		}
		return n
	}
	eventually(t, "the second consumer has closed the gaps of its partitions", func() bool { return second.member.count("partitions") == 2 && reached() == 2 })
	for p, position := range r.positionsOf() {
		if position != r.committed()[p] && position != before[p] {
			t.Errorf("partition %d has the position %d, want %d as before or the committed offset %d", p, position, before[p], r.committed()[p])
		}
	}
	first.stop()
	eventually(t, "all gaps are closed", func() bool { return reached() == partitions })
	r.checkRanks()
	if n := second.gate.count(); n != 0 {
		t.Errorf("%d results were applied again, want 0", n)
	}
}

// Kafka refuses metadata above its limit. The consumer goes on applying, and commits once the limit is raised.
func TestMetadataAboveTheLimit(t *testing.T) {
	c, fake := startFake(t)
	var limit, refusals atomic.Int64
	limit.Store(20)
	fake.ControlKey(int16(kmsg.OffsetCommit), func(r kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		answer, refused := r.ResponseKind().(*kmsg.OffsetCommitResponse), false
		for _, requested := range r.(*kmsg.OffsetCommitRequest).Topics {
			topic := kmsg.OffsetCommitResponseTopic{Topic: requested.Topic}
			for _, p := range requested.Partitions {
				refused = refused || int64(len(*p.Metadata)) > limit.Load()
				topic.Partitions = append(topic.Partitions, kmsg.OffsetCommitResponseTopicPartition{Partition: p.Partition, ErrorCode: kerr.OffsetMetadataTooLarge.Code})
			}
			answer.Topics = append(answer.Topics, topic)
		}
		if refused {
			refusals.Add(1)
		}
		return answer, nil, refused
	})
	s, _ := newService(t, ranking.Options{})
	var log bytes.Buffer
	m := c.join(s, consumer.Options{Log: slog.New(slog.NewTextHandler(io.MultiWriter(&log, t.Output()), nil))}.WithLagPoll(20*time.Millisecond))
	c.send(c.results(0, 40, 40)...)
	eventually(t, "all results are applied", func() bool { return len(boardLines(t, s)) == 40 })
	eventually(t, "Kafka has refused the metadata, and the lag shows it", func() bool {
		lag, _, _ := m.metric("lag_messages")
		return refusals.Load() > 0 && lag == 40
	})
	if n := c.allCommitted(); n != 0 {
		t.Errorf("%d messages are committed, want 0", n)
	}
	limit.Store(64)
	eventually(t, "all offsets are committed", func() bool { return c.allCommitted() == 40 })
	m.stop()
	if want := sarama.ErrOffsetMetadataTooLarge.Error(); !bytes.Contains(log.Bytes(), []byte(want)) {
		t.Errorf("the log has no error with %q:\n%s", want, log.String())
	}
}

func TestMetadata(t *testing.T) {
	id := strings.Repeat("0f", 16)
	for text, want := range map[string]int64{id + "@0": 0, "@12": 12, id + "@9223372036854775807": math.MaxInt64, id + "@lost": -1} {
		if position, ok := consumer.PositionOf(text); !ok || position != want {
			t.Errorf("the position in %q is %d, %v; want %d", text, position, ok, want)
		}
	}
	for _, text := range []string{
		"", "@", "lost", "12", id, id + "@", id + "@-1", id + "@-2", id + "@+1", id + "@007", id + "@ 1", id + "@1 ", id + "@9223372036854775808",
		id + "@1@2", id[2:] + "@1", strings.ToUpper(id) + "@1", "checkpoint@12", strings.Repeat("m", 4096),
	} {
		if position, ok := consumer.PositionOf(text); ok || position != -1 {
			t.Errorf("the position in %q is %d, %v; want -1, as this package does not write it", text, position, ok)
		}
	}
}

func FuzzMetadata(f *testing.F) {
	f.Add(strings.Repeat("0f", 16) + "@12")
	f.Add("@lost")
	f.Fuzz(func(t *testing.T, text string) {
		position, ok := consumer.PositionOf(text)
		topic, _, _ := strings.Cut(text, "@")
		switch {
		case !ok && position != -1:
			t.Errorf("the position in %q is %d, want -1", text, position)
		case ok && consumer.FormatMetadata(topic, position) != text:
			t.Errorf("the metadata with the position in %q is %q", text, consumer.FormatMetadata(topic, position))
		case ok && len(text) > 64:
			t.Errorf("the metadata %q has %d bytes, want at most 64, as docs/operations/back-ends.md states", text, len(text))
		}
	})
}
