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
	h.must("admin", "POST", "/v1/boards/arena/matches/later:void", `{"reason":"r","season":"202611","allow_unknown":true}`)
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
		{"arena/matches/m:void", `{"reason":"r"}`, "", 404},
		{"arena/matches/m:restore", `{"reason":"r"}`, "", 404},
		{"arena/matches/m:void", `{"reason":"r","season":"202611"}`, "", 404},
		{"arena/matches/m:void", `{"reason":"r","season":"202611","dry_run":true}`, "", 404},
		{"arena/matches/m:restore", `{"reason":"r","season":"202611"}`, "", 404},
		{"arena/matches/m:void", `{"reason":"r","allow_unknown":true}`, "season", 400},
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
	if a := h.do("admin", "POST", "/v1/boards/arena/matches/m:void", `{"reason":"r","season":"202611"}`); a.reason() != "MATCH_NOT_FOUND" {
		t.Errorf("a void of an unknown match: %d %s, want MATCH_NOT_FOUND", a.status, a.raw)
	}
	if acts := h.acts("?action=match"); len(acts) != 0 {
		t.Errorf("the refused voids left the acts %v, want none", acts)
	}
	for _, board := range []string{"arena", "all"} {
		if a := h.do("admin", "PATCH", "/v1/boards/"+board, fmt.Sprintf(`{"matches":%v}`, board == "all")); a.status != http.StatusBadRequest {
			t.Errorf("PATCH of matches on %s: %d %s, want 400", board, a.status, a.raw)
		}
	}
	if a := h.do("admin", "POST", "/v1/boards", `{"board_id":"x","matches":true,"source":{"board_id":"arena"}}`); a.status != http.StatusBadRequest || strings.Join(a.violations(), ",") != "matches" {
		t.Errorf("a linked board with matches: %d %s, want 400 naming matches", a.status, a.raw)
	}
	if a := h.do("submit", "POST", "/v1/boards/arena/matches/twice:void", `{"reason":"r","season":"202611"}`); a.status != http.StatusForbidden {
		t.Errorf("a void without the scope admin: %d %s, want 403", a.status, a.raw)
	}
}

func TestMatchesAreListed(t *testing.T) {
	h, _ := newMonthlyHarness(t, firstOfNovember)
	h.createBoard(`{"board_id":"arena","policy":"SUM","matches":true,"season":{"schedule":"MONTHLY"}}`)
	h.createBoard(`{"board_id":"all","policy":"SUM","source":{"board_id":"arena"}}`)
	for i, result := range []string{"ann m1", "bob m1", "cyd m1", "ann m10", "ann n", "bob old"} {
		user, match, _ := strings.Cut(result, " ")
		day := "2026-11-01"
		if match == "old" {
			day = "2026-10-31"
		}
		h.must("submit", "POST", "/v1/boards/arena/scores", fmt.Sprintf(`{"user_id":%q,"match_id":%q,"points":%d,"achieved_at":"%sT08:00:00Z"}`, user, match, i+1, day))
	}
	h.must("submit", "POST", "/v1/boards/arena/results/bob/m1:retract", nil)
	h.must("admin", "POST", "/v1/boards/arena/matches/n:void", `{"reason":"wrong map"}`)
	h.must("admin", "POST", "/v1/boards/arena/matches/zz:void", `{"reason":"rigged","season":"202611","allow_unknown":true}`)
	const path = "/v1/boards/arena/matches"
	list := func(query string) (lines []string, next string) {
		t.Helper()
		res := h.must("read", "GET", path+query, nil)
		for _, m := range res["matches"].([]any) {
			lines = append(lines, fmt.Sprint(get(m, "season"), " ", get(m, "match_id"), " ", get(m, "voided"), " ", get(m, "reason")))
		}
		return lines, res["next_page_token"].(string)
	}
	for query, want := range map[string][]string{
		"":               {"202611 m1 false <nil>", "202611 m10 false <nil>", "202611 n true <nil>", "202611 zz true <nil>"},
		"?prefix=m1":     {"202611 m1 false <nil>", "202611 m10 false <nil>"},
		"?prefix=m10":    {"202611 m10 false <nil>"},
		"?prefix=x":      nil,
		"?season=202610": {"202610 old false <nil>"},
	} {
		if got, next := list(query); next != "" || gocmp.Diff(want, got) != "" {
			t.Errorf("matches with %q: %v, next page %q; want %v on one page", query, got, next, want)
		}
	}
	var paged []string
	for query := "?limit=1"; query != ""; {
		page, next := list(query)
		if paged = append(paged, page...); len(page) != 1 {
			t.Fatalf("a page with limit 1 has %v", page)
		}
		if query = ""; next != "" {
			query = "?limit=1&page_token=" + next
		}
	}
	if all, _ := list(""); gocmp.Diff(all, paged) != "" {
		t.Errorf("matches on all pages: %v, want %v", paged, all)
	}
	show := func(scope, match string) string {
		t.Helper()
		res := h.must(scope, "GET", path+"/"+match, nil)
		text := fmt.Sprint(get(res, "match", "season"), " ", get(res, "match", "voided"), " ", get(res, "match", "reason"), ":")
		for _, r := range res["results"].([]any) {
			text += fmt.Sprint(" ", get(r, "user_id"), " ", get(r, "status"), " ", get(r, "result", "points"))
		}
		return text
	}
	for call, want := range map[[2]string]string{
		{"read", "m1"}: "202611 false <nil>: ann APPLIED 1 bob RETRACTED <nil> cyd APPLIED 3",
		{"read", "n"}:  "202611 true <nil>: ann VOIDED 5", {"admin", "n"}: "202611 true wrong map: ann VOIDED 5",
		{"read", "old"}: "202610 false <nil>: bob APPLIED 6", {"admin", "zz?season=202611"}: "202611 true rigged:",
	} {
		if got := show(call[0], call[1]); got != want {
			t.Errorf("the match %s with the scope %s: %s, want %s", call[1], call[0], got, want)
		}
	}
	first := h.must("read", "GET", path+"/m1?limit=2", nil)
	second := h.must("read", "GET", path+"/m1?limit=2&page_token="+first["next_page_token"].(string), nil)
	if len(first["results"].([]any)) != 2 || get(second, "results", 0, "user_id") != "cyd" || second["next_page_token"] != "" {
		t.Errorf("pages of the results of m1: %v, %v; want ann and bob, then cyd", first, second)
	}
	res, err := h.client().GetMatch(h.as("read"), &pb.GetMatchRequest{Board: "arena", MatchId: "m1"})
	if err != nil || len(res.GetResults()) != 3 || res.GetMatch().GetMatchId() != "m1" {
		t.Errorf("over gRPC: %v, %v; want m1 with 3 results", res, err)
	}
	matches, err := h.client().ListMatches(h.as("admin"), &pb.ListMatchesRequest{Board: "arena", Prefix: "n"})
	if err != nil || len(matches.GetMatches()) != 1 || matches.GetMatches()[0].GetReason() != "wrong map" || !strings.HasPrefix(matches.GetMatches()[0].GetActor(), "key:") {
		t.Errorf("over gRPC: %v, %v; want n with its reason and actor", matches, err)
	}
	for path, want := range map[string]string{
		path + "/none": "404", path + "/m1?season=1999": "404", path + "?season=1999": "404", "/v1/boards/none/matches": "404",
		path + "?limit=0": "400 limit", path + "?limit=1001": "400 limit", path + "/m1?limit=0": "400 limit", path + "?page_token=%21": "400 page_token", path + "/m1?page_token=%21": "400 page_token",
		path + "?prefix=" + strings.Repeat("x", 129): "400 prefix", path + "?prefix=%0A": "400 prefix", path + "/" + strings.Repeat("x", 129): "400 match_id",
		"/v1/boards/cup/matches": "400 board", "/v1/boards/cup/matches/m1": "400 board", "/v1/boards/all/matches": "400 board_id",
	} {
		a := h.do("read", "GET", path, nil)
		if got := strings.TrimSpace(fmt.Sprint(a.status, " ", strings.Join(a.violations(), ","))); got != want {
			t.Errorf("GET %.80s: %d %.300s, want %s", path, a.status, a.raw, want)
		}
	}
}

// A board whose field matches is switched on lists and voids matches from before, also of sealed
// seasons.
func TestMatchesAreSwitchedOn(t *testing.T) {
	h, clock := newMonthlyHarness(t, firstOfNovember)
	for _, result := range []string{"ann m 2026-10-30 10", "bob m 2026-10-30 8", "ann n 2026-11-01 3", "bob n 2026-11-01 4"} {
		f := strings.Fields(result)
		h.must("submit", "POST", "/v1/boards/cup/scores", fmt.Sprintf(`{"user_id":%q,"match_id":%q,"achieved_at":"%sT08:00:00Z","score":%s}`, f[0], f[1], f[2], f[3]))
	}
	closed := firstOfNovember.AddDate(0, 0, 10)
	clock.Store(&closed)
	if err := h.service.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if res := h.must("admin", "PATCH", "/v1/boards/cup?dry_run=true", `{"matches":true}`); res["matches"] != true {
		t.Errorf("dry run: %v, want matches true", res)
	}
	if res := h.must("admin", "PATCH", "/v1/boards/cup", `{"matches":true}`); res["matches"] != true || res["filling"] != true {
		t.Errorf("the board: %v, want matches and filling true", res)
	}
	h.must("submit", "POST", "/v1/boards/cup/scores", `{"user_id":"cyd","match_id":"n","score":5,"achieved_at":"2026-11-02T08:00:00Z"}`)
	for _, call := range [][3]string{{"POST", "/v1/boards/cup/matches/n:void", `{"reason":"r"}`}, {"GET", "/v1/boards/cup/matches", ``}, {"GET", "/v1/boards/cup/matches/n", ``}} {
		if a := h.do("admin", call[0], call[1], call[2]); a.status != http.StatusConflict || a.reason() != "MATCHES_FILLING" {
			t.Errorf("%v while the board is filling: %d %s, want 409 MATCHES_FILLING", call, a.status, a.raw)
		}
	}
	if err := h.service.FillDivisions(t.Context()); err != nil {
		t.Fatal(err)
	}
	if res := h.must("admin", "GET", "/v1/boards/cup", nil); res["matches"] != true || res["filling"] != nil {
		t.Errorf("the filled board: %v, want matches true and no filling", res)
	}
	scores := func(season string) (lines []string) {
		for _, e := range get(h.must("read", "GET", "/v1/boards/cup/scores?season="+season, nil), "data", "leaderboard").([]any) {
			lines = append(lines, fmt.Sprint(get(e, "user_id"), " ", get(e, "score"), " ", get(e, "rank")))
		}
		return lines
	}
	for season, want := range map[string]struct {
		match string
		users int
		after []string
	}{"202610": {"m", 2, nil}, "202611": {"n", 3, nil}} {
		if res := h.must("admin", "GET", "/v1/boards/cup/matches/"+want.match, nil); len(res["results"].([]any)) != want.users || get(res, "match", "season") != season {
			t.Errorf("the match %s: %v, want %d results in %s", want.match, res, want.users, season)
		}
		h.must("admin", "POST", "/v1/boards/cup/matches/"+want.match+":void", `{"reason":"wrong map"}`)
		if got := scores(season); gocmp.Diff(want.after, got) != "" {
			t.Errorf("%s after the void of its match: %v, want no entries", season, got)
		}
	}
	h.must("admin", "POST", "/v1/boards/cup/matches/n:restore", `{"reason":"the map was right"}`)
	if got := scores("202611"); gocmp.Diff([]string{"cyd 5 1", "bob 4 2", "ann 3 3"}, got) != "" {
		t.Errorf("202611 after the restoration: %v, want cyd 5, bob 4 and ann 3", got)
	}
}
