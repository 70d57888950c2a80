package cql

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

// A steppedSession waits for the test before each statement of a call that walk has started.
type steppedSession struct {
	conn
	mu      sync.Mutex
	walking bool      // true while a call that walk has started is running
	arrived chan bool // receives true before each statement, and false when the call has returned
	turn    chan bool // the test sends true to continue; false means that the process dies
	// tear receives the write during which the process dies. If it is nil, the process dies before
	// the write.
	tear func([]op)
}

var errDied = errors.New("the process died")

func newSteps(c conn) *steppedSession {
	return &steppedSession{conn: c, arrived: make(chan bool), turn: make(chan bool)}
}

func (s *steppedSession) step() error {
	s.mu.Lock()
	walking := s.walking
	s.mu.Unlock()
	if !walking {
		return nil
	}
	s.arrived <- true
	if !<-s.turn {
		return errDied
	}
	return nil
}

// If few is true, the store stores and adopts summaries of users with any number of
// matches, otherwise of users with at least storedFrom matches.
func openWith(c conn, dataCenter string, few, cached bool) *testStore {
	o := Options{DataCenter: dataCenter, Buckets: 2, CacheUsers: 10}
	if !cached {
		o.CacheUsers = -1
	}
	s := openTest(c, o)
	s.parallel = 1 // one statement at a time, so that the order of statements is fixed
	if few {
		s.headRows, s.storedFrom = 1, 1
	}
	return s
}

func (s *steppedSession) read(ctx context.Context, q op, dest []any, row func() bool) error {
	if err := s.step(); err != nil {
		return err
	}
	return s.conn.read(ctx, q, dest, row)
}

func (s *steppedSession) write(ctx context.Context, ops ...op) error {
	if err := s.step(); err != nil {
		if s.tear != nil {
			s.tear(ops)
		}
		return err
	}
	return s.conn.write(ctx, ops...)
}

func (s *steppedSession) swap(ctx context.Context, q op, row map[string]any) (bool, error) {
	if err := s.step(); err != nil {
		return false, err
	}
	return s.conn.swap(ctx, q, row)
}

// walk starts a call, which waits before each statement. step runs up to n statements and reports
// whether the call has more. die makes all further statements fail.
func (s *steppedSession) walk(call func()) (step func(n int) (more bool), die func()) {
	s.mu.Lock()
	s.walking = true
	s.mu.Unlock()
	go func() {
		call()
		s.mu.Lock()
		s.walking = false
		s.mu.Unlock()
		s.arrived <- false
	}()
	more := <-s.arrived
	return func(n int) bool {
			for ; more && n > 0; n-- {
				s.turn <- true
				more = <-s.arrived
			}
			return more
		}, func() {
			for more {
				s.turn <- false
				more = <-s.arrived
			}
		}
}

// A schedule has the numbers of statements that two writers run in turns. After the last
// turn, the first writer runs to its end, and then the second.
type schedule []int

func (s schedule) run(first, second func(int) bool) {
	turns := []func(int) bool{first, second}
	for i, n := range s {
		turns[i%2](n)
	}
	for _, turn := range turns {
		for turn(1000) {
		}
	}
}

func schedules(turns, n int) []schedule {
	all := []schedule{{}}
	for range turns {
		var longer []schedule
		for _, s := range all {
			for k := range n {
				longer = append(longer, append(slices.Clone(s), k+1))
			}
		}
		all = longer
	}
	return all
}

// writers has two stores, each like a process, and a third store that checks the outcome.
type writers struct {
	conns  [2]*steppedSession
	stores [2]*testStore
	third  *testStore
	board  *leaderboard.Board
	user   leaderboard.UserID
	clock  time.Time

	mu      sync.Mutex
	updates []leaderboard.Entry
}

// notify records the entries that an index would receive.
func (w *writers) notify(entries ...leaderboard.Entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range entries {
		if e.User == w.user {
			w.updates = append(w.updates, e)
		}
	}
}

func (w *writers) notifyChanges(changes []leaderboard.Change) {
	for i := range changes {
		w.notify(changes[i].After)
	}
}

// An index keeps an entry with the highest version. This entry must equal the stored entry.
func (w *writers) checkIndex(ctx context.Context) error {
	stored, err := w.third.Entry(ctx, leaderboard.SeasonKey{Board: w.board.ID, Season: leaderboard.SeasonAll}, w.user)
	if err != nil && !errors.Is(err, leaderboard.ErrEntryNotFound) {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	last, ranked := uint64(0), false
	for _, e := range w.updates {
		last = max(last, e.Version)
	}
	for _, e := range w.updates {
		if e.Version < last {
			continue
		}
		ranked = e.Key != ""
		e.Version = stored.Version // the stored version may have grown without another change of the entry
		if d := cmp.Diff(stored, e, cmpopts.EquateEmpty()); (stored.Key != "" || ranked) && d != "" {
			return fmt.Errorf("the index has another entry, with version %d (-stored +index):\n%s", last, d)
		}
	}
	if stored.Key != "" && !ranked {
		return fmt.Errorf("the stored entry %+v was not sent to the index, want it sent", stored)
	}
	return nil
}

func newWriters(t testing.TB, connect func() conn, b leaderboard.Board, user leaderboard.UserID) *writers {
	t.Helper()
	w := &writers{user: user, clock: b.CreatedAt, board: &b}
	for i := range w.stores {
		w.conns[i] = newSteps(connect())
		w.stores[i] = openWith(w.conns[i], "dc1", false, true)
	}
	w.third = openTest(connect(), Options{DataCenter: "dc1", Buckets: 2, CacheUsers: -1})
	if err := w.third.CreateBoard(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	return w
}

var stepsEpoch = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

func stepsBoard(policy leaderboard.Policy) leaderboard.Board {
	return leaderboard.Board{ID: "b", Policy: policy, CreatedAt: stepsEpoch, Divisions: []string{"team"}}
}

// The text has the match id, and optionally the score, the revision, the team, and "retracted": "m
// 5", "m 5 r1", "m 5 red", "m r2 retracted".
func (w *writers) result(text string) leaderboard.MatchResult {
	w.clock = w.clock.Add(time.Second)
	r := leaderboard.MatchResult{AchievedAt: w.clock, ReceivedAt: w.clock}
	r.Board, r.Season, r.User = w.board.ID, leaderboard.SeasonAll, w.user
	words := strings.Fields(text)
	r.Match = leaderboard.MatchID(words[0])
	for _, word := range words[1:] {
		n := 0
		switch {
		case word == "retracted":
			r.Retracted = true
		case scan(word, "r%d", &n):
			r.Revision = int64(n)
		case scan(word, "%d", &n):
			r.Score = leaderboard.Score(n)
		default:
			r.Attributes = map[string]string{"team": word, "club": word}
		}
	}
	return r
}

func scan(word, format string, n *int) bool {
	_, err := fmt.Sscanf(word, format, n)
	return err == nil
}

func (w *writers) apply(ctx context.Context, store *testStore, results ...string) error {
	var list []leaderboard.MatchResult
	for _, r := range results {
		list = append(list, w.result(r))
	}
	return w.send(ctx, store, list)
}

func (w *writers) send(ctx context.Context, store *testStore, list []leaderboard.MatchResult) error {
	report, err := store.Apply(ctx, w.board, list)
	for _, o := range report.Outcomes {
		err = errors.Join(err, o.Err)
		w.notify(o.Entry)
	}
	w.notifyChanges(report.Changes)
	return err
}

func (w *writers) vary(variant int) {
	for i := range w.stores {
		w.stores[i] = openWith(w.conns[i], "dc1", variant&1 != 0, variant>>(1+i)&1 != 0)
	}
}

func (w *writers) check(ctx context.Context) error {
	s := leaderboard.SeasonKey{Board: w.board.ID, Season: leaderboard.SeasonAll}
	b, err := w.third.Board(ctx, w.board.ID) // its divisions may have changed
	if err != nil {
		return err
	}
	tally, err := b.Count(w.third.Results(ctx, s, w.user))
	if err != nil {
		return err
	}
	if err := w.checkVoids(ctx); err != nil {
		return err
	}
	want := b.Entry(&tally, s.Season, w.user)
	got, err := w.third.Entry(ctx, s, w.user)
	if err != nil && !errors.Is(err, leaderboard.ErrEntryNotFound) {
		return err
	}
	if errors.Is(err, leaderboard.ErrEntryNotFound) {
		got = leaderboard.Entry{SeasonKey: s, User: w.user}
	}
	acc, err := w.third.readAccount(ctx, w.user, w.board)
	if err != nil {
		return err
	}
	want.Version, want.Hidden = got.Version, acc.Hidden && want.Key != ""
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
		return fmt.Errorf("the entry does not follow from the results (-want +got):\n%s", d)
	}
	for _, division := range []string{"", "team:red", "team:blue", "club:red", "club:blue"} {
		l := leaderboard.Ladder{SeasonKey: s}
		if l.Division, err = leaderboard.ParseDivision(division); err != nil {
			return err
		}
		n := 0
		for e, err := range w.third.Entries(ctx, l, "") {
			if err != nil {
				return err
			}
			if e.User == w.user {
				n++
			}
		}
		wantRows := 0
		if want.Ranked() && (division == "" || slices.Contains(want.Divisions, l.Division)) {
			wantRows = 1
		}
		if n != wantRows {
			return fmt.Errorf("the ladder %q yields the user %d times, want %d", division, n, wantRows)
		}
	}
	return nil
}

func (w *writers) checkVoids(ctx context.Context) error {
	s := leaderboard.SeasonKey{Board: w.board.ID, Season: leaderboard.SeasonAll}
	for r, err := range w.third.Results(ctx, s, w.user) {
		if err != nil {
			return err
		}
		state, err := w.third.Match(ctx, leaderboard.MatchKey{SeasonKey: s, Match: r.Match})
		if err != nil {
			return err
		}
		if r.Voids != state.Voids {
			return fmt.Errorf("the result of match %q has Voids %d, want %d", r.Match, r.Voids, state.Voids)
		}
	}
	return nil
}

type encounter struct {
	name    string
	policy  leaderboard.Policy
	prepare func(ctx context.Context, w *writers) error
	calls   [2]func(ctx context.Context, w *writers, s *testStore) error
	// The score of each match after both calls; nil if the scores depend on the order of
	// the calls.
	stands map[leaderboard.MatchID]leaderboard.Score
}

func (e *encounter) board() leaderboard.Board {
	b := stepsBoard(e.policy)
	b.Matches = slices.ContainsFunc(voidEncounters, func(v encounter) bool { return v.name == e.name })
	return b
}

func applies(results ...string) func(context.Context, *writers, *testStore) error {
	return func(ctx context.Context, w *writers, s *testStore) error { return w.apply(ctx, s, results...) }
}

// After firstApplies, the first store has the claim and a summary of the user: see summary.go.
func firstApplies(results ...string) func(context.Context, *writers) error {
	return func(ctx context.Context, w *writers) error { return w.apply(ctx, w.stores[0], results...) }
}

// firstAppliesAfterOldRows also writes rows that match no entry, as a slow writer would.
func firstAppliesAfterOldRows(results ...string) func(context.Context, *writers) error {
	return func(ctx context.Context, w *writers) error {
		return errors.Join(w.apply(ctx, w.stores[0], results...), w.writeOldRows(ctx, w.third))
	}
}

func (w *writers) writeOldRows(ctx context.Context, s *testStore) error {
	key := userKey{leaderboard.SeasonKey{Board: w.board.ID, Season: leaderboard.SeasonAll}, 0, w.user}
	inc, err := s.readIncarnation(ctx, key.SeasonKey)
	e := leaderboard.Entry{Key: w.board.ScorePrefix(300, stepsEpoch), AchievedAt: stepsEpoch, User: w.user}
	for _, division := range []string{"", "team:blue"} {
		err = errors.Join(err, s.conn.write(ctx, op{insertRow, append(key.ladderArgs(inc, division), standingColumn(&e), string(w.user), int64(1), insertTime(1))}))
	}
	return err
}

func removesOrphans(ctx context.Context, _ *writers, s *testStore) error {
	_, err := removeOrphans(ctx, s)
	return err
}

var encounters = []encounter{
	{"two new results", leaderboard.Sum, firstApplies("m 1"),
		[2]func(context.Context, *writers, *testStore) error{applies("x 10"), applies("y 100")},
		map[leaderboard.MatchID]leaderboard.Score{"m": 1, "x": 10, "y": 100}},
	{"a user's first results", leaderboard.Sum, func(context.Context, *writers) error { return nil },
		[2]func(context.Context, *writers, *testStore) error{applies("x 10 red"), applies("y 100 blue")},
		map[leaderboard.MatchID]leaderboard.Score{"x": 10, "y": 100}},
	{"one result is better than the best one, the other is not", leaderboard.Best, firstApplies("m 5 red"),
		[2]func(context.Context, *writers, *testStore) error{applies("x 50 blue"), applies("y 3")},
		map[leaderboard.MatchID]leaderboard.Score{"m": 5, "x": 50, "y": 3}},
	{"both results are better than the best one", leaderboard.Best, firstApplies("m 5 red"),
		[2]func(context.Context, *writers, *testStore) error{applies("x 50 blue"), applies("y 60 red")},
		map[leaderboard.MatchID]leaderboard.Score{"m": 5, "x": 50, "y": 60}},
	{"two payloads of one revision", leaderboard.Sum, firstApplies("m 1"),
		[2]func(context.Context, *writers, *testStore) error{applies("x 10"), applies("x 20")},
		map[leaderboard.MatchID]leaderboard.Score{"m": 1, "x": 20}},
	{"two payloads of one revision, the greater one first", leaderboard.Best, firstApplies("m 1"),
		[2]func(context.Context, *writers, *testStore) error{applies("x 20"), applies("x 10")},
		map[leaderboard.MatchID]leaderboard.Score{"m": 1, "x": 20}},
	{"a result and its correction", leaderboard.Sum, firstApplies("m 1"),
		[2]func(context.Context, *writers, *testStore) error{applies("x 10"), applies("x 4 r1")},
		map[leaderboard.MatchID]leaderboard.Score{"m": 1, "x": 4}},
	{"a result and the retraction of the best result", leaderboard.Best, firstApplies("m 5", "n 50 red"),
		[2]func(context.Context, *writers, *testStore) error{applies("x 20"), applies("n r1 retracted")},
		map[leaderboard.MatchID]leaderboard.Score{"m": 5, "x": 20}},
	{"a retraction, and a correction that keeps the score", leaderboard.Best, func(ctx context.Context, w *writers) error {
		return errors.Join(w.apply(ctx, w.stores[0], "m 5"), w.apply(ctx, w.stores[1], "n 50"))
	}, [2]func(context.Context, *writers, *testStore) error{applies("n r1 retracted"), applies("m 5 r1")},
		map[leaderboard.MatchID]leaderboard.Score{"m": 5}},
	{"both stores have a summary and assume that they hold the claim", leaderboard.Sum, func(ctx context.Context, w *writers) error {
		return errors.Join(w.apply(ctx, w.stores[0], "m 1"), w.apply(ctx, w.stores[1], "n 2"))
	}, [2]func(context.Context, *writers, *testStore) error{applies("x 10"), applies("y 100")},
		map[leaderboard.MatchID]leaderboard.Score{"m": 1, "n": 2, "x": 10, "y": 100}},
	{"two calls of one store, and one call of the other", leaderboard.Sum, firstApplies("m 1"),
		[2]func(context.Context, *writers, *testStore) error{func(ctx context.Context, w *writers, s *testStore) error {
			return errors.Join(w.apply(ctx, s, "x 10"), w.apply(ctx, s, "z 1000"))
		}, applies("y 100")},
		map[leaderboard.MatchID]leaderboard.Score{"m": 1, "x": 10, "y": 100, "z": 1000}},
	{"the same result twice", leaderboard.Sum, firstApplies("m 1"),
		[2]func(context.Context, *writers, *testStore) error{applySame, applySame},
		map[leaderboard.MatchID]leaderboard.Score{"m": 1, "same": 10}},
	{"a user's first result twice", leaderboard.Sum, func(context.Context, *writers) error { return nil },
		[2]func(context.Context, *writers, *testStore) error{applySame, applySame},
		map[leaderboard.MatchID]leaderboard.Score{"same": 10}},
	{"a result and a ban", leaderboard.Best, firstApplies("m 5 red"),
		[2]func(context.Context, *writers, *testStore) error{applies("x 50 blue"), ban}, nil},
	{"a ban and a user's first result", leaderboard.Best, func(context.Context, *writers) error { return nil },
		[2]func(context.Context, *writers, *testStore) error{applies("x 50 blue"), ban}, nil},
	{"a result and a recount", leaderboard.Best, firstApplies("m 5 red"),
		[2]func(context.Context, *writers, *testStore) error{applies("x 50 blue"), recount}, nil},
	{"a recount and a user's first result", leaderboard.Best, func(context.Context, *writers) error { return nil },
		[2]func(context.Context, *writers, *testStore) error{applies("x 50 blue"), recount}, nil},
	{"a result and the removal of orphan rows", leaderboard.Best, firstAppliesAfterOldRows("m 5 red", "n 4 blue"),
		[2]func(context.Context, *writers, *testStore) error{applies("x 50 blue"), removesOrphans},
		map[leaderboard.MatchID]leaderboard.Score{"m": 5, "n": 4, "x": 50}},
	{"a user's first result and the removal of orphan rows", leaderboard.Best, func(context.Context, *writers) error { return nil },
		[2]func(context.Context, *writers, *testStore) error{applies("x 50 blue"), removesOrphans}, map[leaderboard.MatchID]leaderboard.Score{"x": 50}},
	{"an erasure and the removal of orphan rows", leaderboard.Best, firstAppliesAfterOldRows("m 5 red", "n 4 blue"),
		[2]func(context.Context, *writers, *testStore) error{erase, removesOrphans}, noResults},
	{"a retraction of the best result and the removal of orphan rows", leaderboard.Best, firstAppliesAfterOldRows("m 5 red", "n 400 red"),
		[2]func(context.Context, *writers, *testStore) error{applies("n r1 retracted"), removesOrphans},
		map[leaderboard.MatchID]leaderboard.Score{"m": 5}},
	{"a result and an erasure", leaderboard.Best, firstApplies("m 5 red"),
		[2]func(context.Context, *writers, *testStore) error{applies("x 50 blue"), erase}, noResults},
	{"an erasure and a user's first result", leaderboard.Sum, func(context.Context, *writers) error { return nil },
		[2]func(context.Context, *writers, *testStore) error{applies("x 50 blue"), erase}, noResults},
	{"an erasure and a ban", leaderboard.Best, firstApplies("m 5 red"),
		[2]func(context.Context, *writers, *testStore) error{erase, ban}, noResults},
	{"an erasure and the end of a ban", leaderboard.Best, func(ctx context.Context, w *writers) error {
		return errors.Join(w.apply(ctx, w.stores[0], "m 5 red"), ban(ctx, w, w.stores[1]))
	}, [2]func(context.Context, *writers, *testStore) error{erase, unban}, noResults},
	{"an erasure, and the end of a ban that does not exist", leaderboard.Best, firstApplies("m 5 red"),
		[2]func(context.Context, *writers, *testStore) error{erase, unban}, noResults},
	{"two bans, each with an erasure", leaderboard.Best, firstApplies("m 5 red"),
		[2]func(context.Context, *writers, *testStore) error{banAndErase, banAndErase}, noResults},
	{"a ban with an erasure, and a user's first result", leaderboard.Sum, func(context.Context, *writers) error { return nil },
		[2]func(context.Context, *writers, *testStore) error{applies("x 50 blue"), banAndErase}, noResults},
	{"a ban and its end", leaderboard.Best, firstApplies("m 5 red"),
		[2]func(context.Context, *writers, *testStore) error{ban, unban}, map[leaderboard.MatchID]leaderboard.Score{"m": 5}},
	{"a result and a change of divisions", leaderboard.Best, firstApplies("m 5 red"),
		[2]func(context.Context, *writers, *testStore) error{applies("x 50 blue"), divide("club")},
		map[leaderboard.MatchID]leaderboard.Score{"m": 5, "x": 50}},
	{"a change of divisions and a user's first result", leaderboard.Sum, func(context.Context, *writers) error { return nil },
		[2]func(context.Context, *writers, *testStore) error{applies("x 50 blue"), divide("club", "team")},
		map[leaderboard.MatchID]leaderboard.Score{"x": 50}},
	{"two results and a change of divisions", leaderboard.Sum, func(ctx context.Context, w *writers) error {
		return errors.Join(w.apply(ctx, w.stores[0], "m 1"), w.apply(ctx, w.stores[1], "n 2 blue"))
	}, [2]func(context.Context, *writers, *testStore) error{func(ctx context.Context, w *writers, s *testStore) error {
		return errors.Join(w.apply(ctx, s, "x 10"), w.apply(ctx, s, "z 1000 red"))
	}, divide("club")}, map[leaderboard.MatchID]leaderboard.Score{"m": 1, "n": 2, "x": 10, "z": 1000}},
	{"a change of divisions and a ban", leaderboard.Best, firstApplies("m 5 red"),
		[2]func(context.Context, *writers, *testStore) error{ban, divide("club")}, nil},
	{"two changes of divisions", leaderboard.Best, firstApplies("m 5 red"),
		[2]func(context.Context, *writers, *testStore) error{divide(), divide("club")}, nil},
}

// Every result was received before the time of the erasure, so it does not count even if it is
// applied later.
var noResults = map[leaderboard.MatchID]leaderboard.Score{}

func divide(divisions ...string) func(context.Context, *writers, *testStore) error {
	return func(ctx context.Context, w *writers, s *testStore) error {
		b, err := s.AmendBoard(ctx, w.board.ID, func(b *leaderboard.Board) error { b.Divisions = divisions; return nil })
		if err != nil {
			return err
		}
		seasons, err := s.StartRecount(ctx, &b)
		if err != nil {
			return err
		}
		for _, season := range seasons {
			for user, err := range s.Users(ctx, leaderboard.SeasonKey{Board: b.ID, Season: season}) {
				if err != nil {
					return err
				}
				change, err := s.Recount(ctx, &b, season, user)
				if err != nil {
					return err
				}
				w.notify(change.After)
			}
		}
		return nil
	}
}

var voidEncounters = []encounter{
	{name: "a result and the void of its match", policy: leaderboard.Sum, prepare: firstApplies("m 1"),
		calls:  [2]func(context.Context, *writers, *testStore) error{applies("x 10"), void("x", 1)},
		stands: map[leaderboard.MatchID]leaderboard.Score{"m": 1, "x": 10}},
	{name: "a user's first result and the void of its match", policy: leaderboard.Best, prepare: func(context.Context, *writers) error { return nil },
		calls:  [2]func(context.Context, *writers, *testStore) error{applies("x 10 red"), void("x", 1)},
		stands: map[leaderboard.MatchID]leaderboard.Score{"x": 10}},
	{name: "a correction and the void of its match", policy: leaderboard.Best, prepare: firstApplies("m 1", "x 5 red"),
		calls:  [2]func(context.Context, *writers, *testStore) error{applies("x 4 r1"), void("x", 1)},
		stands: map[leaderboard.MatchID]leaderboard.Score{"m": 1, "x": 4}},
	{name: "a result and the end of the void of its match", policy: leaderboard.Sum, prepare: func(ctx context.Context, w *writers) error {
		return errors.Join(w.apply(ctx, w.stores[0], "m 1", "x 5"), void("x", 1)(ctx, w, w.stores[1]))
	}, calls: [2]func(context.Context, *writers, *testStore) error{applies("x 7 r1", "y 100"), void("x", 2)},
		stands: map[leaderboard.MatchID]leaderboard.Score{"m": 1, "x": 7, "y": 100}},
	{name: "a void and its end", policy: leaderboard.Sum, prepare: firstApplies("m 1", "x 5"),
		calls: [2]func(context.Context, *writers, *testStore) error{void("x", 1), void("x", 2)}, stands: map[leaderboard.MatchID]leaderboard.Score{"m": 1, "x": 5}},
	{name: "an erasure and a result of a match", policy: leaderboard.Best, prepare: firstApplies("m 5 red"),
		calls: [2]func(context.Context, *writers, *testStore) error{applies("x 50 blue"), erase}, stands: noResults},
	{name: "an erasure and a void", policy: leaderboard.Sum, prepare: firstApplies("m 1", "x 5"),
		calls: [2]func(context.Context, *writers, *testStore) error{void("x", 1), erase}, stands: noResults},
}

func void(match leaderboard.MatchID, voids int64) func(context.Context, *writers, *testStore) error {
	return func(ctx context.Context, w *writers, s *testStore) error {
		key := leaderboard.MatchKey{SeasonKey: leaderboard.SeasonKey{Board: w.board.ID, Season: leaderboard.SeasonAll}, Match: match}
		return w.applyVoids(ctx, s, leaderboard.MatchState{MatchKey: key, Voids: voids})
	}
}

// applyVoids stores m, and gives its Voids to the results of the match.
func (w *writers) applyVoids(ctx context.Context, s *testStore, m leaderboard.MatchState) error {
	m, err := s.SetMatch(ctx, w.board, m)
	if err != nil {
		return err
	}
	for user, err := range s.MatchUsers(ctx, m.MatchKey) {
		if err == nil {
			r := leaderboard.MatchResult{ResultKey: leaderboard.ResultKey{SeasonKey: m.SeasonKey, User: user, Match: m.Match}, VoidOnly: true}
			err = w.send(ctx, s, []leaderboard.MatchResult{r})
		}
		if err != nil {
			return err
		}
	}
	m.Applied = m.Voids
	_, err = s.SetMatch(ctx, w.board, m)
	return err
}

func finishVoids(ctx context.Context, w *writers, s *testStore) error {
	for m, err := range s.Matches(ctx, leaderboard.SeasonKey{Board: w.board.ID, Season: leaderboard.SeasonAll}) {
		if err == nil && m.Applied < m.Voids {
			err = w.applyVoids(ctx, s, m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func applySame(ctx context.Context, w *writers, s *testStore) error {
	r := w.result("same 10")
	r.AchievedAt, r.ReceivedAt = stepsEpoch, stepsEpoch
	return w.send(ctx, s, []leaderboard.MatchResult{r})
}

func ban(ctx context.Context, w *writers, s *testStore) error   { return w.setBan(ctx, s, true) }
func unban(ctx context.Context, w *writers, s *testStore) error { return w.setBan(ctx, s, false) }

func (w *writers) setBan(ctx context.Context, s *testStore, banned bool) error {
	changes, err := s.SetBan(ctx, leaderboard.Ban{User: w.user, Banned: banned})
	w.notifyChanges(changes)
	return err
}

func banAndErase(ctx context.Context, w *writers, s *testStore) error {
	return errors.Join(ban(ctx, w, s), erase(ctx, w, s))
}

func recount(ctx context.Context, w *writers, s *testStore) error {
	change, err := s.Recount(ctx, w.board, leaderboard.SeasonAll, w.user)
	w.notify(change.After)
	return err
}

func erase(ctx context.Context, w *writers, s *testStore) error {
	changes, err := s.Erase(ctx, w.user, stepsEpoch.Add(time.Minute))
	w.notifyChanges(changes)
	return err
}

// meet runs both calls in turns. calls[first] begins.
func (e *encounter) meet(ctx context.Context, w *writers, first int, order schedule) error {
	if err := e.prepare(ctx, w); err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	calls := [2]func() error{
		func() error { return e.calls[0](ctx, w, w.stores[0]) },
		func() error { return e.calls[1](ctx, w, w.stores[1]) },
	}
	if err := w.race(calls, first, order); err != nil {
		return err
	}
	return e.checkOutcome(ctx, w, first)
}

// Both stores must also apply later results correctly, beginning with w.stores[first].
func (e *encounter) checkOutcome(ctx context.Context, w *writers, first int) error {
	if err := errors.Join(w.check(ctx), w.checkIndex(ctx)); err != nil {
		return err
	}
	if err := errors.Join(removesOrphans(ctx, w, w.third), w.check(ctx), w.checkOrphans(ctx)); err != nil {
		return fmt.Errorf("after RemoveOrphanRows: %w", err)
	}
	if e.stands != nil {
		got := map[leaderboard.MatchID]leaderboard.Score{}
		for r, err := range w.third.Results(ctx, leaderboard.SeasonKey{Board: w.board.ID, Season: leaderboard.SeasonAll}, w.user) {
			if err != nil {
				return err
			}
			if !r.Retracted {
				got[r.Match] = r.Score
			}
		}
		if d := cmp.Diff(e.stands, got); d != "" {
			return fmt.Errorf("results that stand (-want +got):\n%s", d)
		}
	}
	w.clock = stepsEpoch.Add(time.Hour)
	for i, r := range []string{"later 7 red", "latest 200 blue", "last 1"} {
		store := (first + i) % 2
		if err := w.apply(ctx, w.stores[store], r); err != nil {
			return err
		}
		if err := errors.Join(w.check(ctx), w.checkIndex(ctx)); err != nil {
			return fmt.Errorf("after %q by store %d: %w", r, store, err)
		}
	}
	seasons, err := w.third.UserSeasons(ctx, w.user)
	if want := []leaderboard.SeasonKey{{Board: w.board.ID, Season: leaderboard.SeasonAll}}; err != nil || !slices.Equal(seasons, want) {
		return fmt.Errorf("the user has results in seasons %v, error %w; want %v", seasons, err, want)
	}
	for i, banned := range []bool{true, false} {
		if err := errors.Join(w.setBan(ctx, w.stores[i], banned), w.check(ctx), w.checkIndex(ctx)); err != nil {
			return fmt.Errorf("after a later ban with banned %v: %w", banned, err)
		}
	}
	return nil
}

// stride returns the first index and the step of a loop over the statements of a call. The part
// histories of make slow has all statements, make check every third, from a random one.
func stride(t testing.TB) (first, step int) {
	if needs.Running("histories") {
		return 0, 1
	}
	return int(stepsSeed(t) % 3), 3
}

// orders returns the schedules of one turn, as stride chooses them, and some random schedules of two
// and three turns. No turn has more statements than the parameter longest. With
// LEADERBOARD_STEPS_TURNS=2, orders returns all schedules of two turns, which take minutes.
func orders(t testing.TB, longest, random int) (all []schedule) {
	if n := envInt("LEADERBOARD_STEPS_TURNS", 0); n > 0 {
		return schedules(n, longest)
	}
	first, step := stride(t)
	for k := first; k < longest; k += step {
		all = append(all, schedule{k + 1})
	}
	return append(all, randomOrders(t, longest, random)...)
}

// insideOrders returns schedules in which one call runs between two statements of the other, as stride
// chooses them, and some random ones of two and three turns.
func insideOrders(t testing.TB, longest, random int) (all []schedule) {
	first, step := stride(t)
	for k := first; k < longest; k += step {
		all = append(all, schedule{k + 1, 1000})
	}
	return append(all, randomOrders(t, longest, random)...)
}

func randomOrders(t testing.TB, longest, n int) (all []schedule) {
	rng := rand.New(rand.NewPCG(stepsSeed(t), 0))
	for i := range n {
		s := make(schedule, 2+i%2)
		for i := range s {
			s[i] = 1 + rng.IntN(longest)
		}
		all = append(all, s)
	}
	return all
}

func stepsSeed(t testing.TB) uint64 {
	seed := uint64(time.Now().UnixNano())
	if n, err := strconv.ParseUint(os.Getenv("LEADERBOARD_STEPS_SEED"), 10, 64); err == nil {
		seed = n
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("to repeat this test, run: LEADERBOARD_STEPS_SEED=%d go test -run '^%s$'", seed, t.Name())
		}
	})
	return seed
}

func envInt(name string, fallback int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return fallback
}

// Two writers run concurrently. In some orders, one writer waits until the other has ended.
func TestModelOfTwoWriters(t *testing.T) {
	const longest = 16 // approximately the number of statements of one call
	for _, e := range slices.Concat(encounters, voidEncounters) {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			for i, order := range orders(t, longest, needs.More(t, longest/16)) {
				for first := range 2 {
					w := newWriters(t, sharedModel(newModel(nil)), e.board(), "u")
					w.vary(i)
					if err := e.meet(t.Context(), w, first, order); err != nil {
						t.Fatalf("store %d begins, the calls take turns of %v statements: %v", first, order, err)
					}
				}
			}
		})
	}
}

func sharedModel(m *model) func() conn { return func() conn { return m } }

func TestModelOfTwoWritersAndLaggingReplicas(t *testing.T) {
	runs := needs.More(t, 3)
	for _, e := range slices.Concat(encounters, voidEncounters) {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			seed := stepsSeed(t)
			for i := range runs {
				rng := rand.New(rand.NewPCG(seed, uint64(i)))
				order := make(schedule, 1+rng.IntN(20))
				for i := range order {
					order[i] = 1 + rng.IntN(6)
				}
				w := newWriters(t, sharedModel(newModel(rng)), e.board(), "u")
				w.vary(rng.Int())
				if err := e.meet(t.Context(), w, rng.IntN(2), order); err != nil {
					t.Fatalf("run %d: the calls take turns of %v statements: %v", i, order, err)
				}
			}
		})
	}
}

// In each round, a process dies before a different statement. After another process's call,
// a third process repeats the call of the dead process.
func TestModelOfAWriterThatDies(t *testing.T) {
	needs.Also(t, "histories")
	for _, e := range slices.Concat(encounters, voidEncounters) {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			index, step := stride(t)
			for more := true; more; index += step {
				w := newWriters(t, sharedModel(newModel(nil)), e.board(), "u")
				w.vary(index)
				ctx := t.Context()
				if err := e.prepare(ctx, w); err != nil {
					t.Fatal(err)
				}
				clock := w.clock
				run, die := w.conns[0].walk(func() { _ = e.calls[0](ctx, w, w.stores[0]) })
				more = run(index)
				die()
				if err := e.calls[1](ctx, w, w.stores[1]); err != nil {
					t.Fatal(err)
				}
				w.clock = clock
				restarted := openWith(w.conns[0].conn, "dc1", index%2 == 1, true)
				if err := e.calls[0](ctx, w, restarted); err != nil {
					t.Fatal(err)
				}
				w.stores[0] = restarted
				if err := e.checkOutcome(ctx, w, index%2); err != nil {
					t.Fatalf("the process died before statement %d: %v", index, err)
				}
			}
		})
	}
}

// Each process applies a list of results, as a consumer does, on replicas that lag. If a
// process dies, another process continues the list, and may repeat up to two acknowledged
// results. The last write of a dead process may reach one replica only. No result may be
// lost.
func TestModelOfManyWriters(t *testing.T) {
	seed := stepsSeed(t)
	for i := range uint64(needs.More(t, 10)) {
		rng := rand.New(rand.NewPCG(seed, i))
		if err := runThreeProcesses(t, rng, rng.IntN(2) == 0, 2+rng.IntN(20), 40); err != nil {
			t.Fatalf("run %d: %v", i, err)
		}
	}
}

// Most results are of new matches, all stores adopt summaries, and the processes die more often
// than in TestModelOfManyWriters.
func TestModelOfAdoptions(t *testing.T) {
	seed := stepsSeed(t)
	for i := range uint64(needs.More(t, 40)) {
		if err := runThreeProcesses(t, rand.New(rand.NewPCG(seed, i)), true, 100, 12); err != nil {
			t.Fatalf("run %d: %v", i, err)
		}
	}
}

// For few, see openWith. On average, one process dies in turnsPerDeath turns.
func runThreeProcesses(t *testing.T, rng *rand.Rand, few bool, matches, turnsPerDeath int) error {
	m := newModel(rng)
	connect := sharedModel(m)
	policy := []leaderboard.Policy{leaderboard.Best, leaderboard.Sum, leaderboard.Latest}[rng.IntN(3)]
	w := newWriters(t, connect, stepsBoard(policy), "u")
	ctx := t.Context()
	type process struct {
		conn *steppedSession
		todo []leaderboard.MatchResult
		done int // the number of acknowledged results
		step func(int) bool
		die  func()
		err  error
	}
	// computed independently of the store
	want := map[leaderboard.MatchID]leaderboard.MatchResult{}
	var processes []*process
	start := func(p *process) {
		p.conn = newSteps(connect())
		p.err = nil
		store := openWith(p.conn, "dc1", few, rng.IntN(2) == 0)
		p.step, p.die = p.conn.walk(func() {
			for p.done < len(p.todo) {
				n := min(1+p.done%2, len(p.todo)-p.done)
				if p.err = w.send(ctx, store, p.todo[p.done:p.done+n]); p.err != nil {
					return
				}
				p.done += n
			}
		})
	}
	for range 3 {
		p := &process{}
		for range 1 + rng.IntN(5) {
			text := fmt.Sprintf("m%d %d r%d %s", rng.IntN(matches), 1+rng.IntN(3), rng.IntN(3), []string{"red", "blue", ""}[rng.IntN(3)])
			if rng.IntN(5) == 0 {
				text += " retracted"
			}
			r := w.result(text)
			p.todo = append(p.todo, r)
			best, ok := want[r.Match]
			if !ok || r.Revision > best.Revision ||
				r.Revision == best.Revision && bytes.Compare(r.AppendPayload(nil), best.AppendPayload(nil)) > 0 {
				want[r.Match] = r
			}
		}
		start(p)
		processes = append(processes, p)
	}
	running := slices.Clone(processes)
	for len(running) > 0 {
		i := rng.IntN(len(running))
		p := running[i]
		switch {
		case rng.IntN(turnsPerDeath) == 0:
			if rng.IntN(2) == 0 {
				p.conn.tear = func(ops []op) {
					p.conn.tear = nil
					m.tear(ops)
				}
			}
			p.die()
			p.done = max(p.done-rng.IntN(3), 0)
			start(p)
		case !p.step(1 + rng.IntN(8)):
			if p.err != nil {
				return p.err
			}
			running = slices.Delete(running, i, i+1)
		}
	}
	if err := errors.Join(w.check(ctx), w.checkIndex(ctx)); err != nil {
		return err
	}
	for r, err := range w.third.Results(ctx, leaderboard.SeasonKey{Board: "b", Season: leaderboard.SeasonAll}, w.user) {
		if err != nil {
			return err
		}
		if o := want[r.Match]; r.ContentID() != o.ContentID() || r.Revision != o.Revision {
			return fmt.Errorf("the result of match %q that stands is %+v, want %+v", r.Match, r, o)
		}
		delete(want, r.Match)
	}
	if len(want) > 0 {
		return fmt.Errorf("the store does not have the results %v, want all of them", want)
	}
	return nil
}

// Before it subtracts, a store with a summary of the user checks whether another store has changed
// the sum.
func TestModelOfAFloor(t *testing.T) {
	b := stepsBoard(leaderboard.Sum)
	floor := leaderboard.Score(0)
	b.Floor = &floor
	w := newWriters(t, sharedModel(newModel(nil)), b, "u")
	ctx := t.Context()
	sum := leaderboard.Score(0)
	for i, points := range []leaderboard.Score{10, -8, -5, 4, -5, -2, 3, -3} {
		r := w.result(fmt.Sprintf("m%d", i))
		r.Score = points
		report, err := w.stores[i%2].Apply(ctx, w.board, []leaderboard.MatchResult{r})
		if err != nil {
			t.Fatal(err)
		}
		o := report.Outcomes[0]
		switch refused := o.Status == leaderboard.Rejected; {
		case refused != (sum+points < floor):
			t.Errorf("store %[3]d applied %[1]d points to the sum %[2]d: status %[4]v, reason %[5]q; want it rejected only if the new sum is below 0", points, sum, i%2, o.Status, o.Reason)
		case !refused:
			sum += points
		}
		if got := b.ScoreOf(o.Entry.Key, stepsEpoch); got != sum {
			t.Errorf("the sum after %d points is %d, want %d", points, got, sum)
		}
	}
}

// A store that has lost its claim writes a result, and dies. The other store's summary may
// lack this result. The other store then receives the result too. The result must count.
func TestModelOfAnUnclaimedResult(t *testing.T) {
	for _, policy := range []leaderboard.Policy{leaderboard.Best, leaderboard.Sum, leaderboard.Latest} {
		for index, more := 0, true; more; index++ {
			w := newWriters(t, sharedModel(newModel(nil)), stepsBoard(policy), "u")
			ctx := t.Context()
			if err := errors.Join(w.apply(ctx, w.stores[0], "m 5"), w.apply(ctx, w.stores[1], "n 6")); err != nil {
				t.Fatal(err)
			}
			r := []leaderboard.MatchResult{w.result("x 50 red")}
			step, die := w.conns[0].walk(func() { _ = w.send(ctx, w.stores[0], r) })
			more = step(index)
			die()
			for range 2 {
				if err := w.send(ctx, w.stores[1], r); err != nil {
					t.Fatal(err)
				}
				if err := w.check(ctx); err != nil {
					t.Fatalf("%v board, the process died before statement %d: %v", policy, index, err)
				}
			}
		}
	}
}

// A store that has lost its claim writes a result, and dies. The other store receives
// another result of the same match, and then the result of the dead store.
func TestModelOfADifferentUnclaimedResult(t *testing.T) {
	for _, result := range []string{"x 50 red r1", "x 50 red", "x r1 retracted", "x 5 blue r2"} {
		for index, more := 0, true; more; index++ {
			w := newWriters(t, sharedModel(newModel(nil)), stepsBoard(leaderboard.Sum), "u")
			ctx := t.Context()
			if err := errors.Join(w.apply(ctx, w.stores[0], "m 5"), w.apply(ctx, w.stores[1], "n 6")); err != nil {
				t.Fatal(err)
			}
			r := []leaderboard.MatchResult{w.result(result)}
			step, die := w.conns[0].walk(func() { _ = w.send(ctx, w.stores[0], r) })
			more = step(index)
			die()
			err := errors.Join(w.apply(ctx, w.stores[1], "x 20 blue"), w.apply(ctx, w.stores[1], "o 7"), w.send(ctx, w.stores[1], r))
			if err == nil {
				err = errors.Join(w.check(ctx), w.checkIndex(ctx))
			}
			if err != nil {
				t.Fatalf("the result %q, written by a process that died before statement %d: %v", result, index, err)
			}
		}
	}
}

// A write of a result and its summary reaches one replica only. The next store may read the
// summary but not the result. The result must count once.
func TestModelOfATornBatch(t *testing.T) {
	seed := stepsSeed(t)
	for i := range uint64(300) {
		m := newModel(rand.New(rand.NewPCG(seed, i)))
		w := newWriters(t, sharedModel(m), stepsBoard(leaderboard.Sum), "u")
		w.stores[0], w.stores[1] = openWith(w.conns[0], "dc1", true, true), openWith(w.conns[1], "dc1", true, false)
		ctx := t.Context()
		if err := errors.Join(w.apply(ctx, w.stores[0], "m 5"), w.apply(ctx, w.stores[0], "n 6")); err != nil {
			t.Fatal(err)
		}
		r := []leaderboard.MatchResult{w.result("x 50 red")}
		w.conns[0].tear = func(ops []op) {
			if len(ops) > 1 {
				m.tear(ops)
			}
		}
		_, die := w.conns[0].walk(func() { _ = w.send(ctx, w.stores[0], r) })
		die()
		for range 2 {
			if err := errors.Join(w.send(ctx, w.stores[1], r), w.check(ctx)); err != nil {
				t.Fatalf("run %d: %v", i, err)
			}
		}
	}
}
