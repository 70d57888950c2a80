package consumer_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/IBM/sarama"
	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/cache/cachetest"
	"github.com/open-leaderboard/leaderboard/cache/memory"
	"github.com/open-leaderboard/leaderboard/consumer"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/embedded"
	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

// committedBlocks returns the committed offset of each partition, with its metadata.
func (c *cluster) committedBlocks() (all [partitions]sarama.OffsetFetchResponseBlock) {
	c.t.Helper()
	var got *sarama.OffsetFetchResponse
	eventually(c.t, "answer of the group's coordinator", func() (ok bool) {
		var err error
		got, err = c.admin.ListConsumerGroupOffsets(c.group(), map[string][]int32{c.topics.Results(): {0, 1, 2, 3}})
		return err == nil && got.Err == sarama.ErrNoError
	})
	for p := range all {
		all[p].Offset = -1
		if b := got.GetBlock(c.topics.Results(), int32(p)); b != nil && b.Err == sarama.ErrNoError {
			all[p] = *b
		}
	}
	return all
}

// positionsOf returns the position of the index in each partition, or -1.
func (c *cluster) positionsOf() (all [partitions]int64) {
	c.t.Helper()
	for p, b := range c.committedBlocks() {
		all[p], _ = consumer.PositionOf(b.Metadata)
	}
	return all
}

// commit replaces the committed offsets, as an operator's tool does. The group must have no members.
func (c *cluster) commit(change func(p int, b sarama.OffsetFetchResponseBlock) sarama.OffsetAndMetadata) {
	c.t.Helper()
	offsets := map[int32]sarama.OffsetAndMetadata{}
	for p, b := range c.committedBlocks() {
		b.LeaderEpoch = -1
		offsets[int32(p)] = change(p, b)
	}
	answer, err := c.admin.AlterConsumerGroupOffsets(c.group(), map[string]map[int32]sarama.OffsetAndMetadata{c.topics.Results(): offsets}, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	for p := range offsets {
		if err := answer.Errors[c.topics.Results()][p]; err != sarama.ErrNoError {
			c.t.Fatalf("commit of partition %d: %v", p, err)
		}
	}
}

// region is a log, a store and an index, which all processes share.
type region struct {
	*cluster
	store   leaderboard.Store
	index   *cachetest.Shared
	process *cachetest.Process // the reader's index
	reader  *ranking.Service
	sent    int            // number of messages from next
	scores  map[string]int // of boards b and linked, if these messages are applied
}

// openRegion returns a region with the board b and a board that is linked to it.
func openRegion(t *testing.T) *region { return openRegionOn(start(t)) }

func openRegionOn(c *cluster) *region {
	t := c.t
	r := &region{cluster: c, store: embedded.Store(t), index: cachetest.NewShared(func() leaderboard.Index { return memory.New() }), scores: map[string]int{}}
	r.process = r.index.Process(nil)
	r.reader = ranking.New(r.store, r.process, ranking.Options{})
	for _, b := range []leaderboard.Board{{ID: "b", Policy: leaderboard.Sum}, {ID: "linked", Policy: leaderboard.Sum, Source: &leaderboard.Source{Board: "b"}}} {
		if _, err := r.reader.CreateBoard(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// next returns messages with the next n results of so many users.
func (r *region) next(n, users int) []*sarama.ProducerMessage {
	messages := r.results(r.sent, r.sent+n, users)
	for i := range n {
		r.scores[fmt.Sprint("u", (r.sent+i)%users)]++
	}
	r.sent += n
	return messages
}

func (r *region) waitCommitted() {
	r.t.Helper()
	eventually(r.t, "the results are committed", func() bool { return r.allCommitted() == r.sent })
}

func (r *region) waitForPositions() {
	r.t.Helper()
	eventually(r.t, "the position is the committed offset", func() bool { return r.positionsReach(r.committed()) })
}

type process struct {
	*member
	*gate
	index *cachetest.Process
}

func (r *region) start(cut bool) *process {
	x := r.index.Process(nil)
	x.SetCut(cut)
	p := &process{index: x, gate: newGate(ranking.New(r.store, x, ranking.Options{}), pass)}
	p.member = r.join(p.gate, consumer.Options{BatchResults: 20, SessionTimeout: 2 * time.Second}.WithLagPoll(20*time.Millisecond))
	return p
}

// ranks returns lines of a board, as "user score rank", sorted as text.
func (r *region) ranks(board leaderboard.BoardID) []string {
	r.t.Helper()
	page, err := r.reader.Page(r.t.Context(), ranking.PageQuery{Query: ranking.Query{Board: board}, Limit: 1000})
	if err != nil || page.Degraded {
		r.t.Fatalf("page of %s: degraded %v, %v", board, page.Degraded, err)
	}
	var lines []string
	for _, l := range page.Lines {
		lines = append(lines, fmt.Sprintf("%s %d %d", l.User, l.Score, l.Rank))
	}
	slices.Sort(lines)
	return lines
}

func recount(scores map[string]int) []string {
	var lines []string
	for user, score := range scores {
		rank := 1
		for _, other := range scores {
			if other > score {
				rank++
			}
		}
		lines = append(lines, fmt.Sprintf("%s %d %d", user, score, rank))
	}
	slices.Sort(lines)
	return lines
}

func (r *region) checkRanks() {
	r.t.Helper()
	for _, board := range []leaderboard.BoardID{"b", "linked"} {
		if diff := gocmp.Diff(recount(r.scores), r.ranks(board)); diff != "" {
			r.t.Errorf("ranks of %s (-want +got):\n%s", board, diff)
		}
	}
}

// A consumer commits offsets without the index. The next consumer brings the index up to date, but
// applies and publishes no result again.
func TestOffsetsDoNotWaitForTheIndex(t *testing.T) {
	onBoth(t, func(t *testing.T, c *cluster) { offsetsDoNotWaitForTheIndex(t, openRegionOn(c)) })
}

func offsetsDoNotWaitForTheIndex(t *testing.T, r *region) {
	first := r.start(false)
	r.send(r.next(40, 10)...)
	r.waitCommitted()
	r.checkRanks() // the reads fill the index
	r.waitForPositions()
	before := r.positionsOf()
	first.index.SetCut(true)
	r.send(r.next(33, 10)...)
	r.waitCommitted()
	eventually(t, "the index lacks the updates of 33 messages", func() bool { return first.member.count("index_lag_messages") == 33 })
	if lag := first.member.count("lag_messages"); lag != 0 {
		eventually(t, "no lag", func() bool { return first.member.count("lag_messages") == 0 })
	}
	if got := r.positionsOf(); got != before {
		t.Errorf("the positions moved to %v while the index is not synced, want %v as before", got, before)
	}
	first.stop()
	behind := map[string]int{}
	for _, m := range r.read(r.topics.Updates(), int(r.messagesIn(r.topics.Updates()))) {
		var u pb.LeaderboardUpdate
		if err := proto.Unmarshal(m.Value, &u); err != nil {
			t.Fatal(err)
		}
		if u.GetIndexBehind() {
			behind[u.GetBoardId()]++
		}
	}
	if behind["b"] != 33 || behind["linked"] == 0 {
		t.Errorf("updates with index_behind, by board: %v; want 33 of board b and some of the linked board", behind)
	}
	if diff := gocmp.Diff(recount(r.scores), r.ranks("b")); diff == "" {
		t.Error("the index has all updates, want missing updates, so that the next consumer has something to do")
	}
	updates := r.messagesIn(r.topics.Updates())
	second := r.start(false)
	r.waitForPositions()
	r.checkRanks()
	if n := second.gate.count(); n != 0 {
		t.Errorf("%d results were applied again, want 0", n)
	}
	if n := r.messagesIn(r.topics.Updates()); n != updates {
		t.Errorf("%d updates are published, want %d as before", n, updates)
	}
	r.send(r.next(7, 10)...)
	r.waitCommitted()
	r.checkRanks()
}

func TestAPositionBeforeTheLog(t *testing.T) {
	r := openRegion(t)
	r.leaveGap(r.next(40, 10), r.next(20, 10), "b", "linked")
	expired := map[int32]int64{}
	for p, offset := range r.committed() {
		expired[int32(p)] = offset
	}
	if err := r.admin.DeleteRecords(r.topics.Results(), expired); err != nil {
		t.Fatal(err)
	}
	r.start(false)
	r.waitForPositions()
	r.checkRanks()
}

// Consumers end or are cut off from the index at random, and messages expire. In the end, each rank
// equals the recount.
func TestPositionsInRandomHistories(t *testing.T) {
	r := openRegion(t)
	random := rand.New(rand.NewPCG(seed.New(t), 0))
	processes := []*process{r.start(false)}
	r.send(r.next(1+random.IntN(30), 23)...)
	r.waitCommitted()
	r.checkRanks()
	counts := map[string]int{}
	for range needs.More(t, 30) {
		i := random.IntN(len(processes))
		p := processes[i]
		switch step := random.IntN(10); {
		case step < 5:
			r.send(r.next(1+random.IntN(30), 23)...)
			if random.IntN(2) == 0 {
				r.waitCommitted()
			}
			counts["sends"]++
		case step == 5 && len(processes) < 3:
			processes = append(processes, r.start(random.IntN(3) == 0))
			counts["starts"]++
		case step == 6 && len(processes) > 1:
			p.stop() // now no process knows which updates the index lacks
			processes = slices.Delete(processes, i, i+1)
			counts["ends"]++
		case step == 7:
			p.index.SetCut(true)
			counts["cuts"]++
		case step == 8:
			p.index.SetCut(false)
			counts["reconnections"]++
		case step == 9 && random.IntN(4) == 0:
			expired := map[int32]int64{}
			for id, offset := range r.committed() {
				expired[int32(id)] = offset
			}
			if err := r.admin.DeleteRecords(r.topics.Results(), expired); err != nil {
				t.Fatal(err)
			}
			counts["expiries"]++
		}
		r.ranks("b") // the read fills the season if the index has lost it
	}
	t.Logf("%d results, steps %v", r.sent, slices.Sorted(maps.Keys(counts)))
	for _, p := range processes {
		p.stop()
	}
	r.start(false)
	r.waitCommitted()
	r.waitForPositions()
	r.checkRanks()
}
