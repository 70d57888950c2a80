package cql

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

// disk is a keyspace on a Cassandra node that only this test uses.
type disk struct {
	node     *cluster.Server
	keyspace string
	session  *gocql.Session
	options  Options
}

func newDisk(t *testing.T) *disk {
	t.Helper()
	c := cluster.Private(t, cluster.StartCassandra, cluster.CassandraConfig{Logf: t.Logf})
	d := &disk{node: c.Servers[0], keyspace: "disk", options: realOptions(c.Addrs(), "disk")}
	d.options.Buckets, d.options.CacheUsers = 1, defaultCacheUsers
	if err := ApplySchema(t.Context(), d.options, map[string]int{"dc1": 1}, nil); err != nil {
		t.Fatal(err)
	}
	var err error
	if d.session, err = d.options.connect(d.keyspace); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.session.Close)
	return d
}

func (d *disk) exec(t *testing.T, statement string) {
	t.Helper()
	if err := d.session.Query(statement).RetryPolicy(nil).Exec(); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func (d *disk) nodetool(t *testing.T, args ...string) string {
	t.Helper()
	out, err := cluster.Nodetool(t.Context(), d.node, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (d *disk) compact(t *testing.T) {
	t.Helper()
	for _, command := range []string{"flush", "compact"} {
		d.nodetool(t, append([]string{command, "--", d.keyspace}, ladderTables...)...)
	}
}

var ladderTables = []string{"leaderboard", "user_entries"}

func (d *disk) sizes(t *testing.T) map[string]float64 {
	t.Helper()
	d.compact(t)
	var stats map[string]json.RawMessage
	var keyspace struct {
		Tables map[string]struct {
			Live string `json:"space_used_live"`
		}
	}
	out := d.nodetool(t, "tablestats", "-F", "json", d.keyspace)
	if err := json.Unmarshal([]byte(out[strings.Index(out, "{"):]), &stats); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := json.Unmarshal(stats[d.keyspace], &keyspace); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	sizes := map[string]float64{}
	for _, table := range ladderTables {
		bytes, err := strconv.ParseFloat(keyspace.Tables[table].Live, 64)
		if err != nil || bytes == 0 {
			t.Fatalf("size of %s: %v: %s", table, err, out)
		}
		sizes[table] = bytes
	}
	return sizes
}

// With 25 million users, partitions must stay below 100 MB, except for large entries. The
// test writes LEADERBOARD_DISK_USERS users, and computes the sizes. It disables
// compression, because Cassandra's limit is for uncompressed bytes.
func TestDiskPartitionsStaySmall(t *testing.T) {
	needs.Slow(t, "sizes")
	const maxBytes, users = 100e6, 25e6
	d := newDisk(t)
	for _, table := range ladderTables {
		d.exec(t, "ALTER TABLE "+table+" WITH compression = {'enabled': false}")
	}
	written := envInt("LEADERBOARD_DISK_USERS", 4_000)
	for n, kind := range []struct {
		name    string
		board   leaderboard.Board
		result  func(r *leaderboard.MatchResult, user, i int)
		ladders float64 // the number of ladders in which each user has a row
		exceeds bool    // the larger partition has more than 100 MB
	}{
		{name: "ids of 16 bytes", ladders: 1, result: func(r *leaderboard.MatchResult, user, i int) {
			r.User, r.Match = leaderboard.UserID(fmt.Sprintf("user-%011d", user)), leaderboard.MatchID(fmt.Sprintf("match-%010d", i))
		}},
		{name: "ids of 36 bytes, two tie-breakers, a division", ladders: 2,
			board: leaderboard.Board{Divisions: []string{"country"}, TieBreakers: []leaderboard.TieBreaker{{Name: "wins"}, {Name: "kills"}}},
			result: func(r *leaderboard.MatchResult, user, i int) {
				r.User, r.Match = leaderboard.UserID(uuidOf(user)), leaderboard.MatchID(uuidOf(-i))
				r.TieBreakers, r.Attributes = []int64{int64(user % 50), int64(user % 9)}, map[string]string{"country": "KEN"}
			}},
		{name: "ids of 36 bytes, two tie-breakers, a division, clock times as revisions, 200 bytes of metadata", ladders: 2, exceeds: true,
			board: leaderboard.Board{Divisions: []string{"country"}, TieBreakers: []leaderboard.TieBreaker{{Name: "wins"}, {Name: "kills"}}},
			result: func(r *leaderboard.MatchResult, user, i int) {
				r.User, r.Match = leaderboard.UserID(uuidOf(user)), leaderboard.MatchID(uuidOf(-i))
				r.TieBreakers, r.Attributes = []int64{int64(user % 50), int64(user % 9)}, map[string]string{"country": "KEN"}
				r.Revision = stepsEpoch.UnixMilli() + int64(user*7+i)
				r.Metadata = fmt.Sprintf(`{"n":"%0192d"}`, user)
			}},
	} {
		t.Run(kind.name, func(t *testing.T) {
			for _, table := range ladderTables {
				d.exec(t, "TRUNCATE "+table)
			}
			b := kind.board
			b.ID, b.CreatedAt = leaderboard.BoardID(fmt.Sprint("disk-", n)), stepsEpoch
			s := openTest(session{d.session}, d.options)
			if err := s.CreateBoard(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			seasonKey := leaderboard.SeasonKey{Board: b.ID, Season: leaderboard.SeasonAll}
			inc, err := s.openIncarnation(t.Context(), &b, seasonKey.Season, nil)
			if err != nil {
				t.Fatal(err)
			}
			// Each user first has one to five results, and later a better one. So versions
			// and write timestamps differ.
			place := func(better bool) {
				err := s.forEach(t.Context(), written, func(ctx context.Context, user int) error {
					var tally leaderboard.Tally
					var version uint64
					key := userKey{SeasonKey: seasonKey, incarnation: inc.number}
					entry, before := leaderboard.Entry{}, leaderboard.Entry{}
					for i := range 2 + user%5 {
						if i == 1+user%5 && !better {
							break
						}
						at := stepsEpoch.Add(time.Duration(user*1000+i) * time.Millisecond)
						r := leaderboard.MatchResult{Score: leaderboard.Score(1000*i + user*31%100_003), AchievedAt: at, ReceivedAt: at}
						r.Board, r.Season = b.ID, leaderboard.SeasonAll
						kind.result(&r, user, i)
						tally = b.Merge(leaderboard.Known{Tally: tally}, r).Tally
						version += uint64(r.Revision) + 1
						key.user = r.User
						entry, before = key.entry(&b, &tally, &account{}, version), entry
					}
					if !better {
						before = leaderboard.Entry{}
					}
					return s.place(ctx, &key, inc, &statics{}, &entry, &before, nil)
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			place(false)
			before := d.sizes(t)
			row, entry := before["leaderboard"]/float64(written)/kind.ladders, before["user_entries"]/float64(written)
			t.Logf("%d users: %.1f bytes per row of leaderboard, %.1f per row of user_entries; partitions of 25 million users in %d buckets: %.0f MB and %.0f MB",
				written, row, entry, defaultBuckets, row*users/defaultBuckets/1e6, entry*users/defaultBuckets/1e6)
			if size := max(row, entry) * users / defaultBuckets; size > maxBytes != kind.exceeds {
				t.Errorf("the larger partition has %.0f MB, more than the limit of %.0f MB: %v, want %v", size/1e6, maxBytes/1e6, size > maxBytes, kind.exceeds)
			}
			place(true)
			after := d.sizes(t)
			t.Logf("after one improvement per user: %.1f bytes more per row of leaderboard, %.1f per row of user_entries",
				(after["leaderboard"]-before["leaderboard"])/float64(written)/kind.ladders, (after["user_entries"]-before["user_entries"])/float64(written))
		})
	}
}

func uuidOf(n int) string {
	sum := userHash(leaderboard.UserID(fmt.Sprint(n)))
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

type tracedSession struct {
	session
	mu    sync.Mutex
	reads [][]byte
}

func (s *tracedSession) read(ctx context.Context, q op, dest []any, row func() bool) error {
	iter := s.Query(q.stmt, q.args...).WithContext(ctx).Trace(s).Iter()
	for iter.Scan(dest...) {
		if !row() {
			break
		}
	}
	return wrapError(ctx, "read", iter.Close())
}

func (s *tracedSession) Trace(id []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads = append(s.reads, bytes.Clone(id))
}

var tombstonesRead = regexp.MustCompile(`^Read \d+ live rows and (\d+) tombstone cells`)

func (s *tracedSession) tombstones(t *testing.T) (total int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for _, id := range s.reads {
		// Cassandra writes a trace some time after the answer.
		var duration *int
		for tries := 0; duration == nil && tries < 300; tries++ {
			err := s.Query("SELECT duration FROM system_traces.sessions WHERE session_id = ?", id).Consistency(gocql.One).Scan(&duration)
			if err != nil && !errors.Is(err, gocql.ErrNotFound) {
				t.Fatal(err)
			}
			<-tick.C
		}
		iter := s.Query("SELECT activity FROM system_traces.events WHERE session_id = ?", id).Consistency(gocql.One).Iter()
		for activity := ""; iter.Scan(&activity); {
			if m := tombstonesRead.FindStringSubmatch(activity); m != nil {
				n, _ := strconv.Atoi(m[1])
				total += n
			}
		}
		if err := iter.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s.reads = nil
	return total
}

// Each improvement of user "best" leaves a tombstone below the user's row. A read of the
// top scans each tombstone once. After gc_grace_seconds, compactions remove the tombstones.
func TestDiskTombstonesBelowTheTopExpire(t *testing.T) {
	needs.Slow(t, "sizes")
	const users, improvements = 200, 10_000
	d := newDisk(t)
	ctx := t.Context()
	b := stepsBoard(leaderboard.Best)
	seasonKey := leaderboard.SeasonKey{Board: b.ID, Season: leaderboard.SeasonAll}
	writer, reader := openTest(session{d.session}, d.options), &tracedSession{session: session{d.session}}
	if err := writer.CreateBoard(ctx, b); err != nil {
		t.Fatal(err)
	}
	w := &writers{clock: stepsEpoch, board: &b}
	apply := func(user, result string) {
		t.Helper()
		w.user = leaderboard.UserID(user)
		if err := w.apply(ctx, writer, result); err != nil {
			t.Fatal(err)
		}
	}
	for i := range users {
		apply(fmt.Sprintf("user-%03d", i), fmt.Sprintf("m %d", i))
	}
	// The calls of place can run concurrently, because timestamps order their writes.
	inc, err := writer.incarnations.readAgain(ctx, seasonKey)
	if err != nil {
		t.Fatal(err)
	}
	key := &userKey{seasonKey, inc.number, "best"}
	best := func(n int) *leaderboard.Entry {
		return &leaderboard.Entry{SeasonKey: seasonKey, User: key.user, Key: b.ScorePrefix(leaderboard.Score(users+n), stepsEpoch), AchievedAt: stepsEpoch, Version: uint64(n + 1)}
	}
	err = writer.forEach(ctx, improvements, func(ctx context.Context, i int) error {
		return writer.place(ctx, key, inc, &statics{}, best(i+1), best(i), nil)
	})
	if err != nil {
		t.Fatal(err)
	}

	top := func() int {
		t.Helper()
		s := openTest(reader, d.options)
		position := 0
		for e, err := range s.Entries(ctx, leaderboard.Ladder{SeasonKey: seasonKey}, "") {
			if err != nil {
				t.Fatal(err)
			}
			want := leaderboard.UserID("best")
			if position > 0 {
				want = leaderboard.UserID(fmt.Sprintf("user-%03d", users-position))
			}
			if e.User != want {
				t.Fatalf("position %d has user %q, want %q", position+1, e.User, want)
			}
			if position++; position == 100 {
				break
			}
		}
		if position != 100 {
			t.Fatalf("Entries yields %d users, want 100", position)
		}
		return reader.tombstones(t)
	}
	for _, state := range []string{"after the writes", "after a compaction within gc_grace_seconds"} {
		if n := top(); n != improvements {
			t.Errorf("%s: reading the top 100 scanned %d tombstones, want %d", state, n, improvements)
		}
		d.compact(t)
	}
	d.exec(t, "ALTER TABLE leaderboard WITH gc_grace_seconds = 1")
	// Each round writes to the table, so that Cassandra has a new file to compact.
	const rounds = 10
	for round := 1; ; round++ {
		apply("user-000", fmt.Sprintf("m%d 1", round))
		d.nodetool(t, "flush", "--", d.keyspace, "leaderboard")
		n := top()
		t.Logf("after gc_grace_seconds, flushed %d times: %d tombstones", round, n)
		if n <= rounds {
			break
		}
		if round == rounds {
			t.Fatalf("%d tombstones are left after %d rounds, want at most %d", n, rounds, rounds)
		}
	}
}
