package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	gocmp "github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"
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
	t.Run("in process", func(t *testing.T) { indexAfterALossOfNewestMessages(t, openRegion(t)) })
	t.Run("Kafka", func(t *testing.T) { indexAfterALossOfNewestMessages(t, openRegionOn(startReal(t))) })
}

func indexAfterALossOfNewestMessages(t *testing.T, r *region) {
	r.loseMessages()
	beyond := map[int32]sarama.OffsetAndMetadata{}
	for p, offset := range r.committed() {
		beyond[int32(p)] = sarama.OffsetAndMetadata{Offset: offset + 5, LeaderEpoch: -1}
	}
	if _, err := r.admin.AlterConsumerGroupOffsets(r.group(), map[string]map[int32]sarama.OffsetAndMetadata{r.topics.Results(): beyond}, nil); err != nil {
		t.Fatal(err)
	}
	r.checkLoss()
}

// Kafka has removed messages, the committed offsets and the positions.
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
	for _, group := range []string{r.group(), consumer.PositionGroup(r.group())} {
		if err := r.admin.DeleteConsumerGroup(group); err != nil {
			t.Fatal(err)
		}
	}
	r.checkLoss()
}

func TestPositionsDoNotExpire(t *testing.T) {
	t.Parallel()
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	c := startOn(t, fake.ListenAddrs(), kafka.Topics{})
	var mu sync.Mutex
	retentions := map[time.Duration]bool{}
	fake.ControlKey(int16(kmsg.OffsetCommit), func(r kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		if commit := r.(*kmsg.OffsetCommitRequest); commit.Group == consumer.PositionGroup(c.group()) {
			mu.Lock()
			defer mu.Unlock()
			retention := time.Duration(0) // versions above 4 have no retention
			if commit.Version <= 4 {
				retention = time.Duration(commit.RetentionTimeMillis) * time.Millisecond
			}
			retentions[retention] = true
		}
		return nil, nil, false
	})
	s, _ := newService(t, ranking.Options{})
	c.join(s, consumer.Options{})
	c.send(c.results(0, 4, 4)...)
	eventually(t, "the positions are stored", func() bool {
		return c.allCommitted() == 4 && slices.Max(func() []int64 { p := c.positionsOf(); return p[:] }()) > 0
	})
	mu.Lock()
	defer mu.Unlock()
	for retention := range maps.Keys(retentions) {
		if retention < 365*24*time.Hour {
			t.Errorf("a position is stored with the retention %v, want at least a year", retention)
		}
	}
}
