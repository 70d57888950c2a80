package storagetest

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	leaderboard "github.com/open-leaderboard/leaderboard"
)

var (
	seedFlag      = flag.Uint64("seed", 0, "the seed of one history to repeat; 0 is several new ones")
	historiesFlag = flag.Int("histories", envInt("LEADERBOARD_HISTORIES", 0), "how many random histories to try, 0 is as many as the test says (LEADERBOARD_HISTORIES)")
)

func envInt(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

// epoch is about when all histories take place.
var epoch = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// RunHistories applies n random histories, unless the command line asks for more
// or for one, to stores that open returns, each empty, and compares all they say
// with a naive model, after every few steps and at the end. A history that fails
// is made as short as can be, and printed with the command that repeats it.
func RunHistories(t *testing.T, open func(testing.TB) leaderboard.Store, n int) {
	first := *seedFlag
	if first == 0 {
		first, n = uint64(time.Now().UnixNano()), cmp.Or(*historiesFlag, n)
	} else {
		n = 1
	}
	t.Logf("seeds %d to %d", first, first+uint64(n)-1)
	for i := range n {
		seed := first + uint64(i)
		history := generate(rand.New(rand.NewPCG(seed, 1)))
		run := func(h []op) error { return runHistory(t, open, h) }
		err := run(history)
		if err == nil {
			history = generateOrderFree(rand.New(rand.NewPCG(seed, 2)))
			run = func(h []op) error { return runShuffled(t, open, h, seed) }
			err = run(history)
		}
		if err != nil {
			short, err := shrink(history, err, run)
			var text strings.Builder
			for _, o := range short {
				fmt.Fprintf(&text, "\t%v\n", o)
			}
			t.Fatalf("seed %d, to be repeated with: go test -run '^%s$' -seed %d\n%v\nafter:\n%s", seed, t.Name(), seed, err, text.String())
		}
	}
}

// kind is what an op does.
type kind int

const (
	opCreateBoard kind = iota
	opDeleteBoard
	opAmendBoard
	opApply
	opBan
	opUnban
	opErase
	opRecount
	opSeal
	opAmendSeason
	opDeleteSeason
	opCompare
)

// op is one step of a history. It holds all that it needs, so that any part of a
// history is one too.
type op struct {
	kind    kind
	board   leaderboard.Board // that is made, amended to, or that results are of
	id      leaderboard.BoardID
	season  leaderboard.SeasonID
	user    leaderboard.UserID
	at      time.Time
	results []leaderboard.MatchResult
}

func (o op) String() string {
	switch o.kind {
	case opCreateBoard:
		return fmt.Sprintf("create %+v", o.board)
	case opDeleteBoard:
		return fmt.Sprintf("delete board %q", o.id)
	case opAmendBoard:
		return fmt.Sprintf("amend %q: grace %v", o.board.ID, o.board.Season.Grace)
	case opApply:
		var b strings.Builder
		fmt.Fprintf(&b, "apply to %q", o.id)
		for _, r := range o.results {
			fmt.Fprintf(&b, "\n\t\t%+v", r)
		}
		return b.String()
	case opBan:
		return fmt.Sprintf("ban %q", o.user)
	case opUnban:
		return fmt.Sprintf("unban %q", o.user)
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
	default:
		return "compare"
	}
}

func (p *replay) do(o op) error {
	scope := leaderboard.Scope{Board: o.id, Season: o.season}
	switch o.kind {
	case opCreateBoard:
		if _, ok := p.model.boards[o.board.ID]; ok {
			return nil
		}
		return p.createBoard(o.board)
	case opDeleteBoard:
		return p.deleteBoard(o.id)
	case opAmendBoard:
		return p.amend(o.board)
	case opApply:
		return p.apply(o.board, o.results)
	case opBan, opUnban:
		return p.setBan(o.user, o.kind == opBan)
	case opErase:
		return p.erase(o.user, o.at)
	case opRecount:
		return p.recount(scope, o.user)
	case opSeal:
		return p.seal(scope, leaderboard.Amendment{At: o.at, Reason: "test"})
	case opAmendSeason:
		return p.amendSeason(scope, leaderboard.Amendment{At: o.at, Reason: "amended"})
	case opDeleteSeason:
		return p.deleteSeason(scope)
	default:
		return p.compareAll()
	}
}

// amend changes a board's grace.
func (p *replay) amend(next leaderboard.Board) error {
	have, ok := p.model.boards[next.ID]
	if !ok {
		return nil
	}
	have.Season.Grace = next.Season.Grace
	got, err := p.store.AmendBoard(p.ctx, next.ID, become(have))
	if err != nil {
		return fmt.Errorf("AmendBoard: %w", err)
	}
	p.model.boards[next.ID] = have
	return diff("AmendBoard", have, got)
}

func runHistory(t testing.TB, open func(testing.TB) leaderboard.Store, history []op) (err error) {
	store := open(t)
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

// runShuffled applies a history of applies as it is to one store, and its
// results in other orders and other batches to another: entries must be equal.
func runShuffled(t testing.TB, open func(testing.TB) leaderboard.Store, history []op, seed uint64) (err error) {
	if err := runHistory(t, open, history); err != nil {
		return err
	}
	if len(history) == 0 || history[0].kind != opCreateBoard {
		return nil // shrinking took the board away
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
			store := open(t)
			defer func() { err = cmp.Or(err, store.Close()) }()
			if err := store.CreateBoard(ctx, b); err != nil {
				return fmt.Errorf("CreateBoard: %w", err)
			}
			for batch := range slices.Chunk(all, 1+rng.IntN(20)) {
				if _, err := store.Apply(ctx, &b, batch); err != nil {
					return fmt.Errorf("Apply: %w", err)
				}
			}
			return entriesOf(ctx, store, all, got)
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

// entriesOf collects the entries of all users of results, without versions, which
// do depend on the order.
func entriesOf(ctx context.Context, store leaderboard.Store, results []leaderboard.MatchResult, into map[leaderboard.ResultKey]leaderboard.Entry) error {
	scopes := map[leaderboard.Scope]bool{}
	for _, r := range results {
		scopes[r.Scope] = true
	}
	for s := range scopes {
		for e, err := range store.Scan(ctx, s) {
			if err != nil {
				return fmt.Errorf("Scan: %w", err)
			}
			e.Version = 0
			into[leaderboard.ResultKey{Scope: s, User: e.User}] = e
		}
	}
	return nil
}

// shrink takes away from a failing history whatever it fails without: steps,
// then results of steps.
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

// reduce returns the shortest part of list that it finds to fail: it tries
// without halves, then quarters and so on.
func reduce[T any](list []T, fails func([]T) bool) []T {
	for size := (len(list) + 1) / 2; size > 0; {
		smaller := false
		for from := 0; from < len(list); {
			to := min(from+size, len(list))
			without := slices.Concat(list[:from], list[to:])
			if fails(without) {
				list, smaller = without, true
			} else {
				from = to
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

// Ids that a key layout could mix up, or that sort unlike what they look like.
var (
	userPool = []leaderboard.UserID{"a", "aa", "a b", "b", "é", "a:b/c%", "\U0001F600", leaderboard.UserID(strings.Repeat("z", leaderboard.MaxIDBytes)), "~"}
	matches  = []leaderboard.MatchID{"1", "10", "2", "m/é", "x", leaderboard.MatchID(strings.Repeat("q", leaderboard.MaxIDBytes))}
	values   = []string{"F", "M", "x:y", "é", "FF"}
	points   = []leaderboard.Score{0, 0, 1, 1, 2, 3, 5, 10, -1, -4}
)

// writer makes up histories.
type writer struct {
	rng    *rand.Rand
	users  []leaderboard.UserID
	sent   []leaderboard.MatchResult
	clock  time.Time // of the service
	large  bool      // scores up to ±2^53
	closes bool      // some results come when the season takes no more
}

const grace = 30 * 24 * time.Hour

func (w *writer) chance(percent int) bool { return w.rng.IntN(100) < percent }

func pick[T any](rng *rand.Rand, from []T) T { return from[rng.IntN(len(from))] }

func (w *writer) tick() time.Time {
	w.clock = w.clock.Add(time.Duration(1+w.rng.IntN(1_000_000)) * time.Microsecond)
	return w.clock
}

func newWriter(rng *rand.Rand) *writer {
	w := &writer{rng: rng, clock: epoch.AddDate(0, 0, 25), large: rng.IntN(4) == 0, closes: rng.IntN(2) == 0}
	w.users = slices.Clone(userPool)
	rng.Shuffle(len(w.users), func(i, j int) { w.users[i], w.users[j] = w.users[j], w.users[i] })
	w.users = w.users[:2+rng.IntN(len(w.users)-2)]
	return w
}

func (w *writer) board(id leaderboard.BoardID, floor bool) leaderboard.Board {
	b := leaderboard.Board{
		ID: id, Order: leaderboard.Order(w.rng.IntN(2)), Policy: leaderboard.Policy(w.rng.IntN(4)),
		CreatedAt: w.tick().AddDate(0, 0, -25),
	}
	if b.Policy == leaderboard.Decay {
		b.HalfLife = pick(w.rng, []time.Duration{time.Hour, 24 * time.Hour, 365 * 24 * time.Hour, 1234567 * time.Microsecond * 1000})
	}
	if b.Policy == leaderboard.Sum && floor && w.chance(60) {
		low := pick(w.rng, []leaderboard.Score{0, -3})
		b.Floor = &low
	}
	for i := range pick(w.rng, []int{0, 0, 1, 3}) {
		b.TieBreakers = append(b.TieBreakers, leaderboard.TieBreaker{Name: fmt.Sprintf("t%d", i), Order: leaderboard.Order(w.rng.IntN(2))})
	}
	if floor && w.chance(30) {
		most := leaderboard.Score(500)
		b.MaxScore = &most
	}
	b.Divisions = pick(w.rng, [][]string{nil, {"gender"}, {"country", "gender"}})
	if w.chance(60) {
		b.Season = leaderboard.Schedule{Kind: leaderboard.Explicit, Grace: grace, Windows: []leaderboard.Season{
			{ID: "s1", Start: epoch, End: epoch.AddDate(0, 0, 10)},
			{ID: "s10", Start: epoch.AddDate(0, 0, 10), End: epoch.AddDate(0, 0, 20)},
		}}
	}
	return b
}

// result makes up a result: a new one, or one that has to do with one sent before.
func (w *writer) result(b *leaderboard.Board) leaderboard.MatchResult {
	var before []leaderboard.MatchResult
	for _, r := range w.sent {
		if r.Board == b.ID {
			before = append(before, r)
		}
	}
	r := w.fresh(b)
	if len(before) > 0 {
		old := pick(w.rng, before)
		switch n := w.rng.IntN(100); {
		case n < 40: // unrelated, but that ids are few
		case n < 55: // sent again
			received := r.ReceivedAt
			if r = old; w.chance(70) {
				r.ReceivedAt = received
				if r.Assigned && w.chance(50) {
					r.AchievedAt = w.moment(b, r.Season)
				}
			}
		case n < 70: // corrected
			r.ResultKey, r.Revision = old.ResultKey, old.Revision+1
			r.AchievedAt = w.moment(b, r.Season)
		case n < 80: // other content under a known revision
			r.ResultKey, r.Revision = old.ResultKey, old.Revision
			r.AchievedAt = w.moment(b, r.Season)
		default: // retracted
			r = leaderboard.MatchResult{ResultKey: old.ResultKey, Revision: old.Revision + int64(w.rng.IntN(3)), Retracted: true,
				AchievedAt: old.AchievedAt, ReceivedAt: r.ReceivedAt}
		}
	}
	w.sent = append(w.sent, r)
	return r
}

func (w *writer) fresh(b *leaderboard.Board) leaderboard.MatchResult {
	r := leaderboard.MatchResult{
		ResultKey: leaderboard.ResultKey{User: pick(w.rng, w.users), Match: pick(w.rng, matches), Scope: leaderboard.Scope{Board: b.ID, Season: leaderboard.SeasonAll}},
		Score:     pick(w.rng, points),
		Assigned:  w.chance(15),
		Revision:  int64(w.rng.IntN(3)),
	}
	if w.chance(30) {
		r.Score = leaderboard.Score(w.rng.IntN(2001) - 1000)
	}
	if w.large && w.chance(30) {
		r.Score = pick(w.rng, []leaderboard.Score{leaderboard.MaxScore, -leaderboard.MaxScore, leaderboard.MaxScore - 1})
	}
	if windows := b.Season.Windows; len(windows) > 0 {
		r.Season = pick(w.rng, windows).ID
	}
	r.AchievedAt = w.moment(b, r.Season)
	for range w.rng.IntN(len(b.TieBreakers) + 1) {
		r.TieBreakers = append(r.TieBreakers, int64(w.rng.IntN(5)-1))
		if w.large && w.chance(20) {
			r.TieBreakers[len(r.TieBreakers)-1] = pick(w.rng, []int64{1 << 53, -1 << 53})
		}
	}
	if w.chance(3) { // one too many
		r.TieBreakers = append(make([]int64, len(b.TieBreakers)), 1)
	}
	if !r.Assigned && w.chance(3) { // too far ahead, which no assigned time is
		r.AchievedAt = w.clock.AddDate(0, 0, 2)
	}
	for _, name := range append([]string{"other"}, b.Divisions...) {
		if w.chance(60) {
			if r.Attributes == nil {
				r.Attributes = map[string]string{}
			}
			r.Attributes[name] = pick(w.rng, values)
		}
	}
	if w.chance(20) {
		r.Metadata = fmt.Sprintf(`{"n":%d}`, w.rng.IntN(3))
	}
	r.ReceivedAt = w.tick()
	if w.closes && r.Season != leaderboard.SeasonAll && w.chance(10) {
		for _, win := range b.Season.Windows {
			if win.ID == r.Season {
				r.ReceivedAt = win.End.Add(grace).Add(time.Duration(w.rng.IntN(3)-1) * time.Microsecond)
			}
		}
	}
	return r
}

// moment returns a time in a season: one of a few, so that there are ties, or any.
func (w *writer) moment(b *leaderboard.Board, season leaderboard.SeasonID) time.Time {
	start := epoch
	for _, win := range b.Season.Windows {
		if win.ID == season {
			start = win.Start
		}
	}
	if w.chance(60) {
		return start.Add(time.Duration(w.rng.IntN(6)) * 24 * time.Hour)
	}
	return start.Add(time.Duration(w.rng.Int64N((10 * 24 * time.Hour).Microseconds())) * time.Microsecond)
}

// generate makes up a history.
func generate(rng *rand.Rand) []op {
	w := newWriter(rng)
	var history []op
	ids := []leaderboard.BoardID{"b", "bb", "b/é"}[:1+rng.IntN(3)]
	boards := map[leaderboard.BoardID]leaderboard.Board{}
	create := func(id leaderboard.BoardID) {
		boards[id] = w.board(id, true)
		w.sent = slices.DeleteFunc(w.sent, func(r leaderboard.MatchResult) bool { return r.Board == id })
		history = append(history, op{kind: opCreateBoard, board: boards[id]})
	}
	for _, id := range ids {
		create(id)
	}
	for range 10 + rng.IntN(50) {
		id := pick(rng, ids)
		b := boards[id]
		season := leaderboard.SeasonAll
		if len(b.Season.Windows) > 0 {
			season = pick(rng, b.Season.Windows).ID
		}
		o := op{id: id, board: b, season: season, user: pick(rng, w.users)}
		switch n := rng.IntN(100); {
		case n < 62:
			o.kind = opApply
			for range 1 + rng.IntN(8) {
				o.results = append(o.results, w.result(&b))
			}
		case n < 65: // a replay of the whole log
			o.kind = opApply
			for _, r := range w.sent {
				if r.Board == id {
					o.results = append(o.results, r)
				}
			}
			if w.chance(50) {
				rng.Shuffle(len(o.results), func(i, j int) { o.results[i], o.results[j] = o.results[j], o.results[i] })
			}
		case n < 71:
			o.kind = opBan
		case n < 76:
			o.kind = opUnban
		case n < 79:
			o.kind, o.at = opErase, w.tick()
		case n < 82:
			o.kind = opRecount
		case n < 85:
			o.kind, o.at = opSeal, w.tick()
		case n < 88:
			o.kind, o.at = opAmendSeason, w.tick()
		case n < 90:
			o.kind = opDeleteSeason
		case n < 92:
			o.kind = opDeleteBoard
			history = append(history, o)
			create(id)
			continue
		case n < 94:
			o.kind = opAmendBoard
			o.board.Season.Grace = grace + time.Duration(rng.IntN(2))*time.Microsecond
		default:
			o.kind = opCompare
		}
		history = append(history, o)
	}
	return history
}

// generateOrderFree makes up a history in which nothing depends on the order:
// one board, results that nothing refuses.
func generateOrderFree(rng *rand.Rand) []op {
	w := newWriter(rng)
	w.large, w.closes = false, false
	b := w.board("b", false)
	history := []op{{kind: opCreateBoard, board: b}}
	for range 5 + rng.IntN(15) {
		o := op{kind: opApply, id: b.ID, board: b}
		for range 1 + rng.IntN(8) {
			o.results = append(o.results, w.result(&b))
		}
		history = append(history, o)
	}
	return history
}
