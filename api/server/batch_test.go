package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/api/auth"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

func statuses(v map[string]any) (got []string) {
	outcomes, _ := v["outcomes"].([]any)
	for _, o := range outcomes {
		got = append(got, fmt.Sprint(get(o, "board_id"), " ", get(o, "status")))
	}
	return got
}

func TestBatchAcrossBoards(t *testing.T) {
	h := newHarness(t, Options{})
	h.createBoard(`{"board_id":"cup","policy":"BEST"}`)
	h.createBoard(`{"board_id":"week","policy":"SUM","source":{"board_id":"cup"}}`)
	const body = `{"include_previous_rank":true,"results":[
		{"board_id":"cup","user_id":"ada","match_id":"m","score":5},
		{"board_id":"nowhere","user_id":"ada","match_id":"m","score":5},
		{"board_id":"default","user_id":"ada","match_id":"m","points":7},
		{"board_id":"week","user_id":"ada","match_id":"m","points":7},
		{"board_id":"cup","user_id":"ada","match_id":"m","score":5},
		{"board_id":"cup","user_id":"bob","match_id":"m","points":5},
		{"board_id":"cup","user_id":"ada","match_id":"m2","score":9},
		{"board_id":"default","user_id":"bob","points":1}]}`
	got := h.must("submit", "POST", "/v1/results:batch", body)
	want := []string{"cup APPLIED", "nowhere REJECTED", "default APPLIED", "week REJECTED", "cup DUPLICATE", "cup REJECTED", "cup APPLIED", "default APPLIED"}
	if list := statuses(got); !slices.Equal(list, want) {
		t.Fatalf("outcomes %q, want %q", list, want)
	}
	for i, want := range map[int][2]string{1: {"BOARD_NOT_FOUND", "board_id: no board"}, 3: {"INVALID", "board_id: board"}, 5: {"INVALID", "points: "}} {
		if o := get(got, "outcomes", i); get(o, "reason") != want[0] || !strings.HasPrefix(get(o, "detail").(string), want[1]) {
			t.Errorf("outcome %d is %v, want %s with a detail that begins with %q", i, o, want[0], want[1])
		}
	}
	if o := get(got, "outcomes", 6); get(o, "new_score") != number(9) || get(o, "previous_score") != number(5) || get(o, "previous_rank") != number(1) || get(o, "rank") != number(1) {
		t.Errorf("the last result on cup has %v, want score 9, previous score 5 and both ranks 1", o)
	}
	if o := get(got, "outcomes", 7); get(o, "match_id") == "" {
		t.Errorf("the result without a match has %v, want a match id", o)
	}
	if o := get(h.must("submit", "POST", "/v1/results:batch", body), "outcomes", 2); get(o, "status") != "DUPLICATE" || get(o, "new_score") != number(7) {
		t.Errorf("the repeated result has %v, want DUPLICATE with the score 7", o)
	}
	if o := get(h.must("submit", "POST", "/v1/results:batch", `{"results":[{"board_id":"nowhere","user_id":"u","points":1}]}`), "outcomes", 0); get(o, "status") != "REJECTED" {
		t.Errorf("the only result, of an unknown board, has %v, want REJECTED", o)
	}
	res, err := h.client().BatchSubmitResults(h.as("submit"), &pb.BatchSubmitResultsRequest{Results: []*pb.Result{{BoardId: proto.String("cup"), UserId: "ada", MatchId: "m", Score: proto.Int64(5)}}})
	if err != nil || res.GetOutcomes()[0].GetStatus() != pb.Outcome_DUPLICATE || res.GetOutcomes()[0].GetBoardId() != "cup" {
		t.Errorf("BatchSubmitResults over gRPC: %v, %v; want DUPLICATE on cup", res, err)
	}
}

func TestBadBatchesAcrossBoards(t *testing.T) {
	now := time.Now()
	h := newHarness(t, Options{Now: func() time.Time { return now }, Limits: auth.Limits{PerUser: auth.Rate{PerSecond: 1, Burst: 2}}})
	h.createBoard(`{"board_id":"cup","policy":"SUM"}`)
	h.newKey("bound", map[string]any{"scopes": []string{"submit"}, "boards": []string{"cup"}})
	const ada = `{"board_id":"cup","user_id":"ada","match_id":"m","points":1}`
	tooMany := `{"results":[` + strings.Repeat(ada+",", ranking.MaxBatch) + ada + `]}`
	for _, tt := range []struct {
		name, scope, path, body string
		status                  int
		names                   string
	}{
		{"no results", "submit", "/v1/results:batch", `{}`, http.StatusBadRequest, "results"},
		{"too many results", "submit", "/v1/results:batch", tooMany, http.StatusBadRequest, "5000"},
		{"a field board beside the results", "submit", "/v1/results:batch", `{"board":"cup","results":[` + ada + `]}`, http.StatusBadRequest, "board"},
		{"a number as the board", "submit", "/v1/results:batch", `{"results":[{"board_id":7}]}`, http.StatusBadRequest, "board_id"},
		{"the scope read", "read", "/v1/results:batch", `{"results":[` + ada + `]}`, http.StatusForbidden, "scope"},
		{"no key", "", "/v1/results:batch", `{"results":[` + ada + `]}`, http.StatusUnauthorized, ""},
		{"a board that the key is not for", "bound", "/v1/results:batch", `{"results":[` + ada + `,{"board_id":"default","user_id":"bob","points":1}]}`, http.StatusForbidden, "default"},
		{"a result that names another board than the request", "submit", "/v1/scores", ada, http.StatusBadRequest, "board_id"},
		{"an unknown parameter", "submit", "/v1/results:batch?points=3", `{"results":[` + ada + `]}`, http.StatusBadRequest, "points"},
	} {
		if a := h.do(tt.scope, "POST", tt.path, tt.body); a.status != tt.status || !strings.Contains(a.raw, tt.names) {
			t.Errorf("%s: %d %.300s, want %d with the text %q", tt.name, a.status, a.raw, tt.status, tt.names)
		}
	}
	if a := h.do("read", "GET", "/v1/boards/cup/scores/ada", nil); a.status != http.StatusNotFound {
		t.Errorf("after refused calls, ada has %d %s, want 404", a.status, a.raw)
	}
	now = now.Add(time.Minute)
	h.must("submit", "POST", "/v1/results:batch", `{"results":[`+ada+`,{"user_id":"ada","match_id":"m","points":1}]}`)
	if a := h.do("submit", "POST", "/v1/scores", `{"user_id":"ada","points":1}`); a.status != http.StatusTooManyRequests {
		t.Errorf("a submit after the user's burst of two results: %d %s, want 429", a.status, a.raw)
	}
	if o := get(h.must("bound", "POST", "/v1/boards/cup/scores:batch", `{"results":[`+strings.ReplaceAll(ada, "ada", "bob")+`,{"board_id":"default","user_id":"cyd","points":1}]}`), "outcomes", 1); get(o, "status") != "REJECTED" {
		t.Errorf("a result of another board in a batch of one board has %v, want REJECTED", o)
	}
}

type failingService struct {
	*ranking.Service
	submit func(leaderboard.BoardID) error
}

func (f failingService) Submit(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) ([]ranking.Receipt, error) {
	if err := f.submit(b.ID); err != nil {
		return nil, err
	}
	return f.Service.Submit(ctx, b, results)
}

func TestBatchAcrossBoardsWithFaults(t *testing.T) {
	base := newHarness(t, Options{})
	base.createBoard(`{"board_id":"cup","policy":"SUM"}`)
	const body = `{"results":[{"board_id":"cup","user_id":"u","match_id":"m","points":1},{"board_id":"default","user_id":"u","match_id":"m","points":1},{"board_id":"nowhere","user_id":"u","points":1}]}`
	down := fmt.Errorf("cql: hunter2: %w", leaderboard.ErrUnavailable)
	h := serve(t, failingService{base.service, func(id leaderboard.BoardID) error {
		if id == "cup" {
			return down
		}
		return nil
	}}, base.store, Options{})
	got := h.must("submit", "POST", "/v1/results:batch", body)
	if list, want := statuses(got), []string{"cup FAILED", "default APPLIED", "nowhere REJECTED"}; !slices.Equal(list, want) {
		t.Errorf("outcomes %q, want %q", list, want)
	}
	if o := get(got, "outcomes", 0); !strings.Contains(get(o, "detail").(string), "try again") || get(o, "match_id") != "m" || get(o, "new_score") != nil {
		t.Errorf("the outcome on the failed board is %v, want its match id, \"try again\" and no score", o)
	}
	if log := h.log.String(); !strings.Contains(log, "hunter2") || !strings.Contains(log, `"board":"cup"`) {
		t.Errorf("the log is %s, want the board and the cause", log)
	}
	for name, tt := range map[string]struct {
		err    func(leaderboard.BoardID) error
		status int
		code   codes.Code
	}{
		"every board is down": {func(leaderboard.BoardID) error { return down }, http.StatusServiceUnavailable, codes.Unavailable},
		"an unknown error":    {func(leaderboard.BoardID) error { return errors.New("hunter2") }, http.StatusInternalServerError, codes.Internal},
		"a panic":             {func(leaderboard.BoardID) error { panic("hunter2") }, http.StatusInternalServerError, codes.Internal},
	} {
		h := serve(t, failingService{base.service, tt.err}, base.store, Options{})
		if a := h.do("submit", "POST", "/v1/results:batch", body); a.status != tt.status || strings.Contains(a.raw, "hunter2") {
			t.Errorf("%s: %d %s, want %d without the cause", name, a.status, a.raw, tt.status)
		}
		_, err := h.client().BatchSubmitResults(h.as("submit"), &pb.BatchSubmitResultsRequest{Results: []*pb.Result{{BoardId: proto.String("default"), UserId: "u", Points: proto.Int64(1)}}})
		if status.Code(err) != tt.code {
			t.Errorf("%s over gRPC: %v, want %v", name, err, tt.code)
		}
	}
}

func TestBatchAcrossBoardsWithoutWaiting(t *testing.T) {
	base := newHarness(t, Options{})
	base.createBoard(`{"board_id":"cup","policy":"SUM"}`)
	log := &fixedOutcomes{submit: leaderboard.Applied, accept: leaderboard.Accepted}
	h := serve(t, ranking.New(base.store, nil, ranking.Options{Results: log}), base.store, Options{})
	a := h.do("submit", "POST", "/v1/results:batch?no_wait=true", `{"results":[{"board_id":"cup","user_id":"u","points":1},{"board_id":"default","user_id":"u","points":1}]}`)
	if want := []string{"cup ACCEPTED", "default ACCEPTED"}; a.status != http.StatusAccepted || !slices.Equal(statuses(a.body), want) {
		t.Errorf("batch with no_wait: %d %s, want 202 and %q", a.status, a.raw, want)
	}
}
