package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

func TestVoidMatch(t *testing.T) {
	h, clock := newMonthlyHarness(t, firstOfNovember)
	h.createBoard(`{"board_id":"arena","policy":"SUM","matches":true,"season":{"schedule":"MONTHLY"}}`)
	h.createBoard(`{"board_id":"all","policy":"SUM","source":{"board_id":"arena"}}`)
	submit := func(user, match string, points, revision int) {
		t.Helper()
		h.must("submit", "POST", "/v1/boards/arena/scores", fmt.Sprintf(`{"user_id":%q,"match_id":%q,"points":%d,"revision":%d,"achieved_at":"2026-11-01T08:00:00Z"}`, user, match, points, revision))
	}
	scores := func(board string) (lines []string) {
		t.Helper()
		list, _ := get(h.must("read", "GET", "/v1/boards/"+board+"/scores", nil), "data", "leaderboard").([]any)
		for _, e := range list {
			lines = append(lines, fmt.Sprint(get(e, "user_id"), " ", get(e, "score"), " ", get(e, "rank")))
		}
		return lines
	}
	wantScores := func(when string, want ...string) {
		t.Helper()
		for _, board := range []string{"arena", "all"} {
			if d := gocmp.Diff(want, scores(board)); d != "" {
				t.Errorf("%s, board %s (-want +got):\n%s", when, board, d)
			}
		}
	}
	submit("ann", "m", 9, 0)
	submit("bob", "m", 8, 0)
	submit("ann", "n", 1, 0)
	submit("cyd", "n", 3, 0)
	const void, restore = "/v1/boards/arena/matches/m:void", "/v1/boards/arena/matches/m:restore"
	dry := h.must("admin", "POST", void, `{"reason":"wrong map","dry_run":true}`)
	var effects []string
	entries, _ := get(dry, "effect", "entries").([]any)
	for _, e := range entries {
		effects = append(effects, fmt.Sprint(get(e, "user_id"), " ", get(e, "board"), " ", get(e, "score_before"), " ", get(e, "rank_before"), " to ", get(e, "score_after"), " ", get(e, "rank_after")))
	}
	if d := gocmp.Diff([]string{"ann all 10 1 to 1 2", "ann arena 10 1 to 1 2", "bob all 8 2 to <nil> <nil>", "bob arena 8 2 to <nil> <nil>"}, effects); d != "" || dry["voided"] != true {
		t.Errorf("dry run: %v, want voided true; entries (-want +got):\n%s", dry, d)
	}
	wantScores("after the dry run", "ann 10 1", "bob 8 2", "cyd 3 3")

	h.must("admin", "POST", void, `{"reason":"wrong map"}`)
	wantScores("after the void", "cyd 3 1", "ann 1 2")
	submit("dan", "m", 7, 0)
	submit("bob", "m", 6, 1)
	h.must("submit", "POST", "/v1/boards/arena/results/ann/m:retract", `{}`)
	wantScores("after results of the void match", "cyd 3 1", "ann 1 2")
	if status := get(h.must("read", "GET", "/v1/boards/arena/results/bob/m", nil), "status"); status != "VOIDED" {
		t.Errorf("the status of a result of the void match is %v, want VOIDED", status)
	}
	again := h.must("admin", "POST", void, `{"reason":"wrong map","dry_run":true}`)
	if fmt.Sprint(get(again, "effect", "changed_count")) != "0" {
		t.Errorf("dry run of a second void: %v, want changed_count 0", again)
	}
	dry = h.must("admin", "POST", restore, `{"reason":"right map","dry_run":true}`)
	if e := get(dry, "effect", "entries", 1); fmt.Sprint(get(e, "user_id"), get(e, "score_before"), get(e, "score_after"), get(e, "rank_after")) != "bob<nil>62" {
		t.Errorf("dry run of the restoration: %v, want that bob appears with score 6 and rank 2", dry)
	}
	later := firstOfNovember.Add(time.Minute)
	clock.Store(&later)
	res, err := h.client().RestoreMatch(h.as("admin"), &pb.RestoreMatchRequest{Board: "arena", MatchId: "m", Reason: "right map"})
	if err != nil || res.GetVoided() || res.GetSeason() != "202611" || res.GetEffect() != nil {
		t.Errorf("restoration over gRPC: %v, %v; want voided false, season 202611 and no effect", res, err)
	}
	wantScores("after the restoration", "dan 7 1", "bob 6 2", "cyd 3 3", "ann 1 4")
	var actions []string
	for _, a := range h.acts("?action=match") {
		actions = append(actions, fmt.Sprint(a["action"], " ", a["season"], " ", a["match_id"], " ", a["reason"], " ", get(a, "before", "voided"), " ", get(a, "after", "voided"), " ", get(a, "after", "reason")))
	}
	if d := gocmp.Diff([]string{"match.restore 202611 m right map true false right map", "match.void 202611 m wrong map false true wrong map"}, actions); d != "" {
		t.Errorf("the acts in the audit log (-want +got):\n%s", d)
	}
	h.must("admin", "POST", "/v1/boards/arena/matches/later:void", `{"reason":"r","season":"202611"}`)
	submit("eve", "later", 99, 0)
	wantScores("after a result of a match that was void before its first result", "dan 7 1", "bob 6 2", "cyd 3 3", "ann 1 4")
}

func TestVoidsAreRefused(t *testing.T) {
	h, _ := newMonthlyHarness(t, firstOfNovember)
	h.createBoard(`{"board_id":"arena","policy":"SUM","matches":true,"season":{"schedule":"MONTHLY"}}`)
	h.createBoard(`{"board_id":"all","policy":"SUM","source":{"board_id":"arena"}}`)
	for _, achievedAt := range []string{"2026-11-01T08:00:00Z", "2026-10-31T18:00:00Z"} {
		h.must("submit", "POST", "/v1/boards/arena/scores", `{"user_id":"ann","match_id":"twice","points":1,"achieved_at":"`+achievedAt+`"}`)
	}
	for _, tt := range []struct {
		path, body, field string
		status            int
	}{
		{"arena/matches/m:void", `{}`, "reason", 400},
		{"arena/matches/m:void", `{"reason":"` + strings.Repeat("x", 257) + `"}`, "reason", 400},
		{"arena/matches/m:void", `{"reason":"r"}`, "season", 400},
		{"arena/matches/twice:void", `{"reason":"r"}`, "season", 400},
		{"arena/matches/m:void", `{"reason":"r","user_id":"u"}`, "user_id", 400},
		{"arena/matches/m:void", `{"reason":"r","season":"1999"}`, "", 404},
		{"arena/matches/" + strings.Repeat("x", 129) + ":void", `{"reason":"r","season":"202611"}`, "match_id", 400},
		{"all/matches/m:void", `{"reason":"r"}`, "board_id", 400},
		{"cup/matches/m:restore", `{"reason":"r"}`, "board", 400},
		{"none/matches/m:restore", `{"reason":"r"}`, "", 404},
	} {
		a := h.do("admin", "POST", "/v1/boards/"+tt.path, tt.body)
		if a.status != tt.status || strings.Join(a.violations(), ",") != tt.field {
			t.Errorf("%.60s %.60s: %d %.300s, want %d naming %q", tt.path, tt.body, a.status, a.raw, tt.status, tt.field)
		}
	}
	if a := h.do("admin", "PATCH", "/v1/boards/cup", `{"matches":true}`); a.status != http.StatusBadRequest {
		t.Errorf("PATCH of matches: %d %s, want 400", a.status, a.raw)
	}
	if a := h.do("admin", "POST", "/v1/boards", `{"board_id":"x","matches":true,"source":{"board_id":"arena"}}`); a.status != http.StatusBadRequest || strings.Join(a.violations(), ",") != "matches" {
		t.Errorf("a linked board with matches: %d %s, want 400 naming matches", a.status, a.raw)
	}
	if a := h.do("submit", "POST", "/v1/boards/arena/matches/twice:void", `{"reason":"r","season":"202611"}`); a.status != http.StatusForbidden {
		t.Errorf("a void without the scope admin: %d %s, want 403", a.status, a.raw)
	}
}
