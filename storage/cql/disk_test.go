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
)

// disk is a keyspace on a Cassandra of its own, which can be told to flush and
// to compact.
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
	for _, what := range []string{"flush", "compact"} {
		d.nodetool(t, append([]string{what, "--", d.keyspace}, ladderTables...)...)
	}
}

// ladderTables are those whose partitions grow with the users of a board.
var ladderTables = []string{"leaderboard", "user_entries"}

// sizes flushes and compacts the ladder tables, and returns the bytes that each has
// on disk.
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

// Partitions stay below 100 MB at 25 million users in the default number of
// buckets: what a user takes in each is measured, uncompressed, as that is what
// Cassandra goes by. LEADERBOARD_DISK_USERS sets how many users it is measured of.
func TestPartitionsStaySmall(t *testing.T) {
	const largest, users = 100e6, 25e6
	d := newDisk(t)
	for _, table := range ladderTables {
		d.exec(t, "ALTER TABLE "+table+" WITH compression = {'enabled': false}")
	}
	measured := envInt("LEADERBOARD_DISK_USERS", 4_000)
	for n, kind := range []struct {
		name    string
		board   leaderboard.Board
		result  func(r *leaderboard.MatchResult, user, i int)
		ladders float64 // in which each user has a row
		exceeds bool    // that takes more buckets
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
		{name: "the same, with revisions by a clock, and metadata of 200 bytes", ladders: 2, exceeds: true,
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
			s := open(session{d.session}, d.options)
			if err := s.CreateBoard(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			scope := leaderboard.Scope{Board: b.ID, Season: leaderboard.SeasonAll}
			ed, err := s.opened(t.Context(), &b, scope.Season)
			if err != nil {
				t.Fatal(err)
			}
			// Users have one to five results, so that timestamps differ, and then one
			// that is better. Entries are made and written as after reading those.
			place := func(better bool) {
				err := s.each(t.Context(), measured, func(ctx context.Context, user int) error {
					var tally leaderboard.Tally
					var version uint64
					key := userKey{Scope: scope, edition: ed.number}
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
					return s.place(ctx, &key, ed, &entry, &before, nil)
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			place(false)
			before := d.sizes(t)
			row, entry := before["leaderboard"]/float64(measured)/kind.ladders, before["user_entries"]/float64(measured)
			t.Logf("of %d users: %.1f bytes a row of leaderboard, %.1f of user_entries; with 25 million in %d buckets: %.0f MB and %.0f MB",
				measured, row, entry, defaultBuckets, row*users/defaultBuckets/1e6, entry*users/defaultBuckets/1e6)
			if size := max(row, entry) * users / defaultBuckets; size > largest != kind.exceeds {
				t.Errorf("a partition of %.0f MB", size/1e6)
			}
			place(true)
			after := d.sizes(t)
			t.Logf("once each user has improved: %.1f bytes more a row of leaderboard, %.1f of user_entries",
				(after["leaderboard"]-before["leaderboard"])/float64(measured)/kind.ladders, (after["user_entries"]-before["user_entries"])/float64(measured))
		})
	}
}

// uuidOf returns a number in the form of a UUID.
func uuidOf(n int) string {
	sum := userHash(leaderboard.UserID(fmt.Sprint(n)))
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

// traced is a session whose reads Cassandra keeps a trace of.
type traced struct {
	session
	mu    sync.Mutex
	reads [][]byte
}

func (s *traced) read(ctx context.Context, q op, dest []any, row func() bool) error {
	iter := s.Query(q.stmt, q.args...).WithContext(ctx).Trace(s).Iter()
	for iter.Scan(dest...) {
		if !row() {
			break
		}
	}
	return fault(ctx, "read", iter.Close())
}

// Trace is told of a read's trace.
func (s *traced) Trace(id []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads = append(s.reads, bytes.Clone(id))
}

var tombstonesRead = regexp.MustCompile(`^Read \d+ live rows and (\d+) tombstone cells`)

// tombstones returns how many were met by the reads since the last call.
func (s *traced) tombstones(t *testing.T) (all int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for _, id := range s.reads {
		// A trace is written some time after its read was answered. One of a statement
		// that is being prepared tells of no rows.
		var took *int
		for tries := 0; took == nil && tries < 300; tries++ {
			err := s.Query("SELECT duration FROM system_traces.sessions WHERE session_id = ?", id).Consistency(gocql.One).Scan(&took)
			if err != nil && !errors.Is(err, gocql.ErrNotFound) {
				t.Fatal(err)
			}
			<-tick.C
		}
		iter := s.Query("SELECT activity FROM system_traces.events WHERE session_id = ?", id).Consistency(gocql.One).Iter()
		for activity := ""; iter.Scan(&activity); {
			if m := tombstonesRead.FindStringSubmatch(activity); m != nil {
				n, _ := strconv.Atoi(m[1])
				all += n
			}
		}
		if err := iter.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s.reads = nil
	return all
}

// A user who improves 10,000 times leaves a tombstone each time, under the top,
// and whoever reads the top meets each of them once, in the first page. Once
// gc_grace_seconds have passed they go as the table is written to and flushed.
func TestTombstonesUnderTheTop(t *testing.T) {
	const users, improvements = 200, 10_000
	d := newDisk(t)
	ctx := t.Context()
	b := stepsBoard(leaderboard.Best)
	scope := leaderboard.Scope{Board: b.ID, Season: leaderboard.SeasonAll}
	writer, reader := open(session{d.session}, d.options), &traced{session: session{d.session}}
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
	// Each as the store writes it, many at a time: what orders them is their version.
	e, err := writer.editions.fresh(ctx, scope)
	if err != nil {
		t.Fatal(err)
	}
	key := &userKey{scope, e.number, "best"}
	best := func(n int) *leaderboard.Entry {
		return &leaderboard.Entry{Scope: scope, User: key.user, Key: b.ScorePrefix(leaderboard.Score(users+n), stepsEpoch), AchievedAt: stepsEpoch, Version: uint64(n + 1)}
	}
	err = writer.each(ctx, improvements, func(ctx context.Context, i int) error {
		return writer.place(ctx, key, e, best(i+1), best(i), nil)
	})
	if err != nil {
		t.Fatal(err)
	}

	// top reads it, and returns how many tombstones that met.
	top := func() int {
		t.Helper()
		s := open(reader, d.options)
		at := 0
		for e, err := range s.Entries(ctx, leaderboard.Ladder{Scope: scope}, "") {
			if err != nil {
				t.Fatal(err)
			}
			want := leaderboard.UserID("best")
			if at > 0 {
				want = leaderboard.UserID(fmt.Sprintf("user-%03d", users-at))
			}
			if e.User != want {
				t.Fatalf("place %d: %q, want %q", at+1, e.User, want)
			}
			if at++; at == 100 {
				break
			}
		}
		if at != 100 {
			t.Fatalf("the top has %d users", at)
		}
		return reader.tombstones(t)
	}
	for _, when := range []string{"written", "compacted within gc_grace_seconds"} {
		if n := top(); n != improvements {
			t.Errorf("%s: reading the top 100 met %d tombstones, want %d", when, n, improvements)
		}
		d.compact(t)
	}
	d.exec(t, "ALTER TABLE leaderboard WITH gc_grace_seconds = 1")
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
			t.Fatal("they do not go")
		}
	}
}
