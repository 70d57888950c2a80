package storagetest

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

const historiesVariable = "LEADERBOARD_HISTORIES"

// epoch is the start of the first season.
var epoch = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// RunHistories plays random histories of calls, and compares the store with a naive model. Each
// call of newStore must return an empty store, which RunHistories closes.
//
// A failing history is shortened and printed with the command that repeats it.
// LEADERBOARD_HISTORIES sets the number of histories, and LEADERBOARD_TEST_SEED the seed of the
// first history.
func RunHistories(t *testing.T, newStore func(testing.TB) leaderboard.Store, sizes Sizes) {
	n := sizes.withDefaults().Histories
	if text := os.Getenv(historiesVariable); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatalf("%s: %v", historiesVariable, err)
		}
	}
	runSeed := seed.New(t)
	for i := range n {
		historySeed := runSeed + uint64(i)
		history := generate(rand.New(rand.NewPCG(historySeed, 1)))
		run := func(h []op) error { return runHistory(t, newStore, h) }
		err := run(history)
		if err == nil {
			history = generateOrderFree(rand.New(rand.NewPCG(historySeed, 2)))
			run = func(h []op) error { return runShuffled(t, newStore, h, historySeed) }
			err = run(history)
		}
		if err != nil {
			short, err := shrink(history, err, run)
			var text strings.Builder
			for _, o := range short {
				fmt.Fprintf(&text, "\t%v\n", o)
			}
			t.Fatalf("history %d; repeat with: %s=1 %s=%d go test -run '^%s$'\n%v\nsteps of the shortened history:\n%s", i+1, historiesVariable, seed.Variable, historySeed, t.Name(), err, text.String())
		}
	}
}

type kind int

const (
	opCreateBoard kind = iota
	opDeleteBoard
	opAmendBoard
	opDivisions
	opApply
	opVoid
	opBan
	opErase
	opRecount
	opSeal
	opAmendSeason
	opDeleteSeason
	opEndSeason
	opCompare
)

// An op is a step of a history. A history stays valid if steps are removed.
type op struct {
	kind    kind
	board   leaderboard.Board // the new board, the amended board, or the board of the results
	id      leaderboard.BoardID
	season  leaderboard.SeasonID
	user    leaderboard.UserID
	match   leaderboard.MatchID
	at      time.Time
	results []leaderboard.MatchResult
	ban     leaderboard.Ban
}

func (o op) String() string {
	switch o.kind {
	case opCreateBoard:
		return fmt.Sprintf("create %+v", o.board)
	case opDeleteBoard:
		return fmt.Sprintf("delete board %q", o.id)
	case opAmendBoard:
		return fmt.Sprintf("amend %q: grace %v", o.board.ID, o.board.Season.Grace)
	case opDivisions:
		return fmt.Sprintf("change the divisions of %q to %q", o.board.ID, o.board.Divisions)
	case opApply:
		var b strings.Builder
		fmt.Fprintf(&b, "apply to %q", o.id)
		for _, r := range o.results {
			fmt.Fprintf(&b, "\n\t\t%+v", r)
		}
		return b.String()
	case opVoid:
		return fmt.Sprintf("void or restore match %q in %q of %q", o.match, o.season, o.id)
	case opBan:
		return fmt.Sprintf("ban %+v", o.ban)
	case opErase:
		return fmt.Sprintf("erase %q at %v", o.user, o.at)
	case opRecount:
		return fmt.Sprintf("recount %q in %q of %q", o.user, o.season, o.id)
	case opSeal:
		return fmt.Sprintf("seal %q of %q at %v", o.season, o.id, o.at)
	case opAmendSeason:
		return fmt.Sprintf("amend season %q of %q at %v", o.season, o.id, o.at)
	case opDeleteSeason:
		return fmt.Sprintf("delete season %q of %q", o.season, o.id)
	case opEndSeason:
		return fmt.Sprintf("end season %q of %q at %v", o.season, o.id, o.at)
	default:
		return "compare"
	}
}

func runHistory(t testing.TB, newStore func(testing.TB) leaderboard.Store, history []op) (err error) {
	store := newStore(t)
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
			return
		}
		err = cmp.Or(err, store.Close())
	}()
	p := newReplay(t.Context(), store)
	for i, o := range history {
		if err := p.do(o); err != nil {
			return fmt.Errorf("at step %d, %v:\n%w", i+1, o, err)
		}
	}
	return p.compareAll()
}

// runShuffled applies the results in different orders and batches to three new stores, whose
// entries must be equal.
func runShuffled(t testing.TB, newStore func(testing.TB) leaderboard.Store, history []op, seed uint64) (err error) {
	if err := runHistory(t, newStore, history); err != nil {
		return err
	}
	if len(history) == 0 || history[0].kind != opCreateBoard {
		return nil // shrink has removed the creation of the board
	}
	b := history[0].board
	var all []leaderboard.MatchResult
	for _, o := range history {
		all = append(all, o.results...)
	}
	rng := rand.New(rand.NewPCG(seed, 3))
	ctx := t.Context()
	var want map[leaderboard.ResultKey]leaderboard.Entry
	for range 3 {
		got := map[leaderboard.ResultKey]leaderboard.Entry{}
		err := func() (err error) {
			store := newStore(t)
			defer func() { err = cmp.Or(err, store.Close()) }()
			if err := store.CreateBoard(ctx, b); err != nil {
				return fmt.Errorf("CreateBoard: %w", err)
			}
			for batch := range slices.Chunk(all, 1+rng.IntN(20)) {
				if _, err := store.Apply(ctx, &b, batch); err != nil {
					return fmt.Errorf("Apply: %w", err)
				}
			}
			return addEntries(ctx, store, all, got)
		}()
		if err != nil {
			return err
		}
		if want == nil {
			want = got
		} else if err := diff("entries after the same results in another order", want, got); err != nil {
			return err
		}
		rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	}
	return nil
}

// addEntries clears the versions, because they depend on the order of the results.
func addEntries(ctx context.Context, store leaderboard.Store, results []leaderboard.MatchResult, entries map[leaderboard.ResultKey]leaderboard.Entry) error {
	seasons := map[leaderboard.SeasonKey]bool{}
	for _, r := range results {
		seasons[r.SeasonKey] = true
	}
	for s := range seasons {
		for e, err := range store.Scan(ctx, s, leaderboard.Part{}) {
			if err != nil {
				return fmt.Errorf("Scan: %w", err)
			}
			e.Version = 0
			entries[leaderboard.ResultKey{SeasonKey: s, User: e.User}] = e
		}
	}
	return nil
}

// shrink removes steps and single results without which the history still fails.
func shrink(history []op, err error, run func([]op) error) ([]op, error) {
	budget := 500
	fails := func(h []op) bool {
		if budget--; budget < 0 {
			return false
		}
		if e := run(h); e != nil {
			err = e
			return true
		}
		return false
	}
	history = reduce(history, fails)
	for i := range history {
		if history[i].kind != opApply {
			continue
		}
		history[i].results = reduce(history[i].results, func(results []leaderboard.MatchResult) bool {
			h := slices.Clone(history)
			h[i].results = results
			return fails(h)
		})
	}
	return history, err
}

// reduce is delta debugging: Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing
// Input", IEEE TSE 2002.
func reduce[T any](list []T, fails func([]T) bool) []T {
	for size := (len(list) + 1) / 2; size > 0; {
		smaller := false
		for start := 0; start < len(list); {
			end := min(start+size, len(list))
			shorter := slices.Concat(list[:start], list[end:])
			if fails(shorter) {
				list, smaller = shorter, true
			} else {
				start = end
			}
		}
		if !smaller || size > len(list) {
			if size == 1 {
				break
			}
			size /= 2
		}
	}
	return list
}
