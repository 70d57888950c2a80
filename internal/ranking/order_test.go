package ranking_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/faults"
	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

// A naiveLadder is a ranking by brute force. Its users have one result each.
type naiveLadder struct {
	lowerFirst bool
	rows       []leaderboard.MatchResult // the best first
}

func (l *naiveLadder) compare(a, b *leaderboard.MatchResult) int {
	byScore := cmp.Compare(b.Score, a.Score)
	if l.lowerFirst {
		byScore = -byScore
	}
	for i := range a.TieBreakers { // wins, and then falls
		byScore = cmp.Or(byScore, cmp.Compare(b.TieBreakers[i], a.TieBreakers[i])*(1-2*i))
	}
	return byScore
}

func (l *naiveLadder) sort() {
	slices.SortFunc(l.rows, func(a, b leaderboard.MatchResult) int {
		return cmp.Or(l.compare(&a, &b), a.AchievedAt.Compare(b.AchievedAt), cmp.Compare(a.User, b.User))
	})
}

func (l *naiveLadder) division(d leaderboard.Division) *naiveLadder {
	in := &naiveLadder{lowerFirst: l.lowerFirst}
	for _, row := range l.rows {
		if d.Overall() || row.Attributes[d.Attribute] == d.Value {
			in.rows = append(in.rows, row)
		}
	}
	return in
}

// rank is the rank of a row, or of any result, that has better rows before it.
func (l *naiveLadder) rank(better func(*leaderboard.MatchResult) bool, position int, m leaderboard.Method) int {
	if m == leaderboard.Ordinal {
		return position
	}
	n, distinct := 1, 1
	for i := range l.rows {
		if r := &l.rows[i]; better(r) {
			n++
			if i == 0 || l.compare(&l.rows[i-1], r) != 0 {
				distinct++
			}
		}
	}
	if m == leaderboard.Dense {
		return distinct
	}
	return n
}

// lines are of the form "user score rank".
func (l *naiveLadder) lines(m leaderboard.Method) []string {
	lines := []string{}
	for i := range l.rows {
		row := &l.rows[i]
		rank := l.rank(func(r *leaderboard.MatchResult) bool { return l.compare(r, row) < 0 }, i+1, m)
		lines = append(lines, fmt.Sprintf("%s %d %d", row.User, row.Score, rank))
	}
	return lines
}

func linesOf(list []ranking.Line) []string {
	lines := []string{}
	for i := range list {
		lines = append(lines, fmt.Sprintf("%s %d %d", list[i].User, list[i].Score, list[i].Rank))
	}
	return lines
}

// A naiveCheck compares reads of a ladder with those of a naive ladder.
type naiveCheck func(f *fixture, rng *rand.Rand, q ranking.Query, want *naiveLadder)

// eachNaive checks boards with both orders, with ties, in open and in sealed seasons.
func eachNaive(t *testing.T, check naiveCheck) {
	rng := rand.New(rand.NewPCG(seed.New(t), 0))
	for _, b := range rangeBoards()[:3] {
		t.Run(string(b.ID), func(t *testing.T) {
			f := open(t)
			f.create(b)
			l := &naiveLadder{lowerFirst: b.Order == leaderboard.LowerFirst}
			checkAll := func() {
				for _, d := range []leaderboard.Division{{}, {Attribute: "team", Value: "red"}, {Attribute: "team", Value: "none"}} {
					for _, m := range []leaderboard.Method{leaderboard.Competition, leaderboard.Dense, leaderboard.Ordinal} {
						check(f, rng, ranking.Query{Board: b.ID, Season: "202611", Division: d, Method: m}, l.division(d))
					}
				}
			}
			checkAll()
			for i := range 40 {
				r := points(fmt.Sprintf("u%02d", i), "m", int64(rng.IntN(12)-4))
				r.TieBreakers = []int64{int64(rng.IntN(2)), int64(rng.IntN(2))}[:len(b.TieBreakers)]
				r.AchievedAt = start.Add(-time.Duration(rng.IntN(3)) * time.Hour)
				r.Attributes = map[string]string{"team": []string{"red", "blue"}[rng.IntN(2)]}
				f.submit(b.ID, r)
				if l.rows = append(l.rows, r); i == 0 || i == 39 {
					l.sort()
					checkAll()
				}
			}
			f.clock.set(start.AddDate(0, 1, 0))
			if err := f.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			checkAll()
			for range 4 { // at the top or the bottom
				i := (len(l.rows) - 1) * rng.IntN(2)
				if err := f.Erase(t.Context(), l.rows[i].User); err != nil {
					t.Fatal(err)
				}
				l.rows = slices.Delete(l.rows, i, i+1)
			}
			checkAll()
		})
	}
}

func TestWorstFirst(t *testing.T) {
	needs.NoRace(t, "one call follows another")
	eachNaive(t, func(f *fixture, rng *rand.Rand, q ranking.Query, want *naiveLadder) {
		f.t.Helper()
		for range 4 {
			pq := ranking.PageQuery{Query: q, Limit: 1 + rng.IntN(12), Worst: true}
			if rng.IntN(2) == 0 {
				pq.Scores = randomRange(rng)
			}
			lines := want.lines(q.Method)
			slices.Reverse(lines)
			lines = slices.DeleteFunc(lines, func(line string) bool {
				var user string
				var score leaderboard.Score
				if _, err := fmt.Sscan(line, &user, &score); err != nil {
					f.t.Fatal(err)
				}
				return pq.Scores.Min != nil && score < *pq.Scores.Min || pq.Scores.Max != nil && score > *pq.Scores.Max
			})
			got := []string{}
			for {
				page, err := f.Page(f.t.Context(), pq)
				if err != nil {
					f.t.Fatal(err)
				}
				if got = append(got, linesOf(page.Lines)...); page.Next != "" && len(page.Lines) != pq.Limit {
					f.t.Errorf("a page of %d lines has a next page, want %d lines", len(page.Lines), pq.Limit)
				}
				if pq.Token = page.Next; pq.Token == "" {
					break
				}
			}
			if diff := gocmp.Diff(lines, got); diff != "" {
				f.t.Fatalf("the worst first of %+v, range %s, pages of %d (-want +got):\n%s", q, rangeText(pq.Scores), pq.Limit, diff)
			}
		}
	})
}

// While others move, come and leave, each entry that stays is listed once, in order.
func TestWorstFirstWhileOthersMove(t *testing.T) {
	f := open(t)
	f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Latest})
	want := []string{}
	for i := range 60 {
		f.submit("b", points(fmt.Sprintf("stays%02d", i), "m", int64(10*i)))
		want = append(want, fmt.Sprintf("stays%02d", i))
	}
	stop := f.keepMoving(t)
	for limit := 1; limit <= 30; limit++ {
		got := []string{}
		for pq := (ranking.PageQuery{Query: ranking.Query{Board: "b"}, Limit: limit, Worst: true}); ; {
			page, err := f.Page(t.Context(), pq)
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range page.Lines {
				if line.User[0] == 's' {
					got = append(got, string(line.User))
				}
			}
			if pq.Token = page.Next; pq.Token == "" {
				break
			}
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("pages of %d (-want +got):\n%s", limit, diff)
		}
	}
	stop()
}

// keepMoving submits results of other users until the caller calls stop.
func (f *fixture) keepMoving(t *testing.T) (stop func()) {
	rng := rand.New(rand.NewPCG(seed.New(t), 0))
	done := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			r := points(fmt.Sprint("moves", rng.IntN(40)), fmt.Sprint("m", i), int64(rng.IntN(700)-50))
			r.AchievedAt = start.Add(time.Duration(i) * time.Microsecond)
			if _, err := f.Submit(t.Context(), f.board("b"), []leaderboard.MatchResult{r}); err != nil {
				t.Error(err)
			}
		}
	})
	return func() { close(done); writer.Wait() }
}

func TestWorstFirstRefuses(t *testing.T) {
	f := open(t)
	f.create(sumBoard)
	for i := range int64(5) {
		f.submit("b", points(fmt.Sprint("u", i), "m", i))
	}
	q := ranking.PageQuery{Query: ranking.Query{Board: "b"}, Limit: 2}
	best, err := f.Page(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	q.Worst = true
	for field, change := range map[string]func(*ranking.PageQuery){
		"start_rank": func(q *ranking.PageQuery) { q.Start = 1 },
		"page_token": func(q *ranking.PageQuery) { q.Token = best.Next },
	} {
		bad := q
		change(&bad)
		var fault *leaderboard.FieldError
		if _, err := f.Page(t.Context(), bad); !errors.As(err, &fault) || fault.Field != field {
			t.Errorf("the worst first with a bad %s: %v, want a FieldError for this field", field, err)
		}
	}
	down := &faults.Index{Index: f.index}
	down.Set(faults.Refuse)
	if _, err := serviceOver(t, f.store, down).Page(t.Context(), q); !errors.Is(err, leaderboard.ErrRankUnavailable) {
		t.Errorf("the worst first without an index: %v, want ErrRankUnavailable", err)
	}
}

func TestNeighborsFill(t *testing.T) {
	needs.NoRace(t, "one call follows another")
	eachNaive(t, func(f *fixture, rng *rand.Rand, q ranking.Query, want *naiveLadder) {
		f.t.Helper()
		lines := want.lines(q.Method)
		for i, line := range lines {
			if i > 3 && i < len(lines)-4 && rng.IntN(4) > 0 {
				continue
			}
			uq := ranking.UserQuery{Query: q, Neighbors: rng.IntN(8), Fill: true}
			if rng.IntN(8) == 0 {
				uq.Neighbors = 50
			}
			first, end := slide(i, uq.Neighbors, 2*uq.Neighbors+1, len(lines))
			page, err := f.UserToRank(f.t.Context(), uq, want.rows[i].User)
			if err != nil {
				f.t.Fatal(err)
			}
			if diff := gocmp.Diff(lines[first:end], linesOf(page.Neighbors)); diff != "" {
				f.t.Fatalf("%d neighbors of %q, %+v (-want +got):\n%s", uq.Neighbors, line, q, diff)
			}
			current := slices.IndexFunc(page.Neighbors, func(l ranking.Line) bool { return l.Current })
			if above, below := i < uq.Neighbors, len(lines)-1-i < uq.Neighbors; current != i-first || page.Line.User != want.rows[i].User || page.ClippedAbove != above || page.ClippedBelow != below {
				f.t.Errorf("%d neighbors of %q, %+v: the user is line %d, clipped above %v and below %v; want %d, %v and %v",
					uq.Neighbors, line, q, current, page.ClippedAbove, page.ClippedBelow, i-first, above, below)
			}
		}
	})
}
