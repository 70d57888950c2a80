package consumer_test

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/consumer"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/embedded"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

// positionsOf returns the stored position of each partition, or -1.
func (c *cluster) positionsOf() (all [partitions]int64) {
	c.t.Helper()
	got, err := c.admin.ListConsumerGroupOffsets(consumer.PositionGroup(c.group()), map[string][]int32{c.topics.Results(): {0, 1, 2, 3}})
	for p := range all {
		if all[p] = -1; err != nil { // kfake does not know the group before the first position
			continue
		}
		all[p] = got.GetBlock(c.topics.Results(), int32(p)).Offset
	}
	return all
}

// processIndex is the connection of one process to the shared index. If cut is true, calls fail, and
// failed gets the seasons of updates. Once cut is false again, invalidate drops these seasons.
type processIndex struct {
	leaderboard.Index
	mu     sync.Mutex
	cut    bool
	failed map[leaderboard.SeasonKey]bool // seasons with a missing update
}

func (x *processIndex) fails(key leaderboard.SeasonKey) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.cut || x.failed[key] {
		return fmt.Errorf("processIndex: %w", leaderboard.ErrRankUnavailable)
	}
	return nil
}

func (x *processIndex) setCut(cut bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.cut = cut
}

func (x *processIndex) invalidate(ctx context.Context) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.cut {
		return nil
	}
	for key := range x.failed {
		if err := x.Index.Drop(ctx, key); err != nil {
			return err
		}
	}
	clear(x.failed)
	return nil
}

func (x *processIndex) Synced(seasons ...leaderboard.SeasonKey) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(seasons) > 0 {
		return !slices.ContainsFunc(seasons, func(key leaderboard.SeasonKey) bool { return x.failed[key] })
	}
	return len(x.failed) == 0
}

func (x *processIndex) Update(ctx context.Context, key leaderboard.SeasonKey, at time.Time, entries []leaderboard.Entry) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.cut {
		x.failed[key] = true
		return fmt.Errorf("processIndex: %w", leaderboard.ErrRankUnavailable)
	}
	return x.Index.Update(ctx, key, at, entries)
}

func (x *processIndex) Loaded(ctx context.Context, key leaderboard.SeasonKey) (bool, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.cut {
		return false, fmt.Errorf("processIndex: %w", leaderboard.ErrRankUnavailable)
	}
	if x.failed[key] {
		return false, nil
	}
	return x.Index.Loaded(ctx, key)
}

func (x *processIndex) Drop(ctx context.Context, key leaderboard.SeasonKey) error {
	if err := x.fails(key); err != nil {
		return err
	}
	return x.Index.Drop(ctx, key)
}

func (x *processIndex) Rebuild(ctx context.Context, b *leaderboard.Board, key leaderboard.SeasonKey, at time.Time, entries iter.Seq2[leaderboard.Entry, error]) error {
	if err := x.fails(key); err != nil {
		return err
	}
	return x.Index.Rebuild(ctx, b, key, at, entries)
}

func (x *processIndex) Restore(ctx context.Context, b *leaderboard.Board, key leaderboard.SeasonKey, at time.Time, scan func(leaderboard.Part) iter.Seq2[leaderboard.Entry, error]) error {
	if err := x.fails(key); err != nil {
		return err
	}
	return x.Index.Restore(ctx, b, key, at, scan)
}

func (x *processIndex) Page(ctx context.Context, l leaderboard.Ladder, position int64, n int, methods ...leaderboard.Method) ([]leaderboard.Standing, leaderboard.View, error) {
	if err := x.fails(l.SeasonKey); err != nil {
		return nil, leaderboard.View{}, err
	}
	return x.Index.Page(ctx, l, position, n, methods...)
}

// region is a log, a store and an index, which all processes share.
type region struct {
	*cluster
	store  leaderboard.Store
	index  leaderboard.Index
	reader *ranking.Service // reads ranks
}

// openRegion returns a region with the board b and a board that is linked to it.
func openRegion(t *testing.T) *region { return openRegionOn(start(t)) }

func openRegionOn(c *cluster) *region {
	t := c.t
	store, index := embedded.Open(t)
	r := &region{cluster: c, store: store, index: index, reader: ranking.New(store, index, ranking.Options{})}
	for _, b := range []leaderboard.Board{{ID: "b", Policy: leaderboard.Sum}, {ID: "linked", Policy: leaderboard.Sum, Source: &leaderboard.Source{Board: "b"}}} {
		if _, err := r.reader.CreateBoard(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

type process struct {
	*member
	*gate
	index *processIndex
}

func (r *region) start(cut bool) *process {
	x := &processIndex{Index: r.index, cut: cut, failed: map[leaderboard.SeasonKey]bool{}}
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

func (r *region) checkRanks(scores map[string]int) {
	r.t.Helper()
	for _, board := range []leaderboard.BoardID{"b", "linked"} {
		if diff := gocmp.Diff(recount(scores), r.ranks(board)); diff != "" {
			r.t.Errorf("ranks of %s (-want +got):\n%s", board, diff)
		}
	}
}

// A consumer commits offsets without the index. The next consumer brings the index up to date, but
// applies and publishes no result again.
func TestOffsetsDoNotWaitForTheIndex(t *testing.T) {
	t.Run("in process", func(t *testing.T) { offsetsDoNotWaitForTheIndex(t, openRegion(t)) })
	t.Run("Kafka", func(t *testing.T) { offsetsDoNotWaitForTheIndex(t, openRegionOn(startReal(t))) })
}

func offsetsDoNotWaitForTheIndex(t *testing.T, r *region) {
	first := r.start(false)
	scores := map[string]int{}
	send := func(from, to int) {
		r.send(r.results(from, to, 10)...)
		for i := from; i < to; i++ {
			scores[fmt.Sprint("u", i%10)]++
		}
		eventually(t, "the results are committed", func() bool { return r.allCommitted() == to })
	}
	send(0, 40)
	r.checkRanks(scores) // the reads fill the index
	eventually(t, "the position is the committed offset", func() bool { return r.positionsOf() == r.committed() })
	before := r.positionsOf()
	first.index.setCut(true)
	send(40, 73)
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
	if diff := gocmp.Diff(recount(scores), r.ranks("b")); diff == "" {
		t.Error("the index has all updates, want missing updates, so that the next consumer has something to do")
	}
	updates := r.messagesIn(r.topics.Updates())
	second := r.start(false)
	eventually(t, "the position is the committed offset", func() bool { return r.positionsOf() == r.committed() })
	r.checkRanks(scores)
	if n := second.gate.count(); n != 0 {
		t.Errorf("%d results were applied again, want 0", n)
	}
	if n := r.messagesIn(r.topics.Updates()); n != updates {
		t.Errorf("%d updates are published, want %d as before", n, updates)
	}
	send(73, 80)
	r.checkRanks(scores)
}

func TestAPositionBeforeTheLog(t *testing.T) {
	r := openRegion(t)
	first := r.start(false)
	r.send(r.results(0, 40, 10)...)
	eventually(t, "the results are committed", func() bool { return r.allCommitted() == 40 && r.positionsOf() == r.committed() })
	r.ranks("b")
	r.ranks("linked")
	first.index.setCut(true)
	r.send(r.results(40, 60, 10)...)
	eventually(t, "the results are committed", func() bool { return r.allCommitted() == 60 })
	first.stop()
	expired := map[int32]int64{}
	for p, offset := range r.committed() {
		expired[int32(p)] = offset
	}
	if err := r.admin.DeleteRecords(r.topics.Results(), expired); err != nil {
		t.Fatal(err)
	}
	r.start(false)
	eventually(t, "the position is the committed offset", func() bool { return r.positionsOf() == r.committed() })
	scores := map[string]int{}
	for i := range 60 {
		scores[fmt.Sprint("u", i%10)]++
	}
	r.checkRanks(scores)
}

// Consumers end or are cut off from the index at random, and messages expire. In the end, each rank
// equals the recount.
func TestPositionsInRandomHistories(t *testing.T) {
	r := openRegion(t)
	random := rand.New(rand.NewPCG(seed.New(t), 0))
	scores, sent := map[string]int{}, 0
	processes := []*process{r.start(false)}
	send := func() {
		n := 1 + random.IntN(30)
		r.send(r.results(sent, sent+n, 23)...)
		for i := sent; i < sent+n; i++ {
			scores[fmt.Sprint("u", i%23)]++
		}
		sent += n
	}
	send()
	eventually(t, "the first results are committed", func() bool { return r.allCommitted() == sent })
	r.checkRanks(scores)
	counts := map[string]int{}
	for range 60 {
		i := random.IntN(len(processes))
		p := processes[i]
		switch step := random.IntN(10); {
		case step < 5:
			send()
			if random.IntN(2) == 0 {
				eventually(t, "the results are committed", func() bool { return r.allCommitted() == sent })
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
			p.index.setCut(true)
			counts["cuts"]++
		case step == 8:
			p.index.setCut(false)
			if err := p.index.invalidate(t.Context()); err != nil {
				t.Fatal(err)
			}
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
	t.Logf("%d results, steps %v", sent, slices.Sorted(maps.Keys(counts)))
	for _, p := range processes {
		p.stop()
	}
	r.start(false)
	eventually(t, "all results are committed, and the index lacks none", func() bool {
		return r.allCommitted() == sent && r.positionsOf() == r.committed()
	})
	r.checkRanks(scores)
}
