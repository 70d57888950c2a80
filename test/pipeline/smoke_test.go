package pipeline

import (
	"net/http"
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
	board := api.Board(t, "smoke", map[string]any{"order": "HIGHER_FIRST", "policy": "SUM", "season": map[string]any{"schedule": "NONE"}})
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
