package consumer_test

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/cache/memory"
	"github.com/open-leaderboard/leaderboard/consumer"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/producer"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

// indexServer is a server of an index that several processes share. It records its writes, so that
// a replica can have the first of them only.
type indexServer struct {
	name    string
	index   *memory.Index
	writes  []func(*indexServer)
	seasons map[leaderboard.SeasonKey]*serverSeason
}

// serverSeason is a loaded season on a server. It is in doubt on any other server than writtenOn.
type serverSeason struct {
	writtenOn string
	positions map[string]int64
	sure      map[string]bool // the confirmed partitions
	session   int64           // of sure
}

func newIndexServer(name string) *indexServer {
	return &indexServer{name: name, index: memory.New(), seasons: map[leaderboard.SeasonKey]*serverSeason{}}
}

// write makes a write and records it.
func (s *indexServer) write(w func(*indexServer)) {
	s.writes = append(s.writes, w)
	w(s)
}

// servers is the index that all processes share. It has one present server. Former servers still
// answer processes that have not noticed the change.
type servers struct {
	mu       sync.Mutex
	present  *indexServer
	changes  int
	rebuilds int
	kept     int // the number of first writes that no replica lacks, such as the first rebuilds
}

// fail replaces the present server by a replica that lacks the last writes.
func (s *servers) fail(lost int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes++
	replica := newIndexServer(fmt.Sprint("server ", s.changes))
	for _, w := range s.present.writes[:max(s.kept, len(s.present.writes)-lost)] {
		replica.write(w)
	}
	s.present = replica
}

// memberIndex is the index as one process sees it. It follows the rules of cache/redis/doubt.go.
type memberIndex struct {
	*servers
	server    *indexServer // the server that the process uses
	writtenOn map[leaderboard.SeasonKey]map[string]bool
	repeating map[leaderboard.SeasonKey]bool
	confirmed map[leaderboard.SeasonKey]string
}

func newMemberIndex(s *servers) *memberIndex {
	return &memberIndex{s, s.present, map[leaderboard.SeasonKey]map[string]bool{}, map[leaderboard.SeasonKey]bool{}, map[leaderboard.SeasonKey]string{}}
}

// follow lets the process use the present server.
func (x *memberIndex) follow() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.server = x.present
}

func (x *memberIndex) Update(ctx context.Context, key leaderboard.SeasonKey, at time.Time, entries []leaderboard.Entry) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.server.seasons[key] == nil {
		return nil
	}
	if x.writtenOn[key] == nil {
		x.writtenOn[key] = map[string]bool{}
	}
	x.writtenOn[key][x.server.name] = true
	entries = slices.Clone(entries)
	x.server.write(func(s *indexServer) {
		if err := s.index.Update(context.WithoutCancel(ctx), key, at, entries); err != nil {
			panic(err)
		}
	})
	return nil
}

func (x *memberIndex) Rebuild(ctx context.Context, b *leaderboard.Board, key leaderboard.SeasonKey, at time.Time, entries iter.Seq2[leaderboard.Entry, error]) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	var all []leaderboard.Entry
	for e, err := range entries {
		if err != nil {
			return err
		}
		all = append(all, e)
	}
	x.rebuilds++
	name := x.server.name
	x.server.write(func(s *indexServer) {
		s.seasons[key] = &serverSeason{writtenOn: name, positions: map[string]int64{}, sure: map[string]bool{}}
		if err := s.index.Rebuild(context.WithoutCancel(ctx), b, key, at, func(yield func(leaderboard.Entry, error) bool) {
			for _, e := range all {
				if !yield(e, nil) {
					return
				}
			}
		}); err != nil {
			panic(err)
		}
	})
	return nil
}

func (x *memberIndex) Restore(ctx context.Context, b *leaderboard.Board, key leaderboard.SeasonKey, at time.Time, scan func(leaderboard.Part) iter.Seq2[leaderboard.Entry, error]) error {
	return x.Rebuild(ctx, b, key, at, scan(leaderboard.Part{}))
}

func (x *memberIndex) Drop(ctx context.Context, key leaderboard.SeasonKey) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.server.write(func(s *indexServer) {
		delete(s.seasons, key)
		if err := s.index.Drop(context.WithoutCancel(ctx), key); err != nil {
			panic(err)
		}
	})
	return nil
}

func (x *memberIndex) Advance(_ context.Context, positions []leaderboard.LogPosition) (doubts []leaderboard.Doubt, _ error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	server := x.server
	for key, season := range server.seasons {
		written := x.writtenOn[key]
		elsewhere := x.repeating[key] || len(written) > 1 || len(written) == 1 && !written[server.name]
		if season.writtenOn == server.name && !elsewhere {
			server.write(func(s *indexServer) {
				for _, p := range positions {
					s.seasons[key].positions[p.Partition] = max(s.seasons[key].positions[p.Partition], p.Offset)
				}
			})
			continue
		}
		d := leaderboard.Doubt{SeasonKey: key, Server: server.name, Positions: slices.Clone(positions), Confirmed: !elsewhere && x.confirmed[key] == server.name}
		for i := range d.Positions {
			if offset, ok := season.positions[d.Positions[i].Partition]; ok {
				d.Positions[i].Offset = offset
			} else {
				d.Positions[i].Offset = -1
			}
		}
		if !d.Confirmed {
			x.writtenOn[key], x.repeating[key] = map[string]bool{server.name: true}, true
		}
		doubts = append(doubts, d)
	}
	return doubts, nil
}

func (x *memberIndex) Confirm(_ context.Context, _ *leaderboard.Board, d leaderboard.Doubt, positions []leaderboard.LogPosition, session leaderboard.LogSession) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	season := x.server.seasons[d.SeasonKey]
	inDoubt := season != nil && season.writtenOn != d.Server
	switch {
	case season == nil, x.server.name != d.Server, len(x.writtenOn[d.SeasonKey]) > 1, inDoubt && session.Generation < season.session:
		return nil
	}
	x.repeating[d.SeasonKey], x.confirmed[d.SeasonKey] = false, d.Server
	x.server.write(func(s *indexServer) {
		season := s.seasons[d.SeasonKey]
		if session.Generation > season.session {
			season.session, season.sure = session.Generation, map[string]bool{}
		}
		for _, p := range positions {
			season.positions[p.Partition] = max(season.positions[p.Partition], p.Offset)
			season.sure[p.Partition] = true
		}
		if len(season.sure) == session.Partitions {
			season.writtenOn, season.sure, season.session = d.Server, map[string]bool{}, 0
		}
	})
	return nil
}

// ranks returns the index of the present server for a reader, or an error if the season is in doubt.
func (x *memberIndex) ranks(key leaderboard.SeasonKey) (*memory.Index, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if season := x.server.seasons[key]; season == nil || season.writtenOn != x.server.name {
		return nil, fmt.Errorf("memberIndex: %w", leaderboard.ErrRankUnavailable)
	}
	return x.server.index, nil
}

func (x *memberIndex) Standings(ctx context.Context, l leaderboard.Ladder, users []leaderboard.UserID, methods ...leaderboard.Method) ([]leaderboard.Standing, leaderboard.View, error) {
	index, err := x.ranks(l.SeasonKey)
	if err != nil {
		return nil, leaderboard.View{}, err
	}
	return index.Standings(ctx, l, users, methods...)
}

func (x *memberIndex) Page(ctx context.Context, l leaderboard.Ladder, position int64, n int, methods ...leaderboard.Method) ([]leaderboard.Standing, leaderboard.View, error) {
	index, err := x.ranks(l.SeasonKey)
	if err != nil {
		return nil, leaderboard.View{}, err
	}
	return index.Page(ctx, l, position, n, methods...)
}

func (x *memberIndex) PageAfter(ctx context.Context, l leaderboard.Ladder, after leaderboard.SortKey, n int, methods ...leaderboard.Method) ([]leaderboard.Standing, leaderboard.View, error) {
	index, err := x.ranks(l.SeasonKey)
	if err != nil {
		return nil, leaderboard.View{}, err
	}
	return index.PageAfter(ctx, l, after, n, methods...)
}

func (x *memberIndex) Around(ctx context.Context, l leaderboard.Ladder, user leaderboard.UserID, above, below int, methods ...leaderboard.Method) (leaderboard.Neighborhood, leaderboard.View, error) {
	index, err := x.ranks(l.SeasonKey)
	if err != nil {
		return leaderboard.Neighborhood{}, leaderboard.View{}, err
	}
	return index.Around(ctx, l, user, above, below, methods...)
}

func (x *memberIndex) Count(ctx context.Context, l leaderboard.Ladder, keys []leaderboard.RankKey, methods ...leaderboard.Method) ([]leaderboard.Counts, leaderboard.View, error) {
	index, err := x.ranks(l.SeasonKey)
	if err != nil {
		return nil, leaderboard.View{}, err
	}
	return index.Count(ctx, l, keys, methods...)
}

func (x *memberIndex) Survey(ctx context.Context, l leaderboard.Ladder, q leaderboard.SurveyQuery, methods ...leaderboard.Method) (leaderboard.Survey, leaderboard.View, error) {
	index, err := x.ranks(l.SeasonKey)
	if err != nil {
		return leaderboard.Survey{}, leaderboard.View{}, err
	}
	return index.Survey(ctx, l, q, methods...)
}

func (x *memberIndex) Loaded(_ context.Context, key leaderboard.SeasonKey) (bool, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.server.seasons[key] != nil, nil
}

func (x *memberIndex) Fits(*leaderboard.Board, leaderboard.SeasonKey) bool { return true }

func (x *memberIndex) Synced(...leaderboard.SeasonKey) bool { return true }

func (x *memberIndex) Invalidate(key leaderboard.SeasonKey) { _ = x.Drop(context.Background(), key) }

func (x *memberIndex) Close() error { return nil }

// openServers returns a region whose index is on servers that can fail.
func openServers(t *testing.T) (*region, *servers, *memberIndex) {
	r := openRegion(t)
	all := &servers{present: newIndexServer("server 0")}
	reader := newMemberIndex(all)
	r.reader = ranking.New(r.store, reader, ranking.Options{})
	return r, all, reader
}

// startOn runs a consumer that uses the present server.
func (r *region) startOn(all *servers) (*member, *memberIndex) {
	all.mu.Lock()
	x := newMemberIndex(all)
	all.mu.Unlock()
	s := ranking.New(r.store, x, ranking.Options{})
	return r.join(s, consumer.Options{BatchResults: 20, SessionTimeout: 2 * time.Second}.WithAdvanceInterval(20*time.Millisecond)), x
}

// isDegraded reports whether the ranks of any board are unavailable.
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

// Servers of the index fail, also twice in a row, and their replicas lack the last writes. Consumers
// start and end meanwhile, and notice the change late. In the end, each rank equals the
// recount, and no season was rebuilt.
func TestServersFailInRandomHistories(t *testing.T) {
	r, all, reader := openServers(t)
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
		m, x := r.startOn(all)
		processes = append(processes, process{m, x})
	}
	start()
	send()
	applied := func() bool { return r.allCommitted() == sent }
	eventually(t, "the results are committed", applied)
	r.checkRanks(scores) // fills the index
	advanced := func() bool {
		all.mu.Lock()
		defer all.mu.Unlock()
		for _, season := range all.present.seasons {
			sum := int64(0)
			for _, offset := range season.positions {
				sum += offset
			}
			if season.writtenOn != all.present.name || sum < int64(sent) || len(season.positions) < partitions {
				return false
			}
		}
		return true
	}
	eventually(t, "all positions are recorded", advanced)
	all.mu.Lock()
	all.kept = len(all.present.writes)
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
			all.fail(random.IntN(40))
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
		t.Errorf("%d rebuilds, want only the first two", all.rebuilds)
	}
	t.Logf("%d results, %v", sent, counts)
}

// A message with index_only passes the stored entry to the index, also on a linked board. It
// reports nothing.
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
		t.Errorf("%d updates are published, want %d as before", n, updates)
	}
	if n := r.messagesIn(r.topics.DeadLetters()); n != 0 {
		t.Errorf("%d dead letters, want 0", n)
	}
}
