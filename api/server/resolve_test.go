package server

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/embedded"
)

type boardCounter struct {
	leaderboard.Store
	reads atomic.Int64
}

func (c *boardCounter) Board(ctx context.Context, id leaderboard.BoardID) (leaderboard.Board, error) {
	c.reads.Add(1)
	return c.Store.Board(ctx, id)
}

// Boards are cached for a nanosecond, so a second read of the board reaches the store.
func TestARequestReadsItsBoardOnce(t *testing.T) {
	stored, index := embedded.Open(t)
	store := &boardCounter{Store: stored}
	svc := ranking.New(store, index, ranking.Options{BoardTTL: time.Nanosecond, LinkTTL: time.Hour})
	if err := svc.EnsureDefaultBoard(t.Context()); err != nil {
		t.Fatal(err)
	}
	h := serve(t, svc, store, Options{PublicRead: true})
	h.must("submit", "POST", "/v1/scores", `{"user_id":"ann","match_id":"first","points":1}`)
	h.must("read", "GET", "/v1/scores", nil) // loads the season into the index
	for _, tt := range []struct{ name, scope, method, path, body string }{
		{"submit", "submit", "POST", "/v1/scores?include_previous_rank=true&include_linked=true", `{"user_id":"ann","match_id":"m","points":5}`},
		{"batch", "submit", "POST", "/v1/scores:batch", `{"results":[{"user_id":"ann","points":7},{"user_id":"bob","points":8}],"include_previous_rank":true}`},
		{"retract", "submit", "POST", "/v1/boards/default/results/ann/m:retract", "{}"},
		{"top", "read", "GET", "/v1/scores", ""},
		{"rank", "read", "GET", "/v1/scores/ann", ""},
		{"anonymous top", "", "GET", "/v1/scores", ""},
		{"anonymous rank", "", "GET", "/v1/scores/ann", ""},
		{"anonymous lookup", "", "POST", "/v1/scores:lookup", `{"user_ids":["ann","bob"]}`},
		{"anonymous stats", "", "GET", "/v1/boards/default/stats", ""},
		{"anonymous seasons", "", "GET", "/v1/boards/default/seasons", ""},
		{"anonymous board", "", "GET", "/v1/boards/default", ""},
	} {
		store.reads.Store(0)
		if a := h.do(tt.scope, tt.method, tt.path, tt.body); a.status != http.StatusOK {
			t.Fatalf("%s: %d %s, want 200", tt.name, a.status, a.raw)
		}
		if n := store.reads.Load(); n != 1 {
			t.Errorf("%s: the board was read %d times, want once", tt.name, n)
		}
	}
}
