package leaderboard

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard/test/seed"
)

var received = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func result(match string, revision int64, score Score) MatchResult {
	return MatchResult{
		ResultKey: ResultKey{SeasonKey{"b", SeasonAll}, "u", MatchID(match)},
		Revision:  revision, Score: score, ReceivedAt: received,
		AchievedAt: received.Add(-time.Hour),
	}
}

func retraction(match string, revision int64) MatchResult {
	r := result(match, revision, 0)
	r.Retracted = true
	return r
}

type history struct {
	board    Board
	rows     map[MatchID]MatchResult
	refusals map[MatchID][]Refusal
	tally    Tally
}

func newHistory(b Board) *history {
	return &history{board: b, rows: map[MatchID]MatchResult{}, refusals: map[MatchID][]Refusal{}}
}

func (h *history) all(yield func(MatchResult, error) bool) {
	for _, r := range h.rows {
		if !yield(r, nil) {
			return
		}
	}
}

func (h *history) apply(t *testing.T, r MatchResult) Decision {
	t.Helper()
	known := Known{Refusals: h.refusals[r.Match], Tally: h.tally}
	if stored, ok := h.rows[r.Match]; ok {
		known.Result = &stored
	}
	d := h.board.Merge(known, r)
	if d.Put != nil && d.Refuse != nil {
		t.Fatalf("Merge(%v) sets both Put and Refuse, want at most one", r)
	}
	if d.Refuse != nil {
		h.refusals[r.Match] = append(h.refusals[r.Match], *d.Refuse)
	}
	if d.Put == nil {
		return d
	}
	h.rows[r.Match] = *d.Put
	h.tally = d.Tally
	counted, err := h.board.Count(h.all)
	if err != nil {
		t.Fatal(err)
	}
	if d.Recount {
		h.tally = counted
	}
	x, _ := h.tally.AppendBinary(nil)
	y, _ := counted.AppendBinary(nil)
	if !bytes.Equal(x, y) {
		t.Fatalf("after %+v the tally is %+v, want the tally of Count, %+v", r, h.tally, counted)
	}
	return d
}

func (h *history) score() Score {
	e := h.board.Entry(&h.tally, SeasonAll, "u")
	if e.Key == "" {
		return 0
	}
	return h.board.ScoreOf(e.Key, received)
}

type statusTest struct {
	name  string
	board Board
	steps []step
}

type step struct {
	r      MatchResult
	status Status
	reason Reason
	score  Score
}

// at returns a result that is achieved minutes after the others.
func at(minutes int, r MatchResult) MatchResult {
	r.AchievedAt = r.AchievedAt.Add(time.Duration(minutes) * time.Minute)
	return r
}

func reset(r MatchResult) MatchResult {
	r.Reset = true
	return r
}

func resetTests() []statusTest {
	sum := Board{ID: "b", Policy: Sum}
	withFloor := sum
	withFloor.Floor = scoreOf(-2)
	ties := Board{ID: "b", Policy: Sum, TieBreakers: []TieBreaker{{Name: "t"}}}
	withTie := func(r MatchResult, v int64) MatchResult {
		r.TieBreakers = []int64{v}
		return r
	}
	return []statusTest{
		{"a reset sets the score, and later results add to it", sum, []step{
			{at(1, result("m", 0, 5)), Applied, "", 5}, {at(2, reset(result("n", 0, 2))), Applied, "", 2}, {at(3, result("o", 0, 4)), Applied, "", 6},
			{at(2, reset(result("n", 0, 2))), Duplicate, "", 6}}},
		{"results before a reset do not count, whenever they arrive", sum, []step{
			{at(2, reset(result("n", 0, 0))), Applied, "", 0}, {at(3, result("o", 0, 4)), Applied, "", 4}, {at(1, result("m", 0, 5)), Applied, "", 4}}},
		{"of two resets, the later one counts", sum, []step{
			{at(3, reset(result("n", 0, 7))), Applied, "", 7}, {at(2, reset(result("m", 0, 1))), Applied, "", 7}, {at(4, result("o", 0, 1)), Applied, "", 8}}},
		{"of results at the time of a reset, those with a smaller match id come before it", sum, []step{
			{result("m", 0, 5), Applied, "", 5}, {reset(result("n", 0, 1)), Applied, "", 1}, {result("o", 0, 2), Applied, "", 3}, {result("a", 0, 9), Applied, "", 3}}},
		{"after the retraction of a reset, the earlier results count again", sum, []step{
			{at(1, result("m", 0, 5)), Applied, "", 5}, {at(2, reset(result("n", 0, 2))), Applied, "", 2}, {retraction("n", 1), Applied, "", 5}}},
		{"a correction makes a result a reset, and no reset again", sum, []step{
			{at(1, result("m", 0, 5)), Applied, "", 5}, {at(2, result("n", 0, 2)), Applied, "", 7}, {at(2, reset(result("n", 1, 2))), Applied, "", 2},
			{at(2, result("n", 2, 3)), Applied, "", 8}}},
		{"a reset below the floor is refused", withFloor, []step{
			{result("m", 0, 5), Applied, "", 5}, {at(1, reset(result("n", 0, -3))), Rejected, ReasonFloor, 5}, {at(1, reset(result("n", 1, -2))), Applied, "", -2},
			{at(2, result("o", 0, -1)), Rejected, ReasonFloor, -2}}},
		{"a result before a reset cannot cross the floor", withFloor, []step{
			{at(2, reset(result("n", 0, 0))), Applied, "", 0}, {at(1, result("m", 0, -9)), Applied, "", 0}, {at(1, result("m", 1, -90)), Applied, "", 0}}},
		{"points that a reset hides are not in the range of the sum", sum, []step{
			{at(1, result("m", 0, MaxScore)), Applied, "", MaxScore}, {at(2, reset(result("n", 0, MaxScore))), Applied, "", MaxScore},
			{at(3, result("o", 0, 1)), Rejected, ReasonRange, MaxScore}, {at(1, result("m", 1, 7)), Applied, "", MaxScore}}},
		{"tie-breakers that a reset hides are not in the range of their sum", ties, []step{
			{at(1, withTie(result("m", 0, 1), 1<<53)), Applied, "", 1}, {at(2, withTie(reset(result("n", 0, 1)), 1)), Applied, "", 1},
			{at(3, withTie(result("o", 0, 1), 1<<53)), Rejected, ReasonRange, 1}, {at(3, withTie(result("o", 1, 1), 1<<53-1)), Applied, "", 2}}},
	}
}

// Sums that resets hide may be more than an int64 holds together.
func TestSumOfManyResetsStaysInOrder(t *testing.T) {
	h := newHistory(Board{ID: "b", Policy: Sum})
	for i := range 1100 {
		h.rows[MatchID(fmt.Sprint(i))] = at(i, result(fmt.Sprint(i), 0, MaxScore))
	}
	tally, err := h.board.Count(h.all)
	if err != nil {
		t.Fatal(err)
	}
	h.tally = tally
	if got := h.score(); got != MaxScore {
		t.Errorf("the sum of 1100 times 2^53 is shown as %d, want the greatest score, 2^53", got)
	}
	h.tally = tally
	if d := h.board.Merge(Known{Tally: tally}, result("x", 0, 1)); d.Reason != ReasonRange {
		t.Errorf("a point above the range: %+v, want the reason %s", d, ReasonRange)
	}
}

func TestDroppingBoundsResults(t *testing.T) {
	b := Board{ID: "b", Policy: BestK, DropWorst: 1}
	for _, tt := range []struct {
		r    MatchResult
		n    int64
		want Reason
	}{
		{result("m", 0, 1), maxCounted - 1, ""}, {result("m", 0, 1), maxCounted, ReasonRange},
		{result("m", 0, MaxScore/10_000), 0, ""}, {result("m", 0, MaxScore/10_000+1), 0, ReasonInvalid},
	} {
		if d := b.Merge(Known{Tally: Tally{results: tt.n}}, tt.r); d.Reason != tt.want {
			t.Errorf("%d points after %d results: reason %q, want %q", tt.r.Score, tt.n, d.Reason, tt.want)
		}
	}
	stored := result("m", 0, 1)
	if d := b.Merge(Known{Result: &stored, Tally: Tally{results: maxCounted}}, result("m", 1, 2)); d.Status != Applied {
		t.Errorf("a correction of one of the largest number of results: %v %v, want APPLIED", d.Status, d.Reason)
	}
}

func TestTieRules(t *testing.T) {
	early, late := received.Add(-time.Hour), received
	for _, tt := range []struct {
		rule  TieRule
		first UserID // of "b" with the earlier result and "a" with the later one
		time  time.Time
	}{{EarliestFirst, "b", early}, {LatestFirst, "a", early}, {ByUserID, "a", time.Time{}}, {Shared, "a", time.Time{}}} {
		b := Board{ID: "b", Ties: tt.rule}
		entry := func(user UserID, achievedAt time.Time) Entry {
			r := result("m", 0, 5)
			r.AchievedAt = achievedAt
			tally := b.Add(Tally{}, &r)
			return b.Entry(&tally, SeasonAll, user)
		}
		x, y := entry("b", early), entry("a", late)
		first := x.User
		if y.SortKey() < x.SortKey() {
			first = y.User
		}
		if first != tt.first || x.Key != y.Key {
			t.Errorf("%v: %q is first, want %q, with equal rank keys", tt.rule, first, tt.first)
		}
		if _, at, _, err := x.SortKey().Split(b.RankKeyBytes()); err != nil || !b.AchievedAt(at).Equal(tt.time) {
			t.Errorf("%v: the sort key has the time %v, want %v", tt.rule, b.AchievedAt(at), tt.time)
		}
	}
	b := Board{Ties: LatestFirst}
	for _, at := range []time.Time{minAchievedAt, maxAchievedAt, received} {
		if tie := b.TieTime(at); tie.Before(minAchievedAt) || tie.After(maxAchievedAt) || !b.AchievedAt(tie).Equal(at) {
			t.Errorf("the tie time of %v is %v, which stands for %v", at, tie, b.AchievedAt(tie))
		}
	}
}

func TestResultsWithoutARankAreNoPersonalBests(t *testing.T) {
	b := Board{ID: "b", Order: LowerFirst, Statuses: []Finish{DSQ, DNF}, MinResults: 3}
	h := newHistory(b)
	var got []string
	finished := func(match string, score Score, f Finish) {
		r := result(match, 0, score)
		r.Finish = f
		before := b.RankKey(&h.tally)
		d := h.apply(t, r)
		o := d.Outcome(before, b.RankKey(&h.tally))
		best, ok := b.PersonalBest(&o)
		got = append(got, fmt.Sprint(best && ok, b.FinishOf(o.After)))
	}
	finished("1", 1, DNF)
	finished("2", 90, Ranked)
	finished("3", 95, Ranked)
	finished("4", 80, Ranked)
	finished("5", 70, DSQ)
	want := []string{"false DNF", "true TOO_FEW_RESULTS", "false RANKED", "true RANKED", "false RANKED"}
	if !slices.Equal(got, want) {
		t.Errorf("personal bests and statuses %q, want %q", got, want)
	}
	invalid := Board{ID: "b"}
	dnf := result("m", 0, 1)
	dnf.Finish = DNF
	if err := invalid.Check(&dnf, received); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "status: DNF is not allowed, because the board has no statuses") {
		t.Errorf("Check of a DNF without statuses = %v", err)
	}
	dnf.Finish = Cut
	if err := b.Check(&dnf, received); err == nil || !strings.Contains(err.Error(), "CUT must be RANKED or one of the board's statuses, DSQ DNF") {
		t.Errorf("Check of a status that the board lacks = %v", err)
	}
	if err := invalid.Check(&MatchResult{ResultKey: dnf.ResultKey, Reset: true, AchievedAt: received}, received); err == nil || !strings.Contains(err.Error(), "reset: is allowed on SUM boards only") {
		t.Errorf("Check of a reset on a BEST board = %v", err)
	}
}

func TestMergeStatus(t *testing.T) {
	sum := Board{ID: "b", Policy: Sum}
	withFloor := sum
	withFloor.Floor = scoreOf(0)
	bounded := sum
	bounded.MaxScore = scoreOf(10)
	anotherTime := result("m", 0, 5)
	anotherTime.AchievedAt = anotherTime.AchievedAt.Add(time.Second)
	assigned := result("m", 0, 5)
	assigned.Assigned = true
	assignedBelow := result("m", 0, -5)
	assignedBelow.Assigned = true
	assignedLater := assigned
	assignedLater.AchievedAt = assigned.AchievedAt.Add(time.Minute)
	tests := []statusTest{
		{"a repeated result is a duplicate", sum, []step{
			{result("m", 0, 5), Applied, "", 5}, {result("m", 0, 5), Duplicate, "", 5}}},
		{"a repeated result with another assigned time is a duplicate", sum, []step{
			{assigned, Applied, "", 5}, {assignedLater, Duplicate, "", 5}}},
		{"the same result with another event time from the caller is a conflict", sum, []step{
			{result("m", 0, 5), Applied, "", 5}, {anotherTime, Conflict, "", 5}}},
		{"a higher revision replaces the result", sum, []step{
			{result("m", 0, 5), Applied, "", 5}, {result("m", 1, 7), Applied, "", 7}, {result("m", 0, 5), Superseded, "", 7}}},
		{"the greater content stands in a conflict", sum, []step{
			{result("m", 0, 5), Applied, "", 5}, {result("m", 0, 7), Conflict, "", 7}, {result("m", 0, 5), Conflict, "", 7}}},
		{"a result with a higher revision replaces a retraction", sum, []step{
			{result("m", 0, 5), Applied, "", 5}, {retraction("m", 1), Applied, "", 0}, {retraction("m", 1), Duplicate, "", 0}, {result("m", 2, 6), Applied, "", 6}}},
		{"a retraction may arrive before its result", sum, []step{
			{retraction("m", 1), Applied, "", 0}, {result("m", 0, 5), Superseded, "", 0}}},
		{"a result that lowers the sum below the floor is refused again when it is replayed", withFloor, []step{
			{result("m", 0, 5), Applied, "", 5}, {result("n", 0, -6), Rejected, ReasonFloor, 5},
			{result("o", 0, 10), Applied, "", 15}, {result("n", 0, -6), Rejected, ReasonFloor, 15}, {result("n", 1, -6), Applied, "", 9}}},
		{"a correction that lowers the sum below the floor is refused", withFloor, []step{
			{result("m", 0, 5), Applied, "", 5}, {result("m", 1, -1), Rejected, ReasonFloor, 5}, {result("m", 0, 5), Duplicate, "", 5}}},
		{"a retraction may lower the sum below the floor, and the next result may raise the sum", withFloor, []step{
			{result("m", 0, 10), Applied, "", 10}, {result("n", 0, -8), Applied, "", 2}, {retraction("m", 1), Applied, "", -8},
			{result("o", 0, 3), Applied, "", -5}, {result("p", 0, -1), Rejected, ReasonFloor, -5}}},
		{"a result outside the board's bounds is refused, and refused again when it is replayed", bounded, []step{
			{result("m", 0, 11), Rejected, ReasonInvalid, 0}, {result("m", 0, 11), Rejected, ReasonInvalid, 0}, {result("m", 0, 10), Applied, "", 10}}},
		{"a refused result is refused again after the same revision with other content is applied", bounded, []step{
			{result("m", 0, 11), Rejected, ReasonInvalid, 0}, {result("m", 0, 10), Applied, "", 10},
			{result("m", 0, 11), Rejected, ReasonInvalid, 10}, {result("m", 0, 12), Rejected, ReasonInvalid, 10}}},
		{"a result that conflicts and lowers the sum below the floor is refused", withFloor, []step{
			{result("m", 0, 5), Applied, "", 5}, {assignedBelow, Rejected, ReasonFloor, 5}, {assignedBelow, Rejected, ReasonFloor, 5}}},
		{"a sum stays within 2^53", sum, []step{
			{result("m", 0, MaxScore), Applied, "", MaxScore}, {result("n", 0, 1), Rejected, ReasonRange, MaxScore},
			{result("o", 0, -1), Applied, "", MaxScore - 1}, {result("n", 1, 1), Applied, "", MaxScore}}},
	}
	for _, tt := range append(tests, resetTests()...) {
		t.Run(tt.name, func(t *testing.T) {
			h := newHistory(tt.board)
			for i, s := range tt.steps {
				d := h.apply(t, s.r)
				if d.Status != s.status || d.Reason != s.reason || h.score() != s.score {
					t.Fatalf("step %d: %v %v, score %d; want %v %v, score %d", i+1, d.Status, d.Reason, h.score(), s.status, s.reason, s.score)
				}
			}
		})
	}
}

func TestMergeClosedSeason(t *testing.T) {
	b := Board{ID: "b", Policy: Sum, Season: Schedule{Kind: Monthly, Grace: time.Hour}, CreatedAt: received.AddDate(-1, 0, 0)}
	end := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	receivedAt := func(r MatchResult, received time.Time) MatchResult {
		r.Season, r.ReceivedAt = "202611", received
		return r
	}
	h := newHistory(b)
	late := receivedAt(result("late", 0, 2), end.Add(time.Hour))
	for _, s := range []struct {
		r      MatchResult
		status Status
		score  Score
	}{
		{receivedAt(result("m", 0, 5), end.Add(time.Hour-time.Microsecond)), Applied, 5},
		{late, Rejected, 5},
		{receivedAt(result("m", 0, 5), end.AddDate(1, 0, 0)), Duplicate, 5}, // repeated a year later
		{receivedAt(result("m", 1, 6), end.Add(time.Hour)), Rejected, 5},
		{receivedAt(retraction("m", 1), end.AddDate(0, 1, 0)), Applied, 0}, // after the close
	} {
		if d := h.apply(t, s.r); d.Status != s.status || h.score() != s.score {
			t.Fatalf("%+v: %v, score %d; want %v, %d", s.r, d.Status, h.score(), s.status, s.score)
		}
	}
	again := newHistory(b)
	if d := again.apply(t, receivedAt(result("m", 0, 5), end)); d.Status != Applied {
		t.Errorf("in another store, a result received before the close: %v, want %v", d.Status, Applied)
	}
	if d := again.apply(t, late); d.Reason != ReasonClosed {
		t.Errorf("in another store, a result received at the close: %v %v, want %v", d.Status, d.Reason, ReasonClosed)
	}
}

func TestMergeErased(t *testing.T) {
	b := Board{ID: "b", Policy: Sum}
	at, after := result("m", 0, 1), result("n", 0, 1)
	after.ReceivedAt = received.Add(time.Microsecond)
	if d := b.Merge(Known{ErasedAt: received}, at); d.Status != Rejected || d.Reason != ReasonErased || d.Refuse != nil {
		t.Errorf("a result received at the erasure: %+v, want Status REJECTED, Reason USER_ERASED and no Refuse", d)
	}
	if d := b.Merge(Known{ErasedAt: received}, after); d.Status != Applied {
		t.Errorf("a result received after the erasure: %+v, want Status APPLIED", d)
	}
}

type naiveEntry struct {
	ranked bool
	finish Finish
	score  int64
	ties   []int64
	at     time.Time
	match  MatchID
	values map[string]string
}

func recount(b *Board, all []MatchResult) (n naiveEntry) {
	stands := map[MatchID]MatchResult{}
	for _, r := range all {
		if stored, ok := stands[r.Match]; !ok || r.Revision > stored.Revision {
			stands[r.Match] = r
		}
	}
	var live []MatchResult
	for _, r := range stands {
		if !r.Retracted {
			live = append(live, r)
		}
	}
	if len(live) == 0 {
		return naiveEntry{}
	}
	column := func(r MatchResult, i int) int64 {
		if i < len(r.TieBreakers) {
			return r.TieBreakers[i]
		}
		return 0
	}
	byTime := func(x, y MatchResult) int {
		return cmp.Or(x.AchievedAt.Compare(y.AchievedAt), strings.Compare(string(x.Match), string(y.Match)))
	}
	slices.SortFunc(live, byTime)
	n = naiveEntry{ranked: true, ties: make([]int64, len(b.TieBreakers)), values: map[string]string{}}
	for _, r := range live {
		for k, v := range r.Attributes {
			if slices.Contains(b.Divisions, k) {
				n.values[k] = v
			}
		}
	}
	deciding := live[len(live)-1]
	defer func() { n.setFinish(b, live) }()
	switch b.Policy {
	case First:
		deciding = live[0]
	case Count:
		n.score = int64(len(live))
		n.combineTies(b, live)
	case BestK:
		deciding = n.sumBest(b, live)
	case Average:
		sum := new(big.Rat)
		for _, r := range live {
			sum.Add(sum, new(big.Rat).SetInt64(int64(r.Score)))
		}
		n.combineTies(b, live)
		n.score = rounded(sum.Quo(sum, new(big.Rat).SetInt64(int64(len(live)))))
	case Best:
		deciding = slices.MinFunc(live, func(x, y MatchResult) int {
			sign := func(o Order, a, c int64) int {
				if o == HigherFirst {
					return cmp.Compare(c, a)
				}
				return cmp.Compare(a, c)
			}
			if c := cmp.Or(cmp.Compare(slices.Index(b.Statuses, x.Finish), slices.Index(b.Statuses, y.Finish)), sign(b.Order, int64(x.Score), int64(y.Score))); c != 0 {
				return c
			}
			for i, tb := range b.TieBreakers {
				if c := sign(tb.Order, column(x, i), column(y, i)); c != 0 {
					return c
				}
			}
			return byTime(x, y)
		})
	case Sum:
		counting := live
		for i, r := range live {
			if r.Reset {
				counting = live[i:]
			}
		}
		deciding = counting[0]
		for _, r := range counting {
			n.score += int64(r.Score)
			if r.Reset || changesSums(b, r) {
				deciding = r
			}
		}
		n.combineTies(b, counting)
	}
	if slices.Contains([]Policy{Best, Latest, First}, b.Policy) {
		n.score = int64(deciding.Score)
		for i := range n.ties {
			n.ties[i] = column(deciding, i)
		}
	}
	n.at, n.match = deciding.AchievedAt, deciding.Match
	return n
}

func (n *naiveEntry) setFinish(b *Board, live []MatchResult) {
	decides := live[len(live)-1]
	if slices.Contains([]Policy{Best, First}, b.Policy) {
		decides = live[slices.IndexFunc(live, func(r MatchResult) bool { return r.Match == n.match })]
	}
	if n.finish = decides.Finish; n.finish == Ranked && int64(len(live)) < b.MinResults {
		n.finish = TooFew
	}
}

func changesSums(b *Board, r MatchResult) bool {
	changes := r.Score != 0
	for i, v := range r.TieBreakers {
		changes = changes || b.TieBreakers[i].Combine == Added && v != 0
	}
	return changes
}

// combineTies sets n.ties. results are ordered by event time.
func (n *naiveEntry) combineTies(b *Board, results []MatchResult) {
	for i, tie := range b.TieBreakers {
		var column []int64
		for _, r := range results {
			column = append(column, append(slices.Clone(r.TieBreakers), make([]int64, i+1)...)[i])
		}
		switch tie.Combine {
		case Greatest:
			n.ties[i] = slices.Max(column)
		case Least:
			n.ties[i] = slices.Min(column)
		case Last:
			n.ties[i] = column[len(column)-1]
		default:
			for _, v := range column {
				n.ties[i] += v
			}
		}
	}
}

// sumBest sums the b.K best results into n. live is ordered by event time. The time of the result that it returns is
// the entry's, the match that of the best result.
func (n *naiveEntry) sumBest(b *Board, live []MatchResult) MatchResult {
	left := slices.Clone(live)
	kept := map[MatchID]bool{}
	var best MatchID
	count := b.K
	if b.DropWorst > 0 {
		count = max(len(live)-b.DropWorst, 1)
	}
	for range min(count, len(live)) {
		one := *b
		one.Policy, one.K, one.Statuses = Best, 0, nil
		next := recount(&one, left)
		if best == "" {
			best = next.match
		}
		kept[next.match] = true
		n.score += next.score
		left = slices.DeleteFunc(left, func(r MatchResult) bool { return r.Match == next.match })
	}
	var deciding MatchResult
	var counting []MatchResult
	for _, r := range live {
		if kept[r.Match] {
			counting = append(counting, r)
			if deciding.Match == "" || changesSums(b, r) {
				deciding = r
			}
		}
	}
	n.combineTies(b, counting)
	if deciding.Match = best; b.DropWorst > 0 {
		deciding.Match = live[len(live)-1].Match
	}
	return deciding
}

// exactPolicies are those of recount.
var exactPolicies = []Policy{Best, Sum, Latest, Count, First, Average, BestK}

func TestEntryIsIndependentOfOrder(t *testing.T) {
	runSeed := seed.New(t)
	rng := rand.New(rand.NewPCG(runSeed, 0))
	for round := range 800 {
		b := Board{ID: "b", Policy: exactPolicies[rng.IntN(len(exactPolicies))], Order: Order(rng.IntN(2)), Divisions: []string{"country", "team"}}
		if b.K = 1 + rng.IntN(4); b.Policy != BestK {
			b.K = 0
		} else if rng.IntN(2) == 0 {
			b.K, b.DropWorst = 0, b.K
		}
		for i := range rng.IntN(3) {
			b.TieBreakers = append(b.TieBreakers, TieBreaker{Name: fmt.Sprintf("t%d", i), Order: Order(rng.IntN(2))})
			if b.AddsUp() {
				b.TieBreakers[i].Combine = Combination(rng.IntN(len(combinationNames)))
			}
		}
		b.Ties = TieRule(rng.IntN(2)) // those that keep the time
		b.MinResults = int64(max(rng.IntN(8)-4, 0))
		if rng.IntN(2) == 0 {
			b.Statuses = [][]Finish{{DNF, DSQ}, {DSQ, Cut, DNF}}[rng.IntN(2)]
		}
		var all []MatchResult
		for m := range 1 + rng.IntN(6) {
			for revision := range int64(1 + rng.IntN(3)) {
				r := result(fmt.Sprintf("m%d", m), revision, Score(rng.IntN(7)-3))
				r.AchievedAt = received.Add(-time.Duration(rng.IntN(4)) * time.Second)
				r.Retracted = rng.IntN(5) == 0
				r.Reset = b.Policy == Sum && rng.IntN(4) == 0
				if len(b.Statuses) > 0 && rng.IntN(4) == 0 {
					r.Finish = b.Statuses[rng.IntN(2)]
				}
				for range rng.IntN(len(b.TieBreakers) + 1) {
					r.TieBreakers = append(r.TieBreakers, int64(rng.IntN(3)-1))
				}
				if rng.IntN(2) == 0 {
					r.Attributes = map[string]string{"country": string(rune('A' + rng.IntN(3)))}
				}
				if rng.IntN(3) == 0 {
					r.Attributes = map[string]string{"team": "T", "other": "x"}
				}
				all = append(all, r)
			}
		}
		want := recount(&b, all)
		var first []byte
		for range 4 {
			h := newHistory(b)
			for _, i := range rng.Perm(2 * len(all)) {
				h.apply(t, all[i%len(all)])
			}
			e := b.Entry(&h.tally, SeasonAll, "u")
			if e.Ranked() != want.ranked {
				t.Fatalf("round %d, seed %d: ranked %v, want %v", round, runSeed, e.Ranked(), want.ranked)
			}
			if want.ranked {
				got := naiveEntry{true, b.FinishOf(e.Key), int64(b.ScoreOf(e.Key, received)), b.TieBreakersOf(e.Key), b.AchievedAt(e.AchievedAt), e.Match, map[string]string{}}
				for _, d := range e.Divisions {
					got.values[d.Attribute] = d.Value
				}
				if got.ties == nil {
					got.ties = []int64{}
				}
				if diff := gocmp.Diff(want, got, gocmp.AllowUnexported(naiveEntry{})); diff != "" {
					t.Fatalf("round %d, seed %d, board %+v: (-want +got)\n%s", round, runSeed, b, diff)
				}
			}
			bytes, err := h.tally.AppendBinary(nil)
			if err != nil {
				t.Fatal(err)
			}
			if first == nil {
				first = bytes
			}
			if string(first) != string(bytes) {
				t.Fatalf("round %d, seed %d: two orders of arrival lead to different tallies, want equal tallies", round, runSeed)
			}
		}
	}
}

func TestConflictsConverge(t *testing.T) {
	runSeed := seed.New(t)
	rng := rand.New(rand.NewPCG(runSeed, 1))
	b := Board{ID: "b", Policy: Sum}
	for range 200 {
		var contents []MatchResult
		for range 2 + rng.IntN(4) {
			r := result("m", 3, Score(rng.IntN(3)))
			r.Retracted = rng.IntN(6) == 0
			r.Assigned = rng.IntN(2) == 0
			r.AchievedAt = received.Add(-time.Duration(rng.IntN(3)) * time.Hour)
			if rng.IntN(2) == 0 {
				r.Metadata = fmt.Sprintf(`{"k":%d}`, rng.IntN(2))
			}
			contents = append(contents, r)
		}
		var want *MatchResult
		for range 6 {
			h := newHistory(b)
			for _, i := range rng.Perm(len(contents)) {
				h.apply(t, contents[i])
			}
			got := h.rows["m"]
			if want == nil {
				want = &got
			}
			if !equalResults(&got, want) {
				t.Fatalf("seed %d: the results %+v arrived in two orders, and %+v or %+v stands, want equal results", runSeed, contents, *want, got)
			}
		}
	}
}

func TestCheckResult(t *testing.T) {
	b := race()
	b.MinScore, b.MaxScore = scoreOf(1), scoreOf(1000)
	now := received
	good := result("m", 0, 5)
	tests := []struct {
		name   string
		change func(*MatchResult)
		field  string
	}{
		{"valid", func(*MatchResult) {}, ""},
		{"no user", func(r *MatchResult) { r.User = "" }, "user_id"},
		{"no match", func(r *MatchResult) { r.Match = "" }, "match_id"},
		{"negative revision", func(r *MatchResult) { r.Revision = -1 }, "revision"},
		{"revision above MaxRevision", func(r *MatchResult) { r.Revision = MaxRevision + 1 }, "revision"},
		{"retraction with MaxRevision+1", func(r *MatchResult) { r.Revision, r.Retracted = MaxRevision+1, true }, ""},
		{"retraction above MaxRevision+1", func(r *MatchResult) { r.Revision, r.Retracted = MaxRevision+2, true }, "revision"},
		{"score below the bounds", func(r *MatchResult) { r.Score = 0 }, "score"},
		{"score above the bounds", func(r *MatchResult) { r.Score = 1001 }, "score"},
		{"retraction without a score", func(r *MatchResult) { r.Score, r.Retracted = 0, true }, ""},
		{"too many tie-breakers", func(r *MatchResult) { r.TieBreakers = []int64{1, 2, 3} }, "tie_breakers"},
		{"tie-breaker beyond 2^53", func(r *MatchResult) { r.TieBreakers = []int64{0, -1<<53 - 1} }, "tie_breakers[1]"},
		{"event time a day ahead", func(r *MatchResult) { r.AchievedAt = now.Add(MaxAhead) }, ""},
		{"event time more than a day ahead", func(r *MatchResult) { r.AchievedAt = now.Add(MaxAhead + 1) }, "achieved_at"},
		{"event time before the year 1", func(r *MatchResult) { r.AchievedAt = time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC) }, "achieved_at"},
		{"invalid attribute name", func(r *MatchResult) { r.Attributes = map[string]string{"A b": "x"} }, "attributes"},
		{"empty attribute value", func(r *MatchResult) { r.Attributes = map[string]string{"team": ""} }, "attributes.team"},
		{"17 attributes", func(r *MatchResult) {
			r.Attributes = map[string]string{}
			for i := range 17 {
				r.Attributes[fmt.Sprintf("a%d", i)] = "x"
			}
		}, "attributes"},
		{"metadata is an array", func(r *MatchResult) { r.Metadata = "[1]" }, "metadata"},
		{"metadata is not canonical", func(r *MatchResult) { r.Metadata = `{"a": 1}` }, "metadata"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := good
			tt.change(&r)
			err := b.Check(&r, now)
			if tt.field == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if !errors.Is(err, ErrInvalid) || !strings.HasPrefix(err.Error(), tt.field+":") {
				t.Errorf("Check() = %v, want an error for field %s", err, tt.field)
			}
		})
	}
	sum := Board{ID: "b", Policy: Sum, MaxScore: scoreOf(4)}
	if err := sum.Check(&good, now); err == nil || !strings.HasPrefix(err.Error(), "points:") {
		t.Errorf("Check() = %v, want an error for field points", err)
	}
}

func TestCanonicalMetadata(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "null": "", " {} ": "", `{"b":1,"a":{"d":1e3,"c":"<é>"}}`: `{"a":{"c":"<é>","d":1e3},"b":1}`,
		`{"n":123456789012345678901}`: `{"n":123456789012345678901}`,
	} {
		if got, err := CanonicalMetadata([]byte(in)); got != want || err != nil {
			t.Errorf("CanonicalMetadata(%s) = %s, %v, want %s", in, got, err, want)
		}
	}
	for _, in := range []string{"1", `"x"`, "[]", "{", `{"a":NaN}`, `{} {}`, "{\"a\":\"\xff\"}",
		`{"a":"` + strings.Repeat("x", MaxMetadataBytes) + `"}`, strings.Repeat(`{"a":`, 20000)} {
		if got, err := CanonicalMetadata([]byte(in)); !errors.Is(err, ErrInvalid) {
			t.Errorf("CanonicalMetadata(%.40s) = %s, %v, want ErrInvalid", in, got, err)
		}
	}
}

func TestRankKeyOrder(t *testing.T) {
	runSeed := seed.New(t)
	rng := rand.New(rand.NewPCG(runSeed, 2))
	values := []int64{-1 << 53, -1<<53 + 1, -256, -1, 0, 1, 255, 256, 1<<53 - 1, 1 << 53}
	pick := func() int64 { return values[rng.IntN(len(values))] }
	for range 5000 {
		b := Board{Order: Order(rng.IntN(2)), TieBreakers: []TieBreaker{{Name: "a", Order: Order(rng.IntN(2))}, {Name: "b", Order: Order(rng.IntN(2))}}}
		orders := []Order{b.Order, b.TieBreakers[0].Order, b.TieBreakers[1].Order}
		x, y := []int64{pick(), pick(), pick()}, []int64{pick(), pick(), pick()}
		want := 0
		for i, o := range orders {
			if want == 0 {
				want = cmp.Compare(x[i], y[i])
				if o == HigherFirst {
					want = -want
				}
			}
		}
		kx, ky := b.rankKey(Tally{score: Score(x[0]), ties: x[1:]}), b.rankKey(Tally{score: Score(y[0]), ties: y[1:]})
		if got := strings.Compare(string(kx), string(ky)); got != want {
			t.Fatalf("seed %d: the keys of %v and %v with the orders %v compare as %d, want %d", runSeed, x, y, orders, got, want)
		}
		if b.ScoreOf(kx, received) != Score(x[0]) || !slices.Equal(b.TieBreakersOf(kx), x[1:]) || len(kx) != b.RankKeyBytes() {
			t.Fatalf("seed %d: the key of %v has %d bytes, the score %d and the tie-breakers %v, want %d bytes and the same values", runSeed, x, len(kx), b.ScoreOf(kx, received), b.TieBreakersOf(kx), b.RankKeyBytes())
		}
		better := strings.Compare(string(kx), string(b.ScorePrefix(Score(y[0]), received))) < 0
		if strictly := x[0] != y[0] && (x[0] > y[0]) == (b.Order == HigherFirst); better != strictly {
			t.Fatalf("seed %d: (key of %v) < (prefix of score %d) is %v, want %v", runSeed, x, y[0], better, strictly)
		}
	}
}

// A rank key must be smaller than the prefix of a score if and only if the score of the
// rank key is better.
func TestDecayScorePrefix(t *testing.T) {
	for _, order := range []Order{HigherFirst, LowerFirst} {
		b := Board{ID: "b", Policy: Decay, HalfLife: time.Hour, Order: order}
		for i := range int64(200) {
			r := result("m", 0, Score(i*7-700))
			r.AchievedAt = received.Add(-time.Duration(i) * time.Minute)
			tally := b.Add(Tally{}, &r)
			e := b.Entry(&tally, SeasonAll, "u")
			shown := b.ScoreOf(e.Key, received)
			for s := shown - 2; s <= shown+2; s++ {
				want := s < shown && order == HigherFirst || s > shown && order == LowerFirst
				if got := e.Key < b.ScorePrefix(s, received); got != want {
					t.Errorf("%v: (key of score %d) < (prefix of score %d) is %v, want %v", order, shown, s, got, want)
				}
			}
		}
	}
}

func TestRankAfterNumbersByEachMethod(t *testing.T) {
	var got []Ranks
	var prev Standing
	for _, key := range []RankKey{"a", "b", "b", "b", "c", "d", "d"} {
		s := Standing{Key: key}
		s.RankAfter(&prev)
		got = append(got, s.Ranks)
		prev = s
	}
	want := []Ranks{{1, 1, 1}, {2, 2, 2}, {2, 2, 3}, {2, 2, 4}, {5, 3, 5}, {6, 4, 6}, {6, 4, 7}}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if r := want[4]; r.By(Competition) != 5 || r.By(Dense) != 3 || r.By(Ordinal) != 5 {
		t.Errorf("By returns competition %d, dense %d and ordinal %d, want 5, 3 and 5", r.By(Competition), r.By(Dense), r.By(Ordinal))
	}
}

func FuzzDecodePayload(f *testing.F) {
	r := result("m", 3, -7)
	f.Add(r.AppendPayload(nil))
	r.Attributes, r.Metadata, r.TieBreakers, r.Assigned = map[string]string{"a": "b", "c": "d"}, `{"x":1}`, []int64{1, -2}, true
	f.Add(r.AppendPayload(nil))
	r.Reset, r.Finish = true, HorsConcours
	f.Add(r.AppendPayload(nil))
	f.Add(bytes.Repeat([]byte{0xff}, 40))
	f.Fuzz(func(t *testing.T, payload []byte) {
		got, err := DecodePayload(r.ResultKey, 3, payload)
		if err != nil {
			if !errors.Is(err, ErrFormat) {
				t.Fatal(err)
			}
			return
		}
		if !bytes.Equal(got.AppendPayload(nil), payload) {
			t.Fatalf("%x, decoded and encoded again, is %x, want the same bytes", payload, got.AppendPayload(nil))
		}
	})
}

func FuzzTally(f *testing.F) {
	b := Board{ID: "b", Policy: Decay, HalfLife: time.Hour, Divisions: []string{"a"}, TieBreakers: []TieBreaker{{Name: "t", Order: LowerFirst}}}
	r := result("m", 3, -7)
	r.Attributes, r.Metadata, r.TieBreakers = map[string]string{"a": "b"}, `{"x":1}`, []int64{1}
	tally := b.Add(Tally{}, &r)
	data, _ := tally.AppendBinary(nil)
	f.Add(data)
	f.Add([]byte{tallyFormat})
	tally.overflow = -3
	data, _ = tally.AppendBinary(nil)
	f.Add(data)
	tally.kept = []keptResult{{score: 7, ties: []int64{1, -2}, achievedAt: received, match: "m"}, {}}
	data, _ = tally.AppendBinary(nil)
	f.Add(data)
	tally.tallyExtras = tallyExtras{DSQ, position{received, "m"}, position{received, "n"}, &Tally{match: "o", score: 3}}
	data, _ = tally.AppendBinary(nil)
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		var tally Tally
		if err := tally.UnmarshalBinary(data); err != nil {
			if !errors.Is(err, ErrFormat) {
				t.Fatal(err)
			}
			return
		}
		once, err := tally.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		var again Tally
		if err := again.UnmarshalBinary(once); err != nil {
			t.Fatalf("UnmarshalBinary of the encoding %x: %v", once, err)
		}
		if twice, _ := again.AppendBinary(nil); !bytes.Equal(once, twice) {
			t.Fatalf("%x, decoded and encoded again, is %x, want the same bytes", once, twice)
		}
	})
}

func FuzzSortKeySplit(f *testing.F) {
	f.Add(string(MakeSortKey("12345678", received, "u")), 8)
	f.Add("", 0)
	f.Fuzz(func(t *testing.T, key string, n int) {
		if n < 0 || n > 256 {
			return
		}
		k, at, user, err := SortKey(key).Split(n)
		if err != nil {
			return
		}
		if MakeSortKey(k, at, user) != SortKey(key) {
			t.Fatalf("%x, split and joined, is %x, want the same key", key, MakeSortKey(k, at, user))
		}
	})
}

func FuzzCanonicalMetadata(f *testing.F) {
	f.Add([]byte(`{"b":[1,2,{"c":null}],"a":1e400}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		once, err := CanonicalMetadata(data)
		if err != nil {
			return
		}
		if twice, err := CanonicalMetadata([]byte(once)); twice != once || err != nil {
			t.Fatalf("CanonicalMetadata(%q) = %q, then CanonicalMetadata of this result = %q, %v, want the same text", data, once, twice, err)
		}
	})
}

func equalResults(r, o *MatchResult) bool {
	return r.ResultKey == o.ResultKey && r.Revision == o.Revision && r.Voids == o.Voids &&
		bytes.Equal(r.AppendPayload(nil), o.AppendPayload(nil))
}
