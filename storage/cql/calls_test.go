package cql

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"iter"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/engine"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

var update = flag.Bool("update", false, "write the golden files of this package")

type recorder struct {
	conn
	mu   sync.Mutex
	text strings.Builder
	cost cost
	// The partitions of all statements; not recorded if nil.
	partitions map[string]bool
}

type cost struct{ statements, rows, bytes int }

func (r *recorder) note(verb string, ops ...op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cost.statements++
	for i, o := range ops {
		if i > 0 {
			verb = "  and"
		}
		fmt.Fprintf(&r.text, "%-5s %s\n      %s\n", verb, o.stmt, renderArguments(o.args))
		r.cost.bytes += o.approxBytes()
		if r.partitions != nil {
			r.partitions[partitionOf(o)] = true
		}
	}
}

var uuids = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[A-Z2-7]{26}`)

func renderArguments(args []any) string {
	var out []string
	for _, a := range args {
		switch a := a.(type) {
		case []byte:
			out = append(out, fmt.Sprintf("0x%x", uuids.ReplaceAll(a, []byte("UUID"))))
		case string:
			out = append(out, uuids.ReplaceAllString(fmt.Sprintf("%q", a), "UUID"))
		default:
			out = append(out, uuids.ReplaceAllString(fmt.Sprint(a), "UUID"))
		}
	}
	return strings.Join(out, ", ")
}

func (r *recorder) read(ctx context.Context, q op, dest []any, row func() bool) error {
	r.note("read", q)
	return r.conn.read(ctx, q, dest, func() bool {
		r.mu.Lock()
		r.cost.rows++
		for _, d := range dest {
			switch d := d.(type) {
			case *[]byte:
				r.cost.bytes += len(*d)
			case *string:
				r.cost.bytes += len(*d)
			default:
				r.cost.bytes += 8
			}
		}
		r.mu.Unlock()
		return row()
	})
}

func (r *recorder) write(ctx context.Context, ops ...op) error {
	r.note("write", ops...)
	return r.conn.write(ctx, ops...)
}

func (r *recorder) swap(ctx context.Context, q op, row map[string]any) (bool, error) {
	r.note("swap", q)
	return r.conn.swap(ctx, q, row)
}

// The golden file has the statements of each call, with their timestamps. A timestamp from the
// machine's clock would differ in each run.
func TestCallsAreGolden(t *testing.T) {
	rec := &recorder{conn: newModel(nil)}
	s := openTest(rec, Options{DataCenter: "dc1", Buckets: 1, CacheUsers: 10})
	e := engine.New(s.Store)
	s.now = func() time.Time { return stepsEpoch }
	s.parallel = 1 // one statement at a time, so that the order of statements is fixed
	s.name = [8]byte{'s', 't', 'o', 'r', 'e'}
	w := &writers{user: "u", clock: stepsEpoch}
	b := stepsBoard(leaderboard.Best)
	w.board = &b
	ctx := t.Context()
	seasonKey := leaderboard.SeasonKey{Board: b.ID, Season: leaderboard.SeasonAll}
	red := leaderboard.Ladder{SeasonKey: seasonKey, Division: leaderboard.Division{Attribute: "team", Value: "red"}}
	read := func(seq func(func(leaderboard.Entry, error) bool)) (err error) {
		seq(func(_ leaderboard.Entry, e error) bool { err = e; return e == nil })
		return err
	}
	for _, call := range []struct {
		name string
		run  func() error
	}{
		{"CreateBoard", func() error { return s.CreateBoard(ctx, b) }},
		{"Apply of a season's first result", func() error { return w.apply(ctx, s, "m 5 red") }},
		{"Apply of a better result", func() error { return w.apply(ctx, s, "n 9 red") }},
		{"Apply of a better result in another division", func() error { return w.apply(ctx, s, "o 12 blue") }},
		{"Apply of a worse result", func() error { return w.apply(ctx, s, "p 1 blue") }},
		{"Apply of a retraction of the best result", func() error { return w.apply(ctx, s, "o r1 retracted") }},
		{"RemoveOrphanRows, after another process has written old rows", func() error {
			if err := w.writeOldRows(ctx, openTest(rec.conn, Options{DataCenter: "dc1"})); err != nil {
				return err
			}
			s.walk.last = bucket{}
			_, err := s.RemoveOrphanRows(ctx, time.Hour)
			return err
		}},
		{"Apply of a result out of bounds", func() error {
			r := w.result("q 1")
			r.Score = 1 << 60
			return w.send(ctx, s, []leaderboard.MatchResult{r})
		}},
		{"Entry", func() error { _, err := s.Entry(ctx, seasonKey, "u"); return err }},
		{"Entries", func() error { return read(s.Entries(ctx, leaderboard.Ladder{SeasonKey: seasonKey}, "")) }},
		{"Entries of a division, after a key", func() error {
			e, err := s.Entry(ctx, seasonKey, "u")
			if err != nil {
				return err
			}
			return read(s.Entries(ctx, red, e.SortKey()))
		}},
		{"Result", func() error { _, err := s.Result(ctx, w.result("m").ResultKey); return err }},
		{"Records after a match", func() error {
			for _, err := range s.Records(ctx, seasonKey, "u", "m") {
				if err != nil {
					return err
				}
			}
			return nil
		}},
		// A reservation is the right to submit one revision of a match result.
		{"Reserve", func() error {
			_, err := e.Reserve(ctx, leaderboard.Reservation{Key: w.result("m").ResultKey, Revision: 1, Holder: "a", At: stepsEpoch, Until: stepsEpoch})
			return err
		}},
		{"Reserve a reserved match", func() error {
			_, err := e.Reserve(ctx, leaderboard.Reservation{Key: w.result("m").ResultKey, Revision: 2, Holder: "b", At: stepsEpoch, Until: stepsEpoch})
			return err
		}},
		{"Reserve a match that another call holds", func() error {
			_, err := e.Reserve(ctx, leaderboard.Reservation{Key: w.result("m").ResultKey, Revision: 2, Holder: "c", At: stepsEpoch.Add(-time.Second), Until: stepsEpoch})
			return err
		}},
		{"SetBan", func() error {
			_, err := e.SetBan(ctx, leaderboard.Ban{User: "u", Banned: true, At: stepsEpoch})
			return err
		}},
		{"Recount of a correct entry", func() error { _, err := s.Recount(ctx, &b, seasonKey.Season, "u"); return err }},
		{"SetBan that lifts a ban", func() error { _, err := e.SetBan(ctx, leaderboard.Ban{User: "u"}); return err }},
		{"SetBan on the board, with an end", func() error {
			_, err := e.SetBan(ctx, leaderboard.Ban{User: "u", Board: b.ID, Banned: true, At: stepsEpoch, Until: stepsEpoch.AddDate(0, 0, 1)})
			return err
		}},
		{"UserBans", func() error { _, err := e.UserBans(ctx, "u"); return err }},
		{"Bans after a key", func() error {
			for _, err := range e.Bans(ctx, leaderboard.BanKey{User: "t"}) {
				return err
			}
			return nil
		}},
		{"BansEnding", func() error {
			for _, err := range e.BansEnding(ctx, stepsEpoch.AddDate(0, 0, 2)) {
				return err
			}
			return nil
		}},
		{"SetBan that lifts a ban on the board", func() error {
			_, err := e.SetBan(ctx, leaderboard.Ban{User: "u", Board: b.ID, At: stepsEpoch})
			return err
		}},
		{"Amend of a season that is not sealed", func() error {
			_, err := s.Amend(ctx, &b, seasonKey.Season, leaderboard.Amendment{At: stepsEpoch}, nil)
			if errors.Is(err, leaderboard.ErrNotSealed) {
				return nil
			}
			return err
		}},
		{"Seal", func() error {
			_, err := s.Seal(ctx, &b, seasonKey.Season, stepsEpoch)
			return err
		}},
		{"SeasonIDs", func() error { _, err := s.SeasonIDs(ctx, b.ID); return err }},
		{"FinalStandings", func() error { _, _, err := s.FinalStandings(ctx, red, 1, 10); return err }},
		{"Erase", func() error { _, err := e.Erase(ctx, "u", stepsEpoch); return err }},
		{"DeleteSeason", func() error { return s.DeleteSeason(ctx, seasonKey, time.Time{}) }},
		// A rank change is a change that an index may lack, such as an erasure.
		{"RankChanges and FinishRankChange of the first change", func() error {
			for c, err := range e.RankChanges(ctx) {
				if err == nil {
					err = e.FinishRankChange(ctx, c, func([]leaderboard.Entry) error { return nil })
				}
				return err
			}
			return errors.New("there is no change")
		}},
		{"FinishDeletions", func() error { return s.FinishDeletions(ctx) }},
		{"DeleteBoard", func() error { return s.DeleteBoard(ctx, b.ID, time.Time{}) }},
		{"AppendAct", func() error { return e.AppendAct(ctx, leaderboard.Act{ID: "a", At: stepsEpoch}) }},
		{"AppendAct of an act that concerns a user", func() error {
			return e.AppendAct(ctx, leaderboard.Act{ID: "b", At: stepsEpoch.Add(time.Second), ActDetail: leaderboard.ActDetail{User: "u"}})
		}},
		{"AppendAct of an act before an erasure of the user", func() error {
			return e.AppendAct(ctx, leaderboard.Act{ID: "c", At: stepsEpoch, ActDetail: leaderboard.ActDetail{User: "u"}})
		}},
		{"Acts", func() error { return last(e.Acts(ctx, leaderboard.ActKey{})) }},
		{"UserActs after an act", func() error { return last(e.UserActs(ctx, "u", leaderboard.ActKey{At: stepsEpoch, ID: "b"})) }},
		{"PutAPIKey", func() error { return e.PutAPIKey(ctx, leaderboard.APIKey{ID: "k", Hash: [32]byte{1}}) }},
		{"PutAPIKey again", func() error { return e.PutAPIKey(ctx, leaderboard.APIKey{ID: "k", Hash: [32]byte{1}}) }},
		{"PutAPIKey that replaces a key", func() error { return e.PutAPIKey(ctx, leaderboard.APIKey{ID: "k", Hash: [32]byte{2}}) }},
		{"APIKey", func() error { _, err := e.APIKey(ctx, [32]byte{2}); return err }},
		{"APIKeys", func() error { _, err := e.APIKeys(ctx); return err }},
		{"DeleteAPIKey", func() error { return e.DeleteAPIKey(ctx, "k") }},
		{"NoteAPIKeyUse", func() error { return e.NoteAPIKeyUse(ctx, "k", stepsEpoch) }},
		{"APIKeyUses", func() error { _, err := e.APIKeyUses(ctx); return err }},
		{"Apply of a first result on a board with matches", func() error {
			b.ID, b.Matches, w.user = "with-matches", true, "v"
			if err := s.CreateBoard(ctx, b); err != nil {
				return err
			}
			return w.apply(ctx, s, "m 5 red")
		}},
		{"Apply of a result of another match", func() error { return w.apply(ctx, s, "n 6 red") }},
		{"SetMatch", func() error {
			_, err := e.SetMatch(ctx, &b, leaderboard.MatchState{MatchKey: ofMatch(&b), Voids: 1})
			return err
		}},
		{"Apply of a result of a void match", func() error { return w.apply(ctx, s, "m 7 r1 red") }},
		{"Match", func() error { _, err := e.Match(ctx, ofMatch(&b)); return err }},
		{"MatchUsers", func() error {
			for _, err := range e.MatchUsers(ctx, ofMatch(&b)) {
				return err
			}
			return errors.New("the match has no user")
		}},
		{"ListMatches", func() error { return e.ListMatches(ctx, &b, leaderboard.SeasonAll, "v") }},
	} {
		fmt.Fprintf(&rec.text, "\n# %s\n", call.name)
		if err := call.run(); err != nil {
			t.Fatalf("%s: %v", call.name, err)
		}
	}
	golden(t, "calls.golden", rec.text.String())
}

func ofMatch(b *leaderboard.Board) leaderboard.MatchKey {
	return leaderboard.MatchKey{SeasonKey: leaderboard.SeasonKey{Board: b.ID, Season: leaderboard.SeasonAll}, Match: "m"}
}

func last(acts iter.Seq2[leaderboard.Act, error]) (err error) {
	for _, err = range acts {
	}
	return err
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); d != "" {
		t.Errorf("%s (-want +got); if the change is intended, run go test -run '^%s$' -update:\n%s", file, t.Name(), d)
	}
}

func TestCostIsFlat(t *testing.T) {
	for _, policy := range []leaderboard.Policy{leaderboard.Best, leaderboard.Sum} {
		t.Run(policy.String(), func(t *testing.T) {
			rec := &recorder{conn: newModel(nil)}
			s := openTest(rec, Options{DataCenter: "dc1", Buckets: 3, CacheUsers: 10})
			b := stepsBoard(policy)
			w := &writers{clock: stepsEpoch, board: &b}
			ctx := t.Context()
			if err := s.CreateBoard(ctx, b); err != nil {
				t.Fatal(err)
			}
			measure := func(user leaderboard.UserID, history int) map[string]cost {
				w.user = user
				var results []leaderboard.MatchResult
				for i := range history {
					results = append(results, w.result(fmt.Sprintf("m%d %d red", i, i%50)))
				}
				if err := w.send(ctx, s, results); err != nil {
					t.Fatal(err)
				}
				costs := map[string]cost{}
				for _, c := range []struct {
					name string
					run  func() error
				}{
					{"a better result", func() error { return w.apply(ctx, s, "better 100 red") }},
					{"a worse result", func() error { return w.apply(ctx, s, "worse 1 red") }},
					{"a result of another division", func() error { return w.apply(ctx, s, "moved 200 blue") }},
					{"two results", func() error { return w.apply(ctx, s, "x 1 red", "y 300 blue") }},
					{"Entry", func() error {
						_, err := s.Entry(ctx, leaderboard.SeasonKey{Board: b.ID, Season: leaderboard.SeasonAll}, user)
						return err
					}},
					{"Result", func() error { _, err := s.Result(ctx, w.result("worse").ResultKey); return err }},
				} {
					rec.cost = cost{}
					if err := c.run(); err != nil {
						t.Fatalf("%s: %v", c.name, err)
					}
					costs[c.name] = rec.cost
				}
				return costs
			}
			few, many := measure("few", 10), measure("many", 10_000)
			for name, f := range few {
				if m := many[name]; m.statements > 3*f.statements || m.rows > 3*f.rows || m.bytes > 3*f.bytes {
					t.Errorf("%s costs %+v with 10,000 results and %+v with 10, want at most three times as much", name, m, f)
				}
			}
		})
	}
}

// The store has no cached summary of the user.
func TestCostOfAForgottenUserIsFlat(t *testing.T) {
	needs.Slow(t, "sizes")
	for _, policy := range []leaderboard.Policy{leaderboard.Best, leaderboard.Sum} {
		t.Run(policy.String(), func(t *testing.T) {
			rec := &recorder{conn: newModel(nil)}
			restart := func(cacheUsers int) *testStore {
				return openTest(rec, Options{DataCenter: "dc1", Buckets: 3, CacheUsers: cacheUsers})
			}
			b := stepsBoard(policy)
			w := newRecordedWriters(t, rec, &b)
			ctx := t.Context()
			measure := func(user leaderboard.UserID, history int) map[string]cost {
				w.user = user
				var results []leaderboard.MatchResult
				for i := range history {
					results = append(results, w.result(fmt.Sprintf("m%d %d red", i, i%50)))
				}
				if err := w.send(ctx, restart(10), results); err != nil {
					t.Fatal(err)
				}
				uncached, costs := restart(-1), map[string]cost{}
				last := []leaderboard.MatchResult{w.result("first 100 red"), w.result("second 2 red")}
				for _, c := range []struct {
					name    string
					store   *testStore
					results []leaderboard.MatchResult
				}{
					{"two results by another process", restart(10), last},
					{"the same results by another process", restart(10), last},
					{"a worse result by another process", restart(10), []leaderboard.MatchResult{w.result("worse 1 red")}},
					{"a better result without a cache", uncached, []leaderboard.MatchResult{w.result("better 200 blue")}},
					{"another result without a cache", uncached, []leaderboard.MatchResult{w.result("other 300 red")}},
				} {
					if _, err := c.store.openIncarnation(ctx, &b, leaderboard.SeasonAll, nil); err != nil { // once per process
						t.Fatal(err)
					}
					rec.cost = cost{}
					if err := w.send(ctx, c.store, c.results); err != nil {
						t.Fatalf("%s: %v", c.name, err)
					}
					costs[c.name] = rec.cost
					if err := w.check(ctx); err != nil {
						t.Fatalf("%s: %v", c.name, err)
					}
				}
				return costs
			}
			few, many := measure("few", 10), measure("many", 10_000)
			for name, f := range few {
				m := many[name]
				t.Logf("%s: %+v with 10 results, %+v with 10,000", name, f, m)
				if m.statements > 2*f.statements || m.rows > 2*f.rows || m.bytes > 2*f.bytes {
					t.Errorf("%s costs %+v with 10,000 results and %+v with 10, want at most twice as much", name, m, f)
				}
			}
		})
	}
}

func newRecordedWriters(t *testing.T, rec *recorder, b *leaderboard.Board) *writers {
	t.Helper()
	w := &writers{clock: stepsEpoch, board: b, third: openTest(rec.conn, Options{DataCenter: "dc1", Buckets: 3, CacheUsers: -1})}
	if err := w.third.CreateBoard(t.Context(), *b); err != nil {
		t.Fatal(err)
	}
	return w
}

// Many duplicates arrive when a consumer reads its topic again from the beginning.
func TestDuplicateResultReadsNoHistory(t *testing.T) {
	rec := &recorder{conn: newModel(nil)}
	s := openTest(rec, Options{DataCenter: "dc1", Buckets: 3, CacheUsers: 10})
	b := stepsBoard(leaderboard.Sum)
	w := &writers{clock: stepsEpoch, board: &b, user: "u"}
	ctx := t.Context()
	if err := s.CreateBoard(ctx, b); err != nil {
		t.Fatal(err)
	}
	var results []leaderboard.MatchResult
	for i := range maxMatchSet {
		results = append(results, w.result(fmt.Sprintf("m%d %d red", i, i%50)))
	}
	if err := w.send(ctx, s, results); err != nil {
		t.Fatal(err)
	}
	rec.cost = cost{}
	report, err := s.Apply(ctx, &b, results[100:150])
	if err != nil {
		t.Fatal(err)
	}
	for i, o := range report.Outcomes {
		if o.Status != leaderboard.Duplicate || o.Entry.Results != int64(len(results)) {
			t.Errorf("the duplicate of result %d has status %v and an entry of %d results, want %v and %d results", i, o.Status, o.Entry.Results, leaderboard.Duplicate, len(results))
		}
	}
	if rec.cost.statements > 2 || rec.cost.rows > 2 {
		t.Errorf("50 duplicates cost %+v, want only the reads of the user's static cells and of the season's row", rec.cost)
	}
}

type slowBoards struct {
	conn
	reads atomic.Int64
}

func (c *slowBoards) read(ctx context.Context, q op, dest []any, row func() bool) error {
	if q.stmt == selectBoard {
		c.reads.Add(1)
		time.Sleep(time.Second)
	}
	return c.conn.read(ctx, q, dest, row)
}

func TestRecountsShareReadsOfTheBoard(t *testing.T) {
	needs.Race(t)
	synctest.Test(t, func(t *testing.T) {
		c := &slowBoards{conn: newModel(nil)}
		s := openTest(c, Options{DataCenter: "dc1", Buckets: 2, CacheUsers: 10})
		b := stepsBoard(leaderboard.Sum)
		ctx := t.Context()
		if err := s.CreateBoard(ctx, b); err != nil {
			t.Fatal(err)
		}
		const users = 100
		w := &writers{board: &b, clock: stepsEpoch}
		for i := range users {
			w.user = leaderboard.UserID(fmt.Sprint("u", i))
			if err := w.apply(ctx, s, "m 5"); err != nil {
				t.Fatal(err)
			}
		}
		c.reads.Store(0)
		var recounts errgroup.Group
		for i := range users {
			recounts.Go(func() error {
				_, err := s.Recount(ctx, &b, leaderboard.SeasonAll, leaderboard.UserID(fmt.Sprint("u", i)))
				return err
			})
		}
		if err := recounts.Wait(); err != nil {
			t.Fatal(err)
		}
		if n := c.reads.Load(); n > 5 {
			t.Errorf("%d recounts read the board %d times, want at most 5", users, n)
		}
	})
}

// Each Apply gets one result for each of tt.users users. The golden file has bounds of the statements
// per user, and the partitions per user. With fewer buckets, more users share a statement.
func TestStatementsAndPartitionsOfAResult(t *testing.T) {
	var text strings.Builder
	for _, tt := range []struct{ users, buckets int }{{1, defaultBuckets}, {100, 2}, {100, defaultBuckets}} {
		synctest.Test(t, func(t *testing.T) {
			rec := &recorder{conn: slowSession{newModel(nil)}, partitions: map[string]bool{}}
			s := openTest(rec, Options{DataCenter: "dc1", Buckets: tt.buckets, CacheUsers: 1000})
			b := stepsBoard(leaderboard.Best)
			ctx := t.Context()
			if err := s.CreateBoard(ctx, b); err != nil {
				t.Fatal(err)
			}
			if _, err := s.openIncarnation(ctx, &b, leaderboard.SeasonAll, nil); err != nil {
				t.Fatal(err)
			}
			w := &writers{clock: stepsEpoch, board: &b}
			for _, c := range []struct{ name, text string }{{"first", "m 5 red"}, {"better", "n 9 red"}} {
				var results []leaderboard.MatchResult
				for i := range tt.users {
					w.user = leaderboard.UserID(fmt.Sprint("u", i))
					results = append(results, w.result(c.text))
				}
				rec.cost = cost{}
				clear(rec.partitions)
				if err := w.send(ctx, s, results); err != nil {
					t.Fatal(err)
				}
				statements, partitions := float64(rec.cost.statements)/float64(tt.users), float64(len(rec.partitions))/float64(tt.users)
				t.Logf("%s result of %d users in %d buckets: %.2f statements and %.2f partitions per user", c.name, tt.users, tt.buckets, statements, partitions)
				bound := 2 * math.Ceil(statements/2) // the number differs slightly from run to run
				fmt.Fprintf(&text, "%s result of %d users in %d buckets: at most %.0f statements, and %.2f partitions per user\n", c.name, tt.users, tt.buckets, bound, partitions)
			}
		})
	}
	golden(t, "results.golden", text.String())
}

type slowSession struct{ conn }

func (c slowSession) read(ctx context.Context, q op, dest []any, row func() bool) error {
	time.Sleep(time.Millisecond)
	return c.conn.read(ctx, q, dest, row)
}

func (c slowSession) write(ctx context.Context, ops ...op) error {
	time.Sleep(time.Millisecond)
	return c.conn.write(ctx, ops...)
}

func partitionOf(o op) string {
	p, args, values := parse(o.stmt), arguments{o.args}, map[string]any{}
	if p.timestamp != "" && p.verb != "INSERT" {
		args.take(p.timestamp)
	}
	for i, column := range p.columns {
		if p.verb == "INSERT" {
			values[column] = args.take(p.values[i])
		} else if p.verb == "UPDATE" {
			for range strings.Count(p.values[i], "?") + strings.Count(p.values[i], "+") {
				args.take("?")
			}
		}
	}
	for _, w := range p.where {
		if w[0] != "" {
			values[w[0]] = args.take(w[1])
		}
	}
	var key []any
	for _, column := range partitionColumns[p.table] {
		key = append(key, values[column])
	}
	return p.table + keyText(key...)
}
