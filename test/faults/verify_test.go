package faults

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/gocql/gocql"
	"github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard/test/deployment"
	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

// exitDifferences is the documented exit code of "leaderboard verify" if differences remain.
const exitDifferences = 3

func TestVerifyRepairs(t *testing.T) {
	needs.Slow(t, "faults")
	d := deployment.New(t, deployment.Options{})
	n := d.Serve(t)
	ledger := newLedger(t, n, "verify", seed.New(t))
	log := newResultWriter(t, d.Kafka)
	for range 200 {
		must(t, log.send(t.Context(), d.TopicPrefix+"match-results", ledger.next()))
	}
	for r := ledger.unsent(); r != nil; r = ledger.unsent() {
		must(t, log.send(t.Context(), d.TopicPrefix+"match-results", r))
	}
	check(t, ledger, n)
	b := ledger.boards[1] // it has team ladders too
	p := newPlanter(t, d, b)
	for _, plant := range []struct {
		// kind is the kind of difference that verify reports. If kind is empty, the index detects
		// the damage at the next read, and the service fills the index again.
		name, kind string
		damage     func(x, y row)
	}{
		{"entry is missing", "ENTRY_WRONG", p.deleteEntry},
		{"user is not registered", "ENTRY_WRONG", p.unregister},
		{"user is not registered and has no ladder row", "ENTRY_WRONG", func(x, y row) {
			p.unregister(x, y)
			p.deleteRow(x, y)
		}},
		{"score is wrong", "ENTRY_WRONG", p.wrongScore},
		{"ladder row is missing", "ROW_MISSING", p.deleteRow},
		{"user has an orphan row besides the ladder row", "ROW_GHOST", p.orphan},
		{"user has a stale member in the index besides the right one", "INDEX_SIZE", p.staleMember},
		{"user is missing from the index", "INDEX_WRONG", p.deleteUser},
		{"member is missing from the index", "", p.deleteMember},
		{"member of the index is at a wrong position", "", p.wrongMember},
	} {
		t.Run(plant.name, func(t *testing.T) {
			p.t = t
			x, y := p.twoRows()
			plant.damage(x, y)
			if plant.kind != "" {
				out, code := runVerify(t, n, b)
				if code != exitDifferences || !strings.Contains(out, plant.kind) {
					t.Errorf("verify exited with %d, want %d and %s; it printed:\n%s", code, exitDifferences, plant.kind, out)
				}
				out, code = runVerify(t, n, b, "--repair")
				if code != 0 || !strings.Contains(out, plant.kind) || !strings.Contains(out, "(repaired)") {
					t.Errorf("verify --repair exited with %d, want 0 and a repaired %s; it printed:\n%s", code, plant.kind, out)
				}
			}
			out, code := runVerify(t, n, b)
			if code != 0 || !strings.Contains(out, ": 0 differences, 0 repaired") {
				t.Errorf("verify after the repair exited with %d, want 0 and no differences; it printed:\n%s", code, out)
			}
			deployment.Eventually(t, func(ctx context.Context) error { return equalsRecount(ctx, n, ledger, false) })
		})
	}
	t.Run("rebuild restores all entries and ladders from the results", func(t *testing.T) {
		p.t = t
		p.cql("TRUNCATE user_entries")
		p.cql("TRUNCATE leaderboard")
		out, err := n.Command(t, "rebuild").CombinedOutput()
		if err != nil {
			t.Fatalf("rebuild: %v\n%s", err, out)
		}
		deployment.Eventually(t, func(ctx context.Context) error { return equalsRecount(ctx, n, ledger, false) })
		if out, code := runVerify(t, n, b); code != 0 {
			t.Errorf("verify after the rebuild exited with %d, want 0; it printed:\n%s", code, out)
		}
	})
}

// planter damages the stored data of a board.
type planter struct {
	t           *testing.T
	session     *gocql.Session
	redis       *redis.Client
	board       *board
	prefix      string // of the index's Redis keys
	incarnation int    // of the board's season
	buckets     int
}

type row struct {
	user     string
	bucket   int
	standing []byte
	written  int64 // the row's write timestamp
}

func newPlanter(t *testing.T, d *deployment.Deployment, b *board) *planter {
	t.Helper()
	p := &planter{t: t, session: d.Session(t), board: b, redis: redis.NewClient(&redis.Options{Addr: d.Redis[0]}), prefix: d.RedisPrefix}
	t.Cleanup(func() { must(t, p.redis.Close()) })
	var incarnation *int
	must(t, p.session.Query("SELECT incarnation, buckets FROM seasons WHERE board = ? AND season = 'all'", b.id).Scan(&incarnation, &p.buckets))
	if incarnation != nil {
		p.incarnation = *incarnation
	}
	return p
}

// twoRows returns rows of two users with different scores and the same bucket.
func (p *planter) twoRows() (x, y row) {
	p.t.Helper()
	for bucket := range p.buckets {
		var rows []row
		iter := p.session.Query("SELECT user_id, standing, WRITETIME(version) FROM leaderboard WHERE board = ? AND season = 'all' AND incarnation = ? AND division = '' AND bucket = ?",
			p.board.id, p.incarnation, bucket).Iter()
		for r := (row{bucket: bucket}); iter.Scan(&r.user, &r.standing, &r.written); r.standing = nil {
			rows = append(rows, r)
		}
		must(p.t, iter.Close())
		if len(rows) > 1 && string(rows[0].standing) != string(rows[len(rows)-1].standing) {
			return rows[0], rows[len(rows)-1]
		}
	}
	p.t.Fatal("no bucket has two users with different scores")
	return x, y
}

func (p *planter) cql(statement string, args ...any) {
	p.t.Helper()
	must(p.t, p.session.Query(statement, args...).Exec())
}

func (p *planter) deleteEntry(x, _ row) {
	p.cql("DELETE entry FROM user_entries USING TIMESTAMP ? WHERE board = ? AND season = 'all' AND incarnation = ? AND division = '' AND bucket = ? AND user_id = ?",
		x.written, p.board.id, p.incarnation, x.bucket, x.user)
}

// unregister deletes the user's row in the table that lists a season's users.
func (p *planter) unregister(x, _ row) {
	p.cql("DELETE FROM user_entries USING TIMESTAMP ? WHERE board = ? AND season = 'all' AND incarnation = ? AND division = '' AND bucket = ? AND user_id = ?",
		x.written, p.board.id, p.incarnation, x.bucket, x.user)
}

func (p *planter) wrongScore(x, y row) {
	var entry []byte
	const key = "WHERE board = ? AND season = 'all' AND incarnation = ? AND division = '' AND bucket = ? AND user_id = ?"
	must(p.t, p.session.Query("SELECT entry FROM user_entries "+key, p.board.id, p.incarnation, y.bucket, y.user).Scan(&entry))
	p.cql("UPDATE user_entries USING TIMESTAMP ? SET entry = ? "+key, x.written+2, entry, p.board.id, p.incarnation, x.bucket, x.user)
}

func (p *planter) deleteRow(x, _ row) {
	p.cql("DELETE FROM leaderboard USING TIMESTAMP ? WHERE board = ? AND season = 'all' AND incarnation = ? AND division = '' AND bucket = ? AND standing = ? AND user_id = ?",
		x.written, p.board.id, p.incarnation, x.bucket, x.standing, x.user)
}

// orphan adds a row of user x to the ladder, with the standing of row y.
func (p *planter) orphan(x, y row) {
	p.cql("INSERT INTO leaderboard (board, season, incarnation, division, bucket, standing, user_id, version) VALUES (?, 'all', ?, '', ?, ?, ?, 1) USING TIMESTAMP ?",
		p.board.id, p.incarnation, x.bucket, y.standing, x.user, x.written)
}

func (p *planter) keys(pattern string) []string {
	p.t.Helper()
	keys, err := p.redis.Keys(p.t.Context(), fmt.Sprintf("%s{%s/all/0}:*:%s", p.prefix, p.board.id, pattern)).Result()
	must(p.t, err)
	return keys
}

func (p *planter) ladder() string {
	p.t.Helper()
	keys := p.keys("0l*")
	if len(keys) != 1 {
		p.t.Fatalf("the overall ladder has the keys %q, want one", keys)
	}
	return keys[0]
}

func (p *planter) member(user string) string {
	p.t.Helper()
	all, err := p.redis.ZRange(p.t.Context(), p.ladder(), 0, -1).Result()
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
	must(p.t, p.redis.ZRem(p.t.Context(), p.ladder(), p.member(x.user)).Err())
}

// staleKey returns a sort key of user x, with the rank key and the time of user y.
func (p *planter) staleKey(x, y row) string {
	return strings.TrimSuffix(p.member(y.user), y.user) + x.user
}

func (p *planter) staleMember(x, y row) {
	must(p.t, p.redis.ZAdd(p.t.Context(), p.ladder(), redis.Z{Member: p.staleKey(x, y)}).Err())
}

func (p *planter) wrongMember(x, y row) {
	stale := p.staleKey(x, y)
	p.deleteMember(x, y)
	must(p.t, p.redis.ZAdd(p.t.Context(), p.ladder(), redis.Z{Member: stale}).Err())
}

func (p *planter) deleteUser(x, y row) {
	p.deleteMember(x, y)
	for _, bucket := range p.keys("u[0-9]*") {
		must(p.t, p.redis.HDel(p.t.Context(), bucket, x.user).Err())
	}
}
