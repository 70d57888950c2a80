package pipeline

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/open-leaderboard/leaderboard/test/deployment"
)

// A repeated submit counts once. The processes stop without an error.
func TestSubmitOverREST(t *testing.T) {
	d := deployment.New(t, deployment.Options{})
	api := serveAPI(t, d)
	// A consumer must not listen. If it listened, Serve would fail, because the API node already uses
	// the port.
	consumer := d.Serve(t, "--roles=consumer", "--grpc="+api.GRPC)
	board := api.Board(t, "smoke", map[string]any{"order": "HIGHER_FIRST", "policy": "SUM", "matches": true, "season": map[string]any{"schedule": "NONE"}})
	scores := "/v1/boards/" + board + "/scores"
	type outcome struct {
		Status string `json:"status"`
		Score  *int64 `json:"new_score"`
		Rank   *int64 `json:"rank"`
	}
	submit := func(user, match string, points int64) outcome {
		t.Helper()
		var o outcome
		body := map[string]any{"user_id": user, "match_id": match, "points": points}
		if status, err := api.Call(t.Context(), http.MethodPost, scores, body, &o); err != nil || status != http.StatusOK && status != http.StatusCreated {
			t.Fatalf("submit: status %d, error %v, want status 200 or 201; answer: %s", status, err, show(o))
		}
		return o
	}
	check := func(got outcome, status string, score, rank int64) {
		t.Helper()
		if got.Status != status || got.Score == nil || *got.Score != score || got.Rank == nil || *got.Rank != rank {
			t.Errorf("outcome is %s, want %s, score %d, rank %d", show(got), status, score, rank)
		}
	}
	check(submit("ada", "m1", 5), "APPLIED", 5, 1)
	check(submit("bob", "m1", 7), "APPLIED", 7, 1)
	check(submit("ada", "m1", 5), "DUPLICATE", 5, 2)
	check(submit("ada", "m2", 3), "APPLIED", 8, 1)
	var page struct {
		Data struct {
			Entries []struct {
				User  string `json:"user_id"`
				Score int64  `json:"score"`
				Rank  int64  `json:"rank"`
			} `json:"leaderboard"`
		} `json:"data"`
	}
	if status, err := api.Call(t.Context(), http.MethodGet, scores, nil, &page); err != nil || status != http.StatusOK {
		t.Fatalf("read board: status %d, error %v, want status 200", status, err)
	}
	const want = `[{"user_id":"ada","score":8,"rank":1},{"user_id":"bob","score":7,"rank":2}]`
	if got := show(page.Data.Entries); got != want {
		t.Errorf("the board is %s, want %s", got, want)
	}
	checkActs(t, api, board)
	for name, n := range map[string]*deployment.Node{"api": api, "consumer": consumer} {
		if err := n.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		log, err := n.Log()
		if err != nil {
			t.Fatal(err)
		}
		if code := n.ExitCode(); code != 0 || !strings.Contains(log, `"msg":"stopped"`) {
			t.Errorf("the %s exited with %d, want 0 and the log line \"stopped\"; its log:\n%s", name, code, log)
		}
	}
}

// checkActs corrects, retracts and voids results through Kafka. The board has ada's matches m1 with 5
// points and m2 with 3, and bob's m1 with 7.
func checkActs(t *testing.T, api *deployment.Node, board string) {
	t.Helper()
	path := "/v1/boards/" + board
	call := func(method, path string, body, answer any, want int) {
		t.Helper()
		if status, err := api.Call(t.Context(), method, path, body, answer); err != nil || status != want {
			t.Fatalf("%s %s: status %d, error %v, want status %d", method, path, status, err, want)
		}
	}
	call(http.MethodPatch, path+"/results/ada/m1", map[string]any{"points": 9, "reason": "typo"}, nil, http.StatusOK)
	call(http.MethodPost, path+"/results/ada/m1:retract", map[string]any{"reason": "bot"}, nil, http.StatusOK)
	call(http.MethodPost, path+"/results/ada/m3:retract", map[string]any{"reason": "bot"}, nil, http.StatusNotFound)
	call(http.MethodPatch, path+"/results/ada/m2", map[string]any{"points": 1, "dry_run": true, "reason": "typo"}, nil, http.StatusOK)
	type side struct {
		Status string `json:"status"`
		Result struct {
			Revision int64 `json:"revision"`
			Points   int64 `json:"points"`
		} `json:"result"`
		Entry struct {
			Score int64 `json:"score"`
			Rank  int64 `json:"rank"`
		} `json:"entry"`
	}
	type act struct {
		Action string `json:"action"`
		Reason string `json:"reason"`
		Before side   `json:"before"`
		After  side   `json:"after"`
	}
	var result struct {
		Status  string `json:"status"`
		History []act  `json:"history"`
	}
	describe := func(x side) string {
		return fmt.Sprintf("%s %d: %d points, score %d, rank %d", x.Status, x.Result.Revision, x.Result.Points, x.Entry.Score, x.Entry.Rank)
	}
	call(http.MethodGet, path+"/results/ada/m1?history=true", nil, &result, http.StatusOK)
	var history []string
	for _, a := range result.History {
		history = append(history, a.Action+" "+a.Reason+", "+describe(a.Before)+", "+describe(a.After))
	}
	want := []string{
		"result.retract bot, APPLIED 1: 9 points, score 12, rank 1, RETRACTED 2: 0 points, score 3, rank 2",
		"result.correct typo, APPLIED 0: 5 points, score 8, rank 1, APPLIED 1: 9 points, score 12, rank 1",
	}
	if result.Status != "RETRACTED" || !slices.Equal(history, want) {
		t.Errorf("the retracted result has the status %s and the history %q, want %q", result.Status, history, want)
	}
	result.History = nil
	call(http.MethodGet, path+"/results/ada/m2?history=true", nil, &result, http.StatusOK)
	if result.Status != "APPLIED" || len(result.History) > 0 {
		t.Errorf("after a dry run, the result is %s with the history %v; want APPLIED and none", result.Status, result.History)
	}

	call(http.MethodPost, path+"/matches/nowhere:void", map[string]any{"reason": "map"}, nil, http.StatusNotFound)
	call(http.MethodPost, path+"/matches/m1:void", map[string]any{"reason": "map"}, nil, http.StatusOK)
	var match struct {
		Match struct {
			Voided bool   `json:"voided"`
			Reason string `json:"reason"`
		} `json:"match"`
		Results []struct {
			User   string `json:"user_id"`
			Status string `json:"status"`
		} `json:"results"`
	}
	call(http.MethodGet, path+"/matches/m1", nil, &match, http.StatusOK)
	if got := show(match); got != `{"match":{"voided":true,"reason":"map"},"results":[{"user_id":"ada","status":"RETRACTED"},{"user_id":"bob","status":"VOIDED"}]}` {
		t.Errorf("the void match is %s, want it with ada's retracted and bob's void result", got)
	}
	var list struct {
		Matches []struct {
			Match  string `json:"match_id"`
			Voided bool   `json:"voided"`
		} `json:"matches"`
	}
	call(http.MethodGet, path+"/matches?prefix=m", nil, &list, http.StatusOK)
	if got := show(list.Matches); got != `[{"match_id":"m1","voided":true},{"match_id":"m2","voided":false}]` {
		t.Errorf("the matches are %s, want the void m1 and m2", got)
	}
}
