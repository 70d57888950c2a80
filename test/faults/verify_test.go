package faults

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/gocql/gocql"
	"github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard/test/deployment"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

// exitDifferences is what leaderboard verify exits with if differences remain, as
// its help says.
const exitDifferences = 3

// leaderboard verify finds each kind of difference between results, entries,
// rows and ranks, and mends it.
func TestVerifyMends(t *testing.T) {
	d := deployment.New(t, deployment.Options{})
	n := d.Serve(t)
	ledger := newLedger(t, n, "verify", seed.New(t))
	log := newLog(t, d.Kafka)
	for range 200 {
		must(t, log.send(d.TopicPrefix+"match-results", ledger.next()))
	}
	for r := ledger.rest(); r != nil; r = ledger.rest() {
		must(t, log.send(d.TopicPrefix+"match-results", r))
	}
	check(t, ledger, n)
	b := ledger.boards[1] // which has ladders of teams too
	p := newPlanter(t, d, b)
	for _, plant := range []struct {
		// kind is what verify tells, empty where the index sees for itself that
		// it is damaged, as soon as it is asked, and is made anew.
		name, kind string
		do         func(x, y row)
	}{
		{"an entry that is missing", "ENTRY_WRONG", p.deleteEntry},
		{"a user who is missing from the list of users", "ENTRY_WRONG", p.unlist},
		{"a user who is missing from the list of users and the ladder", "ENTRY_WRONG", func(x, y row) {
			p.unlist(x, y)
			p.deleteRow(x, y)
		}},
		{"a wrong score", "ENTRY_WRONG", p.wrongScore},
		{"a row that is missing", "ROW_MISSING", p.deleteRow},
		{"a row that a writer left which slept", "ROW_GHOST", p.ghost},
		{"a member of the index that was left", "INDEX_SIZE", p.staleMember},
		{"a user who is missing from the index", "INDEX_WRONG", p.deleteUser},
		{"a member of the index that is missing", "", p.deleteMember},
		{"a member of the index that is in another place", "", p.wrongMember},
	} {
		t.Run(plant.name, func(t *testing.T) {
			p.t = t
			x, y := p.two()
			plant.do(x, y)
			if plant.kind != "" {
				out, code := runVerify(t, n, b)
				if code != exitDifferences || !strings.Contains(out, plant.kind) {
					t.Errorf("verify exited with %d, and printed:\n%s", code, out)
				}
				out, code = runVerify(t, n, b, "--repair")
				if code != 0 || !strings.Contains(out, plant.kind) || !strings.Contains(out, "(mended)") {
					t.Errorf("verify --repair exited with %d, and printed:\n%s", code, out)
				}
			}
			out, code := runVerify(t, n, b)
			if code != 0 || !strings.Contains(out, ": 0 differences, 0 mended") {
				t.Errorf("verify after the repair exited with %d, and printed:\n%s", code, out)
			}
			eventually(t, func(ctx context.Context) error { return equalsRecount(ctx, n, ledger, false) })
		})
	}
	t.Run("all entries and ladders lost, and made anew from the results", func(t *testing.T) {
		p.t = t
		p.cql("TRUNCATE user_entries")
		p.cql("TRUNCATE leaderboard")
		out, err := n.Command(t, "rebuild").CombinedOutput()
		if err != nil {
			t.Fatalf("rebuild: %v\n%s", err, out)
		}
		eventually(t, func(ctx context.Context) error { return equalsRecount(ctx, n, ledger, false) })
		if out, code := runVerify(t, n, b); code != 0 {
			t.Errorf("verify exited with %d, and printed:\n%s", code, out)
		}
	})
}

// planter plants differences in a board, by the clients of Cassandra and Redis.
type planter struct {
	t       *testing.T
	session *gocql.Session
	redis   *redis.Client
	board   *board
	prefix  string // of the index's keys
	edition int
	buckets int
}

// row is a user's in the overall ladder.
type row struct {
	user     string
	bucket   int
	standing []byte
	written  int64 // its timestamp
}

func newPlanter(t *testing.T, d *deployment.Deployment, b *board) *planter {
	t.Helper()
	p := &planter{t: t, session: d.Session(t), board: b, redis: redis.NewClient(&redis.Options{Addr: d.Redis[0]}), prefix: d.RedisPrefix}
	t.Cleanup(func() { must(t, p.redis.Close()) })
	var edition *int
	must(t, p.session.Query("SELECT edition, buckets FROM seasons WHERE board = ? AND season = 'all'", b.id).Scan(&edition, &p.buckets))
	if edition != nil {
		p.edition = *edition
	}
	return p
}

// two returns the rows of two users in one bucket, with different scores.
func (p *planter) two() (x, y row) {
	p.t.Helper()
	for bucket := range p.buckets {
		var rows []row
		iter := p.session.Query("SELECT user_id, standing, WRITETIME(version) FROM leaderboard WHERE board = ? AND season = 'all' AND edition = ? AND division = '' AND bucket = ?",
			p.board.id, p.edition, bucket).Iter()
		for r := (row{bucket: bucket}); iter.Scan(&r.user, &r.standing, &r.written); r.standing = nil {
			rows = append(rows, r)
		}
		must(p.t, iter.Close())
		if len(rows) > 1 && string(rows[0].standing) != string(rows[len(rows)-1].standing) {
			return rows[0], rows[len(rows)-1]
		}
	}
	p.t.Fatal("no bucket has two users")
	return x, y
}

func (p *planter) cql(statement string, args ...any) {
	p.t.Helper()
	must(p.t, p.session.Query(statement, args...).Exec())
}

func (p *planter) deleteEntry(x, _ row) {
	p.cql("DELETE entry FROM user_entries USING TIMESTAMP ? WHERE board = ? AND season = 'all' AND edition = ? AND division = '' AND bucket = ? AND user_id = ?",
		x.written, p.board.id, p.edition, x.bucket, x.user)
}

func (p *planter) unlist(x, _ row) {
	p.cql("DELETE FROM user_entries USING TIMESTAMP ? WHERE board = ? AND season = 'all' AND edition = ? AND division = '' AND bucket = ? AND user_id = ?",
		x.written, p.board.id, p.edition, x.bucket, x.user)
}

func (p *planter) wrongScore(x, y row) {
	var entry []byte
	const key = "WHERE board = ? AND season = 'all' AND edition = ? AND division = '' AND bucket = ? AND user_id = ?"
	must(p.t, p.session.Query("SELECT entry FROM user_entries "+key, p.board.id, p.edition, y.bucket, y.user).Scan(&entry))
	p.cql("UPDATE user_entries USING TIMESTAMP ? SET entry = ? "+key, x.written+2, entry, p.board.id, p.edition, x.bucket, x.user)
}

func (p *planter) deleteRow(x, _ row) {
	p.cql("DELETE FROM leaderboard USING TIMESTAMP ? WHERE board = ? AND season = 'all' AND edition = ? AND division = '' AND bucket = ? AND standing = ? AND user_id = ?",
		x.written, p.board.id, p.edition, x.bucket, x.standing, x.user)
}

func (p *planter) ghost(x, y row) {
	p.cql("INSERT INTO leaderboard (board, season, edition, division, bucket, standing, user_id, version) VALUES (?, 'all', ?, '', ?, ?, ?, 1) USING TIMESTAMP ?",
		p.board.id, p.edition, x.bucket, y.standing, x.user, x.written)
}

// key returns the key of the index's overall ladder, or of its users.
func (p *planter) key(name string) string {
	p.t.Helper()
	keys, err := p.redis.Keys(p.t.Context(), fmt.Sprintf("%s{%s/all/0}:*:%s", p.prefix, p.board.id, name)).Result()
	must(p.t, err)
	if len(keys) != 1 {
		p.t.Fatalf("the index has the keys %q", keys)
	}
	return keys[0]
}

// member returns the user's sort key in the index.
func (p *planter) member(user string) string {
	p.t.Helper()
	all, err := p.redis.ZRange(p.t.Context(), p.key("z:"), 0, -1).Result()
	must(p.t, err)
	for _, m := range all {
		if strings.HasSuffix(m, user) {
			return m
		}
	}
	p.t.Fatalf("%s is not in the index", user)
	return ""
}

func (p *planter) deleteMember(x, _ row) {
	must(p.t, p.redis.ZRem(p.t.Context(), p.key("z:"), p.member(x.user)).Err())
}

// stale returns the sort key that x would have where y stands.
func (p *planter) stale(x, y row) string {
	return strings.TrimSuffix(p.member(y.user), y.user) + x.user
}

func (p *planter) staleMember(x, y row) {
	must(p.t, p.redis.ZAdd(p.t.Context(), p.key("z:"), redis.Z{Member: p.stale(x, y)}).Err())
}

func (p *planter) wrongMember(x, y row) {
	stale := p.stale(x, y)
	p.deleteMember(x, y)
	must(p.t, p.redis.ZAdd(p.t.Context(), p.key("z:"), redis.Z{Member: stale}).Err())
}

func (p *planter) deleteUser(x, y row) {
	p.deleteMember(x, y)
	must(p.t, p.redis.HDel(p.t.Context(), p.key("u"), x.user).Err())
}
