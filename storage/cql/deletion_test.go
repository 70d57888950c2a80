package cql

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

// In a deletion, an Apply and a DeleteBoard of its board take turns. Another Apply runs
// after one of the turns.
type deletion struct {
	*writers
	otherTurn  int  // the index of the turn after which the other Apply runs
	openBefore bool // the season is open before DeleteBoard begins
}

func (d *deletion) run(ctx context.Context, first int, order schedule) error {
	seasonKey := leaderboard.SeasonKey{Board: d.board.ID, Season: leaderboard.SeasonAll}
	if d.openBefore {
		if err := d.apply(ctx, d.stores[0], "warm 1"); err != nil {
			return err
		}
	}
	var applyErr, deleteErr, otherErr error
	writer, _ := d.conns[0].walk(func() { applyErr = d.apply(ctx, d.stores[0], "m 5 red") })
	deleter, _ := d.conns[1].walk(func() { deleteErr = d.stores[1].DeleteBoard(ctx, d.board.ID, time.Time{}) })
	turns := []func(int) bool{writer, deleter}
	if first == 1 {
		turns = []func(int) bool{deleter, writer}
	}
	for i, n := range order {
		turns[i%2](n)
		if i == d.otherTurn {
			otherErr = d.apply(ctx, d.third, "n 7 blue")
		}
	}
	for _, turn := range turns {
		for turn(1000) {
		}
	}
	if deleteErr != nil {
		return fmt.Errorf("DeleteBoard: %w", deleteErr)
	}
	for _, err := range []error{applyErr, otherErr} {
		if err != nil && !errors.Is(err, leaderboard.ErrBoardNotFound) {
			return fmt.Errorf("Apply: %w", err)
		}
	}
	d.user = "late"
	if err := d.apply(ctx, d.stores[0], "late 1"); !errors.Is(err, leaderboard.ErrBoardNotFound) {
		return fmt.Errorf("Apply of another user's result after the deletion: error %v, want %v", err, leaderboard.ErrBoardNotFound)
	}
	d.user = "u"
	if err := d.apply(ctx, d.stores[0], "late 1"); !errors.Is(err, leaderboard.ErrBoardNotFound) {
		return fmt.Errorf("Apply after the deletion: error %v, want %v", err, leaderboard.ErrBoardNotFound)
	}

	recreated := *d.board
	recreated.CreatedAt = recreated.CreatedAt.Add(time.Hour)
	if err := d.third.CreateBoard(ctx, recreated); err != nil {
		return err
	}
	old := d.board
	d.board = &recreated
	for i, s := range []*testStore{d.third, d.stores[0]} {
		if seasons, err := s.Seasons(ctx, recreated.ID); err != nil || len(seasons) > 0 {
			return fmt.Errorf("store %d: the new board has the seasons %v, error %v; want none", i, seasons, err)
		}
		for user, err := range s.Users(ctx, seasonKey) {
			return fmt.Errorf("store %d: the new board has user %q, error %v; want no users", i, user, err)
		}
		for e, err := range s.Scan(ctx, seasonKey, leaderboard.Part{}) {
			return fmt.Errorf("store %d: the new board has the entry %v, error %v; want no entries", i, e, err)
		}
	}
	r := d.result("x 1")
	if report, err := d.stores[1].Apply(ctx, old, []leaderboard.MatchResult{r}); !errors.Is(err, leaderboard.ErrBoardNotFound) {
		return fmt.Errorf("Apply to the old board returned %+v, error %v; want ErrBoardNotFound", report, err)
	}
	for i, s := range []*testStore{d.stores[0], d.third, d.stores[1]} {
		if err := d.apply(ctx, s, fmt.Sprintf("new%d %d red", i, 10+i)); err != nil {
			return fmt.Errorf("Apply to the new board: %w", err)
		}
	}
	if e, err := d.third.Entry(ctx, seasonKey, d.user); err != nil || e.Results != 3 {
		return fmt.Errorf("the entry of the new board has %d results, error %v; want 3", e.Results, err)
	}
	return d.check(ctx)
}

// A new board with the same id must have no data of the deleted board, and must accept
// results.
func TestModelOfADeletion(t *testing.T) {
	for _, openBefore := range []bool{false, true} {
		for otherTurn := range 2 {
			t.Run(fmt.Sprintf("the season is open before DeleteBoard: %v, the other Apply runs after turn %d", openBefore, otherTurn+1), func(t *testing.T) {
				t.Parallel()
				for _, order := range schedules(2, 8) {
					for first := range 2 {
						w := newWriters(t, sharedModel(newModel(nil)), stepsBoard(leaderboard.Sum), "u")
						d := &deletion{w, otherTurn, openBefore}
						if err := d.run(t.Context(), first, order); err != nil {
							t.Fatalf("call %d (0: Apply, 1: DeleteBoard) begins, the turns have %v statements: %v", first, order, err)
						}
					}
				}
			})
		}
	}
}

// A readGate calls beforeRead before each read of final standings.
type readGate struct {
	conn
	beforeRead func()
}

func (g *readGate) read(ctx context.Context, q op, dest []any, row func() bool) error {
	if q.stmt == selectAllRows || q.stmt == selectRowsFrom {
		g.beforeRead()
	}
	return g.conn.read(ctx, q, dest, row)
}

func TestModelOfAReaderBesideADeletion(t *testing.T) {
	ladder := leaderboard.Ladder{SeasonKey: leaderboard.SeasonKey{Board: "b", Season: leaderboard.SeasonAll}}
	reads := map[string]func(context.Context, *testStore) error{
		"a page": func(ctx context.Context, s *testStore) error {
			page, total, err := s.FinalStandings(ctx, ladder, 1, 10)
			if err == nil && (len(page) != 3 || total != 3) {
				return fmt.Errorf("%d standings of %d, want 3 of 3", len(page), total)
			}
			return err
		},
		"users": func(ctx context.Context, s *testStore) error {
			got, total, err := s.FinalLookup(ctx, ladder, []leaderboard.UserID{"u0", "u1", "nobody"})
			if err == nil && (got[0].Key == "" || got[1].Key == "" || got[2].Key != "" || total != 3) {
				return fmt.Errorf("the standings %+v and the total %d, want standings of u0 and u1 only, and the total 3", got, total)
			}
			return err
		},
		"the standings after a key": func(ctx context.Context, s *testStore) error {
			page, _, total, err := s.FinalAfter(ctx, ladder, "", 10)
			if err == nil && (len(page) != 3 || total != 3) {
				return fmt.Errorf("%d standings of %d, want 3 of 3", len(page), total)
			}
			return err
		},
		"a user": func(ctx context.Context, s *testStore) error {
			n, total, err := s.FinalAround(ctx, ladder, "u1", 2, 2)
			if err == nil && (len(n.Standings) != 3 || total != 3 || n.NotWorse == 0) {
				return fmt.Errorf("the neighborhood %+v and the total %d, want 3 standings, NotWorse above 0, and the total 3", n, total)
			}
			return err
		},
	}
	const longest = 20
	for name, read := range reads {
		t.Run(name, func(t *testing.T) {
			// The deletion runs n+1 statements before the read with this index.
			for readIndex := range 3 {
				for n := range longest {
					synctest.Test(t, func(t *testing.T) { readBesideADeletion(t, read, readIndex, n+1) })
				}
			}
		})
	}
}

func readBesideADeletion(t *testing.T, read func(context.Context, *testStore) error, readIndex, statements int) {
	w := newSeason(t)
	ctx := t.Context()
	if err := w.seal(ctx, w.third); err != nil {
		t.Fatal(err)
	}
	var deleteErr error
	deleter, _ := w.conns[1].walk(func() {
		deleteErr = w.stores[1].DeleteSeason(ctx, leaderboard.SeasonKey{Board: "b", Season: leaderboard.SeasonAll}, time.Time{})
	})
	gate := &readGate{conn: w.third.conn}
	reader := openTest(gate, Options{DataCenter: "dc1", Buckets: 2, CacheUsers: -1})
	reader.parallel = 1
	reads := 0
	gate.beforeRead = func() {
		synctest.Wait()
		if reads++; reads == readIndex+1 {
			deleter(statements)
		}
	}
	if err := read(ctx, reader); err != nil && !errors.Is(err, leaderboard.ErrNotSealed) {
		t.Errorf("%d statements of the deletion before read %d: %v", statements, readIndex+1, err)
	}
	for deleter(1000) {
	}
	if deleteErr != nil {
		t.Errorf("DeleteSeason: %v", deleteErr)
	}
	if err := read(ctx, reader); !errors.Is(err, leaderboard.ErrNotSealed) {
		t.Errorf("a read after the deletion: error %v, want %v", err, leaderboard.ErrNotSealed)
	}
}

// In each round, a process dies before a different statement of a deletion. Then the user
// is erased. After FinishDeletions, no table may mention the user.
func TestModelOfInterruptedDeletions(t *testing.T) {
	const user = "a-user-to-forget"
	for name, remove := range map[string]func(context.Context, *writers) error{
		"season": func(ctx context.Context, w *writers) error {
			return w.stores[0].DeleteSeason(ctx, leaderboard.SeasonKey{Board: "b", Season: leaderboard.SeasonAll}, stepsEpoch.AddDate(0, 0, 1))
		},
		"board": func(ctx context.Context, w *writers) error {
			return w.stores[0].DeleteBoard(ctx, "b", stepsEpoch.AddDate(0, 0, 1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			for index, more := 0, true; more; index++ {
				m := newModel(nil)
				b := stepsBoard(leaderboard.Sum)
				b.Matches = true
				w := newWriters(t, sharedModel(m), b, user)
				if err := errors.Join(w.apply(ctx, w.stores[0], "m 5 red"), w.apply(ctx, w.stores[1], "n 7 blue"), w.seal(ctx, w.third)); err != nil {
					t.Fatal(err)
				}
				step, die := w.conns[0].walk(func() { _ = remove(ctx, w) })
				more = step(index)
				die()
				// If the deletion has no time yet, the first FinishDeletions only writes
				// the time.
				deletedAt := stepsEpoch.AddDate(0, 0, 1)
				err := erase(ctx, w, w.stores[1])
				for _, now := range []time.Time{deletedAt.Add(time.Minute), deletedAt.Add(2 * deletionTimeout)} {
					w.third.now = func() time.Time { return now }
					err = errors.Join(err, w.third.FinishDeletions(ctx))
				}
				if err != nil {
					t.Fatalf("the process died before statement %d: %v", index, err)
				}
				if tables := m.mentions(user); len(tables) > 0 {
					t.Fatalf("the process died before statement %d: the tables %v mention the erased user", index, tables)
				}
				if b, err := w.third.Board(ctx, "b"); name == "season" && err != nil || name == "board" && index > 3 && !errors.Is(err, leaderboard.ErrBoardNotFound) {
					t.Errorf("the process died before statement %d of the deletion of a %s: Board returns %q, error %v; want a board after the deletion of a season, and none after that of a board", index, name, b.ID, err)
				}
			}
		})
	}
}

// The deletion of a board with 64 buckets is interrupted. The board is created again with
// fewer buckets. FinishDeletions must remove all data of the old board.
func TestDeletionsRemoveAllBuckets(t *testing.T) {
	ctx := t.Context()
	m := newModel(nil)
	b := stepsBoard(leaderboard.Sum)
	b.Matches = true
	w := newWriters(t, sharedModel(m), b, "u")
	wideStore := openTest(newSteps(m), Options{DataCenter: "dc1", Buckets: 64, CacheUsers: 10})
	deletedAt := stepsEpoch.AddDate(0, 0, 1)
	recreate := func(s *testStore, at time.Time) error {
		w.board.CreatedAt, w.clock = at, at
		return s.CreateBoard(ctx, *w.board)
	}
	if err := errors.Join(w.third.DeleteBoard(ctx, "b", time.Time{}), recreate(wideStore, stepsEpoch.Add(time.Hour))); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		w.user = leaderboard.UserID(fmt.Sprintf("old-user-%d", i))
		if err := w.apply(ctx, wideStore, "m 5 red"); err != nil {
			t.Fatal(err)
		}
	}
	step, die := w.conns[1].walk(func() { _ = w.stores[1].DeleteBoard(ctx, "b", deletedAt) })
	step(4) // the board is marked as deleted, and the time is written
	die()
	w.user = "new-user"
	if err := errors.Join(recreate(w.third, deletedAt.Add(time.Second)), w.apply(ctx, w.third, "n 7 red")); err != nil {
		t.Fatal(err)
	}
	w.third.now = func() time.Time { return deletedAt.Add(2 * deletionTimeout) }
	if err := w.third.FinishDeletions(ctx); err != nil {
		t.Fatal(err)
	}
	if tables := m.mentions("old-user"); len(tables) > 0 {
		t.Errorf("the tables %v mention users of the deleted board", tables)
	}
	if tables := m.mentions("new-user"); len(tables) == 0 {
		t.Error("no table mentions the user of the new board, want the user's data kept")
	}
}

// During FinishDeletions, the board is created again. The new board and its data must stay.
func TestModelOfACompletedDeletionBesideANewBoard(t *testing.T) {
	for count := range 60 { // more than the number of statements of FinishDeletions
		w := newWriters(t, sharedModel(newModel(nil)), stepsBoard(leaderboard.Sum), "u")
		ctx := t.Context()
		if err := w.apply(ctx, w.third, "old 5 red"); err != nil {
			t.Fatal(err)
		}
		deletedAt := stepsEpoch.AddDate(0, 0, 1)
		step, die := w.conns[1].walk(func() { _ = w.stores[1].DeleteBoard(ctx, "b", deletedAt) })
		step(4) // the board is marked as deleted, and the time is written
		die()
		w.stores[0].now = func() time.Time { return deletedAt.Add(2 * deletionTimeout) }
		var finishErr error
		finish, _ := w.conns[0].walk(func() { finishErr = w.stores[0].FinishDeletions(ctx) })
		finish(count)
		newBoard := stepsBoard(leaderboard.Sum)
		newBoard.CreatedAt = deletedAt.Add(3 * deletionTimeout)
		w.board, w.clock = &newBoard, newBoard.CreatedAt
		if err := errors.Join(w.third.CreateBoard(ctx, newBoard), w.apply(ctx, w.third, "new 7 red")); err != nil {
			t.Fatalf("%d statements of FinishDeletions ran before CreateBoard: %v", count, err)
		}
		for finish(1000) {
		}
		if err := errors.Join(finishErr, w.check(ctx)); err != nil {
			t.Fatalf("%d statements of FinishDeletions ran before CreateBoard: %v", count, err)
		}
		e, err := w.third.Entry(ctx, leaderboard.SeasonKey{Board: "b", Season: leaderboard.SeasonAll}, "u")
		if err != nil || e.Results != 1 || e.Match != "new" {
			t.Fatalf("%d statements of FinishDeletions ran before CreateBoard: the entry on the new board is %+v, error %v; want the match new", count, e, err)
		}
	}
}

func (m *model) mentions(text string) (tables []string) {
	for table, partitions := range m.replicas[0] {
		mentioned := false
		for key, p := range partitions {
			rows := slices.Collect(maps.Values(p.rows))
			if p.static != nil {
				rows = append(rows, p.static)
			}
			for _, r := range rows {
				if cells, ok := r.visible(p.deleted); ok {
					mentioned = mentioned || strings.Contains(fmt.Sprintf("%v %v %v", m.keys[key], r.key, cells), text)
				}
			}
		}
		if mentioned {
			tables = append(tables, table)
		}
	}
	slices.Sort(tables)
	return tables
}

func sealRows(m *model) (n int) {
	for key, p := range m.replicas[0]["registers"] {
		for _, r := range p.rows {
			if _, ok := r.visible(p.deleted); ok && strings.HasPrefix(listOf(key), "seal/") {
				n++
			}
		}
	}
	return n
}

// Beside a Seal, another process deletes the season and opens it again. Only the new
// incarnation may have a seal. No row of an earlier generation may remain.
func TestModelOfASealBesideADeletion(t *testing.T) {
	const longest = 45
	all := insideOrders(t, longest, needs.More(t, longest/8))
	for _, sealed := range []bool{false, true} {
		t.Run(fmt.Sprintf("the season is already sealed: %v", sealed), func(t *testing.T) {
			t.Parallel()
			for _, order := range all {
				for first := range 2 {
					if err := sealBesideADeletion(t, sealed, first, order); err != nil {
						t.Fatalf("call %d (0: Seal, 1: DeleteSeason) begins, the turns have %v statements: %v", first, order, err)
					}
				}
			}
		})
	}
}

func sealBesideADeletion(t *testing.T, sealed bool, first int, order schedule) error {
	w := newSeason(t)
	ctx := t.Context()
	if err := w.apply(ctx, w.stores[0], "cached 1"); err != nil { // stores[0] caches the incarnation
		return err
	}
	if sealed {
		if err := w.seal(ctx, w.third); err != nil {
			return err
		}
	}
	seasonKey := leaderboard.SeasonKey{Board: "b", Season: leaderboard.SeasonAll}
	var errs [2]error
	var turns [2]func(int) bool
	turns[0], _ = w.conns[0].walk(func() { errs[0] = w.seal(ctx, w.stores[0]) })
	turns[1], _ = w.conns[1].walk(func() {
		w.user = "again"
		errs[1] = errors.Join(w.stores[1].DeleteSeason(ctx, seasonKey, time.Time{}), w.apply(ctx, w.stores[1], "x 9 red"))
		if errs[1] == nil {
			errs[1] = w.amendSeason(ctx, w.stores[1])
		}
	})
	order.run(turns[first], turns[1-first])
	if err := errors.Join(errs[0], errs[1]); err != nil {
		return err
	}
	record, err := w.third.Season(ctx, seasonKey)
	if err != nil {
		return err
	}
	m := w.third.conn.(*model)
	rows, seals := finalRows(m), sealRows(m)
	if record.SealedAt.IsZero() {
		// Seal ended before the deletion, which removed the seal.
		if len(rows) > 0 || seals > 0 {
			return fmt.Errorf("the season is not sealed, but has rows of generations %v and %d seals; want neither", rows, seals)
		}
		return nil
	}
	if len(rows) != 1 || seals != 1 {
		return fmt.Errorf("there are rows of the generations %v and %d seals, want one generation and one seal", rows, seals)
	}
	return w.checkFinal(ctx)
}
