package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/cache/memory"
	"github.com/open-leaderboard/leaderboard/consumer"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/producer"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

// indexServer has one shard of the shared index. It records its writes. A replica repeats these
// writes, but may lack the last ones.
type indexServer struct {
	name    string
	writes  []func(*indexServer)
	seasons map[leaderboard.SeasonKey]*serverSeason
}

// serverSeason is a loaded season on a server. writtenOn names the server that filled or confirmed the
// season. If the season is on another server, the season is in doubt.
type serverSeason struct {
	board     *leaderboard.Board
	entries   map[leaderboard.UserID]leaderboard.Entry
	writtenOn string
	positions map[string]int64
	sure      map[string]bool // the confirmed partitions
	session   int64           // the generation of the consumer group that confirmed them
}

func (s *serverSeason) put(e leaderboard.Entry) {
	if old, ok := s.entries[e.User]; !ok || e.Version > old.Version {
		s.entries[e.User] = e
	}
}

func newIndexServer(name string) *indexServer {
	return &indexServer{name: name, seasons: map[leaderboard.SeasonKey]*serverSeason{}}
}

func (s *indexServer) write(w func(*indexServer)) {
	s.writes = append(s.writes, w)
	w(s)
}

// servers is the index that all processes share. Each shard has one present server. Former servers still
// answer processes that have not noticed the change.
type servers struct {
	mu       sync.Mutex
	present  []*indexServer // by shard
	changes  int
	rebuilds int
	kept     []int // by shard: how many of the first writes every replica has
}

func newServers(shards int) *servers {
	s := &servers{kept: make([]int, shards)}
	for shard := range shards {
		s.present = append(s.present, newIndexServer(fmt.Sprintf("shard %d, server 0", shard)))
	}
	return s
}

// fail replaces the present server of a shard by a replica that lacks the last writes.
func (s *servers) fail(shard, lost int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes++
	replica, writes := newIndexServer(fmt.Sprintf("shard %d, server %d", shard, s.changes)), s.present[shard].writes
	for _, w := range writes[:max(s.kept[shard], len(writes)-lost)] {
		replica.write(w)
	}
	s.present[shard] = replica
}

// advanced reports whether no shard is in doubt, and each season's positions add up to at least sent,
// the number of sent messages.
func (s *servers) advanced(sent int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, server := range s.present {
		for _, season := range server.seasons {
			sum := int64(0)
			for _, offset := range season.positions {
				sum += offset
			}
			if season.writtenOn != server.name || sum < int64(sent) || len(season.positions) < partitions {
				return false
			}
		}
	}
	return true
}

// memberIndex is the index as one process sees it. It follows the rules of cache/redis/doubt.go.
type memberIndex struct {
	*servers
	server    []*indexServer // the server of each shard that the process uses
	writtenOn map[leaderboard.SeasonKey][]map[string]bool
	repeating map[leaderboard.SeasonKey]bool
	confirmed map[leaderboard.SeasonKey]string
}

func newMemberIndex(s *servers) *memberIndex {
	return &memberIndex{s, slices.Clone(s.present), map[leaderboard.SeasonKey][]map[string]bool{}, map[leaderboard.SeasonKey]bool{}, map[leaderboard.SeasonKey]string{}}
}

func (x *memberIndex) follow() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.server = slices.Clone(x.present)
}

// written returns the servers that made the process's updates of a season, by shard.
func (x *memberIndex) written(key leaderboard.SeasonKey) []map[string]bool {
	if x.writtenOn[key] == nil {
		for range x.server {
			x.writtenOn[key] = append(x.writtenOn[key], map[string]bool{})
		}
	}
	return x.writtenOn[key]
}

func (x *memberIndex) shardOf(e *leaderboard.Entry) int {
	return int(leaderboard.UserHash(e.User) % uint64(len(x.server)))
}

func (x *memberIndex) Update(_ context.Context, key leaderboard.SeasonKey, _ time.Time, entries []leaderboard.Entry) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range entries {
		shard := x.shardOf(&e)
		server := x.server[shard]
		if server.seasons[key] == nil {
			continue
		}
		x.written(key)[shard][server.name] = true
		server.write(func(s *indexServer) { s.seasons[key].put(e) })
	}
	return nil
}

func (x *memberIndex) Rebuild(_ context.Context, b *leaderboard.Board, key leaderboard.SeasonKey, _ time.Time, entries iter.Seq2[leaderboard.Entry, error]) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := make([][]leaderboard.Entry, len(x.server))
	for e, err := range entries {
		if err != nil {
			return err
		}
		shard := x.shardOf(&e)
		all[shard] = append(all[shard], e)
	}
	x.rebuilds++
	for shard, server := range x.server {
		server.write(func(s *indexServer) {
			season := &serverSeason{board: b, writtenOn: server.name, entries: map[leaderboard.UserID]leaderboard.Entry{}, positions: map[string]int64{}, sure: map[string]bool{}}
			for _, e := range all[shard] {
				season.put(e)
			}
			s.seasons[key] = season
		})
	}
	return nil
}

func (x *memberIndex) Restore(ctx context.Context, b *leaderboard.Board, key leaderboard.SeasonKey, at time.Time, scan func(leaderboard.Part) iter.Seq2[leaderboard.Entry, error]) error {
	return x.Rebuild(ctx, b, key, at, scan(leaderboard.Part{}))
}

func (x *memberIndex) Drop(_ context.Context, key leaderboard.SeasonKey) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, server := range x.server {
		server.write(func(s *indexServer) { delete(s.seasons, key) })
	}
	return nil
}

func (x *memberIndex) Advance(_ context.Context, positions []leaderboard.LogPosition, _ bool) (doubts []leaderboard.Doubt, _ error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for key := range x.server[0].seasons {
		if !slices.ContainsFunc(x.server, func(s *indexServer) bool { return s.seasons[key] == nil }) {
			if d := x.advance(key, positions); d != nil {
				doubts = append(doubts, *d)
			}
		}
	}
	return doubts, nil
}

// advance records the positions of a season in the shards that are not in doubt. It returns the
// doubt about the other shards, or nil.
func (x *memberIndex) advance(key leaderboard.SeasonKey, positions []leaderboard.LogPosition) *leaderboard.Doubt {
	d, same, gap := leaderboard.Doubt{SeasonKey: key, Server: x.names()}, !x.repeating[key], false
	for shard, server := range x.server {
		season, written := server.seasons[key], x.written(key)[shard]
		elsewhere := x.repeating[key] || len(written) > 1 || len(written) == 1 && !written[server.name]
		same = same && !elsewhere
		lacks := slices.ContainsFunc(positions, func(p leaderboard.LogPosition) bool {
			offset, ok := season.positions[p.Partition]
			return ok && offset < p.From
		})
		gap = gap || lacks
		if season.writtenOn == server.name && !elsewhere && !lacks {
			server.write(func(s *indexServer) {
				for _, p := range positions {
					s.seasons[key].positions[p.Partition] = max(s.seasons[key].positions[p.Partition], p.Offset)
				}
			})
			continue
		}
		found := slices.Clone(positions)
		for i := range found {
			offset, ok := season.positions[found[i].Partition]
			if found[i].Offset = offset; !ok {
				found[i].Offset = -1
			}
			if d.Positions != nil {
				found[i].Offset = min(found[i].Offset, d.Positions[i].Offset)
			}
		}
		d.Positions = found
	}
	if d.Positions == nil {
		return nil
	}
	if d.Confirmed = same && !gap && x.confirmed[key] == d.Server; !d.Confirmed {
		for shard, server := range x.server {
			x.written(key)[shard] = map[string]bool{server.name: true}
		}
		x.repeating[key] = true
	}
	return &d
}

func (x *memberIndex) names() (all string) {
	for _, s := range x.server {
		all += s.name + "\n"
	}
	return all
}

func (x *memberIndex) Confirm(_ context.Context, _ *leaderboard.Board, d leaderboard.Doubt, positions []leaderboard.LogPosition, session leaderboard.LogSession) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	for shard, server := range x.server {
		season := server.seasons[d.SeasonKey]
		if season == nil || x.names() != d.Server || len(x.written(d.SeasonKey)[shard]) > 1 {
			return nil
		}
	}
	counts := true
	for _, server := range x.server {
		season := server.seasons[d.SeasonKey]
		if season.writtenOn != server.name && session.Generation < season.session {
			counts = false
			continue
		}
		server.write(func(s *indexServer) {
			season := s.seasons[d.SeasonKey]
			if session.Generation > season.session {
				season.session, season.sure = session.Generation, map[string]bool{}
			}
			for _, p := range positions {
				season.positions[p.Partition] = max(season.positions[p.Partition], p.Offset)
				season.sure[p.Partition] = true
			}
			if len(season.sure) == session.Partitions {
				season.writtenOn, season.sure, season.session = server.name, map[string]bool{}, 0
			}
		})
	}
	if counts {
		x.repeating[d.SeasonKey], x.confirmed[d.SeasonKey] = false, d.Server
	}
	return nil
}

func (x *memberIndex) ranks(ctx context.Context, key leaderboard.SeasonKey) (*memory.Index, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, server := range x.server {
		if season := server.seasons[key]; season == nil || season.writtenOn != server.name {
			return nil, fmt.Errorf("memberIndex: %w", leaderboard.ErrRankUnavailable)
		}
	}
	index := memory.New()
	return index, index.Rebuild(ctx, x.server[0].seasons[key].board, key, time.Now(), func(yield func(leaderboard.Entry, error) bool) {
		for _, server := range x.server {
			for _, e := range server.seasons[key].entries {
				if !yield(e, nil) {
					return
				}
			}
		}
	})
}

func (x *memberIndex) Standings(ctx context.Context, l leaderboard.Ladder, users []leaderboard.UserID, methods ...leaderboard.Method) ([]leaderboard.Standing, leaderboard.View, error) {
	index, err := x.ranks(ctx, l.SeasonKey)
	if err != nil {
		return nil, leaderboard.View{}, err
	}
	return index.Standings(ctx, l, users, methods...)
}

func (x *memberIndex) Page(ctx context.Context, l leaderboard.Ladder, position int64, n int, methods ...leaderboard.Method) ([]leaderboard.Standing, leaderboard.View, error) {
	index, err := x.ranks(ctx, l.SeasonKey)
	if err != nil {
		return nil, leaderboard.View{}, err
	}
	return index.Page(ctx, l, position, n, methods...)
}

func (x *memberIndex) PageAfter(ctx context.Context, l leaderboard.Ladder, after leaderboard.SortKey, n int, methods ...leaderboard.Method) ([]leaderboard.Standing, leaderboard.View, error) {
	index, err := x.ranks(ctx, l.SeasonKey)
	if err != nil {
		return nil, leaderboard.View{}, err
	}
	return index.PageAfter(ctx, l, after, n, methods...)
}

func (x *memberIndex) Around(ctx context.Context, l leaderboard.Ladder, user leaderboard.UserID, above, below int, methods ...leaderboard.Method) (leaderboard.Neighborhood, leaderboard.View, error) {
	index, err := x.ranks(ctx, l.SeasonKey)
	if err != nil {
		return leaderboard.Neighborhood{}, leaderboard.View{}, err
	}
	return index.Around(ctx, l, user, above, below, methods...)
}

func (x *memberIndex) Count(ctx context.Context, l leaderboard.Ladder, keys []leaderboard.RankKey, methods ...leaderboard.Method) ([]leaderboard.Counts, leaderboard.View, error) {
	index, err := x.ranks(ctx, l.SeasonKey)
	if err != nil {
		return nil, leaderboard.View{}, err
	}
	return index.Count(ctx, l, keys, methods...)
}

func (x *memberIndex) Survey(ctx context.Context, l leaderboard.Ladder, q leaderboard.SurveyQuery, methods ...leaderboard.Method) (leaderboard.Survey, leaderboard.View, error) {
	index, err := x.ranks(ctx, l.SeasonKey)
	if err != nil {
		return leaderboard.Survey{}, leaderboard.View{}, err
	}
	return index.Survey(ctx, l, q, methods...)
}

func (x *memberIndex) Loaded(_ context.Context, key leaderboard.SeasonKey) (bool, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return !slices.ContainsFunc(x.server, func(s *indexServer) bool { return s.seasons[key] == nil }), nil
}

func (x *memberIndex) Fits(*leaderboard.Board, leaderboard.SeasonKey) bool { return true }

func (x *memberIndex) Synced(...leaderboard.SeasonKey) bool { return true }

func (x *memberIndex) Invalidate(key leaderboard.SeasonKey) { _ = x.Drop(context.Background(), key) }

func (x *memberIndex) Close() error { return nil }

// openServers returns a region (see position_test.go) whose index is on servers that can fail.
func openServers(t *testing.T, shards int) (*region, *servers, *memberIndex) {
	return openServersOn(start(t), shards)
}

func openServersOn(c *cluster, shards int) (*region, *servers, *memberIndex) {
	r := openRegionOn(c)
	all := newServers(shards)
	reader := newMemberIndex(all)
	r.reader = ranking.New(r.store, reader, ranking.Options{})
	return r, all, reader
}

// startOn runs a consumer on the servers that the process other uses. If other is nil, the consumer
// uses the present servers.
func (r *region) startOn(all *servers, other *memberIndex) (*member, *memberIndex) {
	all.mu.Lock()
	x := newMemberIndex(all)
	if other != nil {
		x.server = slices.Clone(other.server)
	}
	all.mu.Unlock()
	s := ranking.New(r.store, x, ranking.Options{})
	return r.join(s, consumer.Options{BatchResults: 20, SessionTimeout: 2 * time.Second}.WithAdvanceInterval(20*time.Millisecond)), x
}

func (r *region) isDegraded() bool {
	r.t.Helper()
	for _, board := range []leaderboard.BoardID{"b", "linked"} {
		page, err := r.reader.Page(r.t.Context(), ranking.PageQuery{Query: ranking.Query{Board: board}, Limit: 1})
		if err != nil || page.Degraded {
			return true
		}
	}
	return false
}

// Servers of the index fail, also twice in a row, and their replicas lack the last writes.
// Consumers start and end meanwhile, and notice new servers late. In the end, each rank equals the
// recount, and no season was filled twice.
func TestServersFailInRandomHistories(t *testing.T) {
	for _, shards := range []int{1, 3} {
		t.Run(fmt.Sprint("shards=", shards), func(t *testing.T) { serversFailInRandomHistories(t, shards) })
	}
}

func serversFailInRandomHistories(t *testing.T, shards int) {
	r, all, reader := openServers(t, shards)
	random := rand.New(rand.NewPCG(seed.New(t), 0))
	scores, sent := map[string]int{}, 0
	send := func() {
		n := 1 + random.IntN(30)
		r.send(r.results(sent, sent+n, 23)...)
		for i := sent; i < sent+n; i++ {
			scores[fmt.Sprint("u", i%23)]++
		}
		sent += n
	}
	type process struct {
		*member
		index *memberIndex
	}
	var processes []process
	start := func() {
		var other *memberIndex
		if len(processes) > 0 && random.IntN(2) == 0 {
			other = processes[random.IntN(len(processes))].index
		}
		m, x := r.startOn(all, other)
		processes = append(processes, process{m, x})
	}
	start()
	send()
	applied := func() bool { return r.allCommitted() == sent }
	eventually(t, "the results are committed", applied)
	r.checkRanks(scores) // fills the index
	advanced := func() bool { return all.advanced(sent) }
	eventually(t, "all positions are recorded", advanced)
	all.mu.Lock()
	for shard, server := range all.present {
		all.kept[shard] = len(server.writes)
	}
	all.mu.Unlock()
	counts := map[string]int{}
	for range 60 {
		switch step := random.IntN(10); {
		case step < 4:
			send()
			counts["sends"]++
		case step == 4 && len(processes) < 3:
			start()
			counts["starts"]++
		case step == 5 && len(processes) > 1:
			i := random.IntN(len(processes))
			processes[i].stop()
			processes = slices.Delete(processes, i, i+1)
			counts["ends"]++
		case step == 6:
			for _, p := range processes {
				if random.IntN(2) == 0 {
					p.index.follow()
				}
			}
		case step < 9:
			all.fail(random.IntN(shards), random.IntN(40))
			reader.follow()
			for _, p := range processes {
				if random.IntN(2) == 0 {
					p.index.follow()
				}
			}
			counts["failures"]++
		default:
			for _, p := range processes {
				p.index.follow()
			}
			eventually(t, "the results are committed", applied)
			eventually(t, "no season is in doubt", func() bool { return !r.isDegraded() })
			eventually(t, "all positions are recorded", advanced)
			r.checkRanks(scores)
			counts["checks"]++
		}
		if t.Failed() {
			break
		}
	}
	for _, p := range processes {
		p.index.follow()
	}
	eventually(t, "the results are committed", applied)
	eventually(t, "no season is in doubt", func() bool { return !r.isDegraded() })
	eventually(t, "all positions are recorded", advanced)
	r.checkRanks(scores)
	if all.rebuilds != 2 {
		t.Errorf("%d rebuilds, want 2: the first fill of each board", all.rebuilds)
	}
	t.Logf("%d results, %v", sent, counts)
}

// After a failover, a consumer joins, updates the former server, commits, and ends before it
// notices the failover. The next consumer repeats these updates.
func TestAConsumerOfTheFormerServer(t *testing.T) {
	r, all, reader := openServers(t, 1)
	former := newMemberIndex(all)
	first, index := r.startOn(all, nil)
	scores, sent := map[string]int{}, 0
	send := func(n int) {
		r.send(r.results(sent, sent+n, 23)...)
		for i := sent; i < sent+n; i++ {
			scores[fmt.Sprint("u", i%23)]++
		}
		sent += n
		eventually(t, "the results are committed", func() bool { return r.allCommitted() == sent })
	}
	advanced := func() bool { return all.advanced(sent) }
	send(100)
	r.checkRanks(scores) // fills the index
	eventually(t, "all positions are recorded", advanced)
	all.fail(0, 0)
	reader.follow()
	index.follow()
	eventually(t, "no season is in doubt", func() bool { return !r.isDegraded() })

	second, _ := r.startOn(all, former)
	first.stop()
	send(50)
	second.stop()
	r.startOn(all, nil)
	eventually(t, "all positions are recorded", advanced)
	r.checkRanks(scores)
	if all.rebuilds != 2 {
		t.Errorf("%d rebuilds, want 2: the first fill of each board", all.rebuilds)
	}
}

// A producer writes results in transactions. So each partition ends with a marker of a transaction.
// Consumers skip markers.
func TestDoubtsEndAfterTransactions(t *testing.T) {
	t.Run("in process", func(t *testing.T) { doubtsEndAfterTransactions(t, start(t)) })
	t.Run("Kafka", func(t *testing.T) { doubtsEndAfterTransactions(t, startReal(t)) })
}

func doubtsEndAfterTransactions(t *testing.T, c *cluster) {
	r, all, reader := openServersOn(c, 1)
	_, index := r.startOn(all, nil)
	cfg := kafka.Options{}.Config("transactions")
	cfg.Producer.Idempotent, cfg.Producer.Transaction.ID, cfg.Net.MaxOpenRequests = true, r.group(), 1
	cfg.Producer.RequiredAcks, cfg.Producer.Return.Successes = sarama.WaitForAll, true
	transactions, err := sarama.NewSyncProducer(r.brokers, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = transactions.Close() })
	scores, markers := map[string]int{}, 0
	send := func(from, to int) {
		t.Helper()
		if err := transactions.BeginTxn(); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(transactions.SendMessages(r.results(from, to, 10)), transactions.CommitTxn()); err != nil {
			t.Fatal(err)
		}
		for i := from; i < to; i++ {
			scores[fmt.Sprint("u", i%10)]++
		}
		eventually(t, "the results are committed", func() bool { return r.allCommitted() == to+markers })
		for _, offset := range r.committed() {
			if offset > 0 { // the transaction wrote a marker into the partition
				markers++
			}
		}
	}
	send(0, 50)
	r.checkRanks(scores) // fills the index
	all.mu.Lock()
	all.kept[0] = len(all.present[0].writes)
	all.mu.Unlock()
	send(50, 100)
	all.fail(0, 40)
	reader.follow()
	index.follow()
	eventually(t, "no season is in doubt", func() bool { return !r.isDegraded() })
	r.checkRanks(scores)
	if all.rebuilds != 2 {
		t.Errorf("%d rebuilds, want 2: the first fill of each board", all.rebuilds)
	}
}

// For a message with index_only, the consumer passes the stored entry to the index, also on a
// linked board. It publishes no update.
func TestNotedEntriesReachTheIndex(t *testing.T) {
	r := openRegion(t)
	r.start(false)
	r.send(r.results(0, 20, 10)...)
	scores := map[string]int{}
	for i := range 20 {
		scores[fmt.Sprint("u", i%10)]++
	}
	eventually(t, "the results are committed", func() bool { return r.allCommitted() == 20 })
	r.checkRanks(scores) // fills the index

	// A process with another index applies results, so this index lacks them.
	other := ranking.New(r.store, memory.New(), ranking.Options{})
	b := boardB(t, other)
	for user := range scores {
		result := leaderboard.MatchResult{
			ResultKey: leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Board: "b", Season: leaderboard.SeasonAll}, User: leaderboard.UserID(user), Match: "more"},
			Score:     5, AchievedAt: time.Now(), ReceivedAt: time.Now(),
		}
		if _, err := other.Apply(t.Context(), b, []leaderboard.MatchResult{result}); err != nil {
			t.Fatal(err)
		}
	}
	updates, journal := r.messagesIn(r.topics.Updates()), producer.NewJournal(r.Producer, r.topics)
	for user := range scores {
		for _, board := range []leaderboard.BoardID{"b", "linked"} {
			key := leaderboard.SeasonKey{Board: board, Season: leaderboard.SeasonAll}
			if err := journal.Note(t.Context(), key, []leaderboard.UserID{leaderboard.UserID(user)}); err != nil {
				t.Fatal(err)
			}
		}
		scores[user] += 5
	}
	eventually(t, "the messages are committed", func() bool { return r.allCommitted() == 40 })
	r.checkRanks(scores)
	if n := r.messagesIn(r.topics.Updates()); n != updates {
		t.Errorf("%d updates are published, want still %d", n, updates)
	}
	if n := r.messagesIn(r.topics.DeadLetters()); n != 0 {
		t.Errorf("%d dead letters, want 0", n)
	}
}
