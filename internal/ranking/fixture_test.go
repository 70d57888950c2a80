package ranking_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/embedded"
)

type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = t
}

type fixture struct {
	*ranking.Service
	t     *testing.T
	store leaderboard.Store
	index leaderboard.Index
	clock *clock
}

var start = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func open(t *testing.T) *fixture {
	t.Helper()
	store, index := embedded.Open(t)
	return serviceOver(t, store, index)
}

func serviceOver(t *testing.T, store leaderboard.Store, index leaderboard.Index) *fixture {
	c := &clock{t: start}
	service := ranking.New(store, index, ranking.Options{Now: c.now})
	t.Cleanup(service.Close)
	return &fixture{service, t, store, index, c}
}

func (f *fixture) create(b leaderboard.Board) leaderboard.Board {
	f.t.Helper()
	b, err := f.CreateBoard(f.t.Context(), b)
	if err != nil {
		f.t.Fatal(err)
	}
	return b
}

func (f *fixture) board(id leaderboard.BoardID) *leaderboard.Board {
	f.t.Helper()
	b, err := f.Board(f.t.Context(), id)
	if err != nil {
		f.t.Fatal(err)
	}
	return &b
}

func points(user, match string, n int64) leaderboard.MatchResult {
	return leaderboard.MatchResult{
		ResultKey: leaderboard.ResultKey{User: leaderboard.UserID(user), Match: leaderboard.MatchID(match)},
		Score:     leaderboard.Score(n),
	}
}

func (f *fixture) seasons(id leaderboard.BoardID) []ranking.SeasonInfo {
	f.t.Helper()
	page, err := f.Seasons(f.t.Context(), f.board(id), ranking.SeasonsQuery{Limit: ranking.MaxSeasons})
	if err != nil || page.Next != "" {
		f.t.Fatalf("the seasons of board %q have the next page %q, error %v; want one page", id, page.Next, err)
	}
	return page.Seasons
}

func (f *fixture) submit(board leaderboard.BoardID, r leaderboard.MatchResult) ranking.Receipt {
	f.t.Helper()
	got := f.trySubmit(board, r)
	if got.Status != leaderboard.Applied || got.Err != nil {
		f.t.Fatalf("submit %+v: %v %v %v, want APPLIED", r, got.Status, got.Reason, got.Err)
	}
	return got
}

func (f *fixture) trySubmit(board leaderboard.BoardID, r leaderboard.MatchResult) ranking.Receipt {
	f.t.Helper()
	receipts, err := f.Submit(f.t.Context(), f.board(board), []leaderboard.MatchResult{r})
	if err != nil {
		f.t.Fatal(err)
	}
	return receipts[0]
}

// list reads a whole ladder in pages of n entries. A line has the form "user score rank".
func (f *fixture) list(q ranking.Query, n int) []string {
	f.t.Helper()
	lines := []string{}
	pq := ranking.PageQuery{Query: q, Limit: n}
	for {
		page, err := f.Page(f.t.Context(), pq)
		if err != nil {
			f.t.Fatal(err)
		}
		for _, l := range page.Lines {
			lines = append(lines, fmt.Sprintf("%s %d %d", l.User, l.Score, l.Rank))
		}
		if pq.Token = page.Next; pq.Token == "" {
			if len(lines) != int(page.Total) {
				f.t.Errorf("the pages have %d lines, want %d", len(lines), page.Total)
			}
			return lines
		}
	}
}

func (f *fixture) wantList(q ranking.Query, want ...string) {
	f.t.Helper()
	if want == nil {
		want = []string{}
	}
	if diff := gocmp.Diff(want, f.list(q, 2)); diff != "" {
		f.t.Errorf("the ladder of %+v (-want +got):\n%s", q, diff)
	}
}

var sumBoard = leaderboard.Board{ID: "b", Policy: leaderboard.Sum}
