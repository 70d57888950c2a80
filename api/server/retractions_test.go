package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

// A dry run returns the ranks after all its retractions.
func TestRetractManyResults(t *testing.T) {
	h, _ := newMonthlyHarness(t, firstOfNovember)
	for user, score := range map[string]int{"ann": 90, "bob": 80, "cyd": 70, "dan": 60} {
		h.must("submit", "POST", "/v1/boards/cup/scores", fmt.Sprintf(`{"user_id":%q,"match_id":"m","score":%d}`, user, score))
		h.must("submit", "POST", "/v1/boards/cup/scores", fmt.Sprintf(`{"user_id":%q,"match_id":"n","score":%d}`, user, score-55))
	}
	const path = "/v1/boards/cup/results:retract"
	const keys = `"results":[{"user_id":"ann","match_id":"m"},{"user_id":"eve","match_id":"m"},{"user_id":"bob","match_id":"m","season":"202611"},{"user_id":"ann","match_id":"m"},{"user_id":"","match_id":"m"}]`
	before := h.do("read", "GET", "/v1/boards/cup/scores", nil).raw
	dry := h.must("submit", "POST", path, `{"dry_run":true,`+keys+`}`)
	var got []string
	entries, _ := get(dry, "effect", "entries").([]any)
	for _, e := range entries {
		got = append(got, fmt.Sprint(get(e, "user_id"), " ", get(e, "season"), " ", get(e, "score_before"), " ", get(e, "rank_before"), " to ", get(e, "score_after"), " ", get(e, "rank_after")))
	}
	if d := gocmp.Diff([]string{"ann 202611 90 1 to 35 3", "bob 202611 80 2 to 25 4"}, got); d != "" || fmt.Sprint(get(dry, "effect", "changed_count")) != "2" {
		t.Errorf("dry run: %v (-want +got):\n%s", dry, d)
	}
	if after := h.do("read", "GET", "/v1/boards/cup/scores", nil).raw; after != before {
		t.Errorf("the dry run changed the board from %s to %s, want no change", before, after)
	}
	act := h.must("submit", "POST", path, `{`+keys+`}`)
	for name, answer := range map[string]map[string]any{"the dry run": dry, "the call": act} {
		var got []string
		outcomes, _ := answer["outcomes"].([]any)
		for _, o := range outcomes {
			got = append(got, fmt.Sprint(get(o, "user_id"), " ", get(o, "status"), " ", get(o, "reason"), " ", get(o, "new_score"), " ", get(o, "rank")))
		}
		want := []string{"ann APPLIED  35 3", "eve REJECTED INVALID <nil> <nil>", "bob APPLIED  25 4", "ann DUPLICATE  35 3", " REJECTED INVALID <nil> <nil>"}
		if d := gocmp.Diff(want, got); d != "" {
			t.Errorf("outcomes of %s (-want +got):\n%s", name, d)
		}
	}
	if act["effect"] != nil {
		t.Errorf("the answer without dry_run has the effect %v, want no effect", act["effect"])
	}
	res, err := h.client().BatchRetractResults(h.as("submit"), &pb.BatchRetractResultsRequest{Board: "cup", Results: []*pb.BatchRetractResultsRequest_Key{{UserId: "cyd", MatchId: "m"}}})
	if err != nil || len(res.GetOutcomes()) != 1 || res.GetOutcomes()[0].GetNewScore() != 15 {
		t.Errorf("over gRPC: %v, %v; want the new score 15", res, err)
	}
}

func TestPurge(t *testing.T) {
	h, clock := newMonthlyHarness(t, firstOfNovember)
	for match, achievedAt := range map[string]string{"a": "2026-10-30T08:00:00Z", "b": "2026-10-31T08:00:00Z", "c": "2026-11-01T08:00:00Z", "d": "2026-11-01T09:00:00Z"} {
		h.must("submit", "POST", "/v1/boards/cup/scores", fmt.Sprintf(`{"user_id":"ann","match_id":%q,"score":7,"achieved_at":%q}`, match, achievedAt))
	}
	const path = "/v1/boards/cup/results/ann:purge"
	state := func() string {
		return strings.Join(resultLines(h.must("read", "GET", "/v1/boards/cup/results/ann", nil)), ", ")
	}
	res, err := h.client().PurgeResults(h.as("submit"), &pb.PurgeResultsRequest{Board: "cup", UserId: "bob", From: timestamppb.New(firstOfNovember)})
	if err != nil || len(res.GetOutcomes()) != 0 {
		t.Errorf("purge of a user without results over gRPC: %v, %v; want no outcomes", res, err)
	}
	const body = `"from":"2026-10-31T08:00:00Z","to":"2026-11-01T09:00:00Z"`
	dry := h.must("submit", "POST", path, `{"dry_run":true,`+body+`}`)
	if n, _ := dry["outcomes"].([]any); len(n) != 2 || fmt.Sprint(get(dry, "effect", "changed_count")) != "0" {
		t.Errorf("dry run: %v, want 2 outcomes and changed_count 0", dry)
	}
	h.must("submit", "POST", path, `{`+body+`}`)
	if got, want := state(), "202611 c RETRACTED, 202611 d APPLIED, 202610 a APPLIED, 202610 b RETRACTED"; got != want {
		t.Errorf("after the purge: %s, want %s", got, want)
	}
	later := firstOfNovember.AddDate(0, 0, 10)
	clock.Store(&later)
	if a := h.do("submit", "POST", path, `{"to":"2026-12-01T00:00:00Z"}`); a.status != http.StatusForbidden {
		t.Errorf("a purge in a closed season without the scope admin: %d %s, want 403", a.status, a.raw)
	}
	if a := h.do("admin", "POST", path, `{"to":"2026-12-01T00:00:00Z"}`); a.status != http.StatusBadRequest || strings.Join(a.violations(), ",") != "reason" {
		t.Errorf("a purge in a closed season without a reason: %d %s, want 400 naming reason", a.status, a.raw)
	}
	h.must("admin", "POST", path, `{"to":"2026-12-01T00:00:00Z","reason":"aimbot"}`)
	if got, want := state(), "202611 c RETRACTED, 202611 d RETRACTED, 202610 a RETRACTED, 202610 b RETRACTED"; got != want {
		t.Errorf("after the second purge: %s, want %s", got, want)
	}
	var acts []string
	for _, a := range h.acts("?action=result.retract") {
		acts = append(acts, fmt.Sprint(a["season"], " ", a["match_id"], " ", a["reason"]))
	}
	slices.Sort(acts) // all acts have the same time
	if d := gocmp.Diff([]string{"202610 a aimbot", "202611 d aimbot"}, acts); d != "" {
		t.Errorf("acts (-want +got):\n%s", d)
	}
}

func TestRetractionsAreRefused(t *testing.T) {
	h, _ := newMonthlyHarness(t, firstOfNovember)
	h.createBoard(`{"board_id":"link","policy":"BEST","source":{"board_id":"cup"}}`)
	for _, tt := range []struct{ path, body, field string }{
		{"cup/results:retract", `{}`, "results"},
		{"cup/results:retract", `{"results":[]}`, "results"},
		{"cup/results:retract", `{"results":[` + strings.Repeat(`{},`, 5000) + `{}]}`, "results"},
		{"cup/results:retract", `{"results":[{"user_id":"u","match_id":"m","revision":1}]}`, "results[0].revision"},
		{"cup/results:retract", `{"results":[{"user_id":1}]}`, "results[0].user_id"},
		{"cup/results:retract", `{"reason":"` + strings.Repeat("x", 257) + `","results":[{"user_id":"u","match_id":"m"}]}`, "reason"},
		{"link/results:retract", `{"results":[{"user_id":"u","match_id":"m"}]}`, "board_id"},
		{"cup/results/ann:purge", `{}`, "from"},
		{"cup/results/ann:purge", `{"from":"2026-11-02T00:00:00Z","to":"2026-11-02T00:00:00Z"}`, "to"},
		{"cup/results/ann:purge", `{"from":"yesterday"}`, "from"},
		{"cup/results/ann:purge", `{"from":"2026-11-02T00:00:00Z","to":"0001-01-01T00:00:00Z"}`, "to"},
		{"link/results/ann:purge", `{"from":"2026-11-02T00:00:00Z"}`, "board_id"},
	} {
		a := h.do("submit", "POST", "/v1/boards/"+tt.path, tt.body)
		if a.status != http.StatusBadRequest || strings.Join(a.violations(), ",") != tt.field {
			t.Errorf("%s %.80s: %d %.300s, want 400 naming %s", tt.path, tt.body, a.status, a.raw, tt.field)
		}
	}
	for _, path := range []string{"none/results:retract", "cup/results/ann:purge"} {
		body := `{"results":[{"user_id":"u","match_id":"m"}]}`
		if strings.HasSuffix(path, ":purge") {
			body = `{"season":"1999","from":"2026-11-02T00:00:00Z"}`
		}
		if a := h.do("submit", "POST", "/v1/boards/"+path, body); a.status != http.StatusNotFound {
			t.Errorf("%s: %d %s, want 404", path, a.status, a.raw)
		}
	}
}
