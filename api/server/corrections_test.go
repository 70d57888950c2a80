package server

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

func newMonthlyHarness(t *testing.T, now time.Time) (*harness, *atomic.Pointer[time.Time]) {
	clock := &atomic.Pointer[time.Time]{}
	clock.Store(&now)
	h := newHarness(t, Options{Now: func() time.Time { return *clock.Load() }})
	h.createBoard(`{"board_id":"cup","policy":"BEST","divisions":["gender"],"attributes":["*"],"season":{"schedule":"MONTHLY","grace":"259200s"},
		"tie_breakers":[{"name":"wins"}],"max_score":1000}`)
	return h, clock
}

var firstOfNovember = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

const resultPath = "/v1/boards/cup/results/ann/m"

func TestCorrectionsKeepOtherFields(t *testing.T) {
	h, _ := newMonthlyHarness(t, firstOfNovember)
	h.must("submit", "POST", "/v1/boards/cup/scores", `{"user_id":"ann","match_id":"m","score":10,"tie_breakers":[3],
		"achieved_at":"2026-10-30T08:00:00Z","attributes":{"gender":"F","track":"a"},"metadata":{"bib":7}}`)
	for _, tt := range []struct{ name, body, want string }{
		{"the score", `{"score":20}`, `{"score":20}`},
		{"a tie-breaker", `{"tie_breakers":[4]}`, `{"tie_breakers":[4]}`},
		{"the time", `{"achieved_at":"2026-10-31T08:00:00Z"}`, `{"achieved_at":"2026-10-31T08:00:00Z"}`},
		{"an attribute", `{"attributes":{"track":"b"}}`, `{"attributes":{"gender":"F","track":"b"}}`},
		{"an empty attribute removes it", `{"attributes":{"track":""}}`, `{"attributes":{"gender":"F"}}`},
		{"metadata", `{"metadata":{"bib":8}}`, `{"metadata":{"bib":8}}`},
		{"empty metadata removes it", `{"metadata":{}}`, `{"metadata":null}`},
		{"the score, with the current revision", `{"revision":7,"score":30}`, `{"score":30}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := h.withT(t)
			want, _ := get(h.must("read", "GET", resultPath, nil), "result").(map[string]any)
			var changes map[string]any
			if err := json.Unmarshal([]byte(tt.want), &changes); err != nil {
				t.Fatal(err)
			}
			maps.Copy(want, changes)
			maps.DeleteFunc(want, func(_ string, v any) bool { return v == nil })
			a := h.must("submit", "PATCH", resultPath, tt.body)
			got, _ := get(a, "result").(map[string]any)
			if fmt.Sprint(a["status"], a["season"]) != "APPLIED202610" {
				t.Errorf("PATCH %s: %v, want APPLIED in 202610", tt.body, a)
			}
			delete(want, "revision")
			delete(got, "revision")
			if d := gocmp.Diff(fmt.Sprint(want), fmt.Sprint(got)); d != "" {
				t.Errorf("the corrected result (-want +got):\n%s", d)
			}
			stored, _ := get(h.must("read", "GET", resultPath, nil), "result").(map[string]any)
			delete(stored, "revision")
			if d := gocmp.Diff(fmt.Sprint(got), fmt.Sprint(stored)); d != "" {
				t.Errorf("the stored result (-answered +stored):\n%s", d)
			}
		})
	}
	list := h.must("read", "GET", "/v1/boards/cup/scores?season=202610&division=gender:F", nil)
	if got := get(list, "data", "leaderboard", 0, "score"); fmt.Sprint(got) != "30" {
		t.Errorf("the score in the division is %v, want 30", got)
	}
	if n := get(h.must("read", "GET", "/v1/boards/cup/scores?season=202611", nil), "data", "count"); fmt.Sprint(n) != "0" {
		t.Errorf("November has %v entries, want none", n)
	}
	res, err := h.client().CorrectResult(h.as("submit"), &pb.CorrectResultRequest{Board: "cup", UserId: "ann", MatchId: "m", Score: new(int64), IncludePreviousRank: true})
	if err != nil || res.GetPreviousScore() != 30 || res.GetPreviousRank() != 1 || res.GetPersonalBest() || res.GetNewScore() != 0 {
		t.Errorf("over gRPC: %v, %v; want previous_score 30 with previous_rank 1, new_score 0 and no personal best", res, err)
	}
}

func TestCorrectionsAreRefused(t *testing.T) {
	h, _ := newMonthlyHarness(t, firstOfNovember)
	submit := func(match, achievedAt string) {
		h.must("submit", "POST", "/v1/boards/cup/scores", fmt.Sprintf(`{"user_id":"ann","match_id":%q,"score":10,"achieved_at":%q}`, match, achievedAt))
	}
	submit("m", "2026-10-30T08:00:00Z")
	submit("twice", "2026-10-30T08:00:00Z")
	submit("twice", "2026-11-01T08:00:00Z")
	submit("gone", "2026-11-01T08:00:00Z")
	h.must("submit", "POST", "/v1/boards/cup/results/ann/gone:retract", "{}")
	h.must("submit", "PATCH", resultPath, `{"score":11}`)
	for _, tt := range []struct {
		path, body   string
		status       int
		field, words string
	}{
		{"ann/m", `{}`, 400, "score", "give the fields to change"},
		{"ann/m", `{"score":1001}`, 400, "score", "1001"},
		{"ann/m", `{"points":1}`, 400, "points", "takes score"},
		{"ann/m", `{"score":"x"}`, 400, "score", ""},
		{"ann/m", `{"tie_breakers":[1,2]}`, 400, "tie_breakers", ""},
		{"ann/m", `{"attributes":{"Gender":"F"}}`, 400, "attributes", ""},
		{"ann/m", `{"nonsense":1}`, 400, "nonsense", ""},
		{"ann/m", `{"achieved_at":"2026-11-01T00:00:00Z"}`, 400, "achieved_at", "in the season of the result, 202610"},
		{"ann/m", `{"score":1,"user_id":"bob"}`, 400, "user_id", "path"},
		{"ann/m", `{"score":1,"reason":"` + strings.Repeat("x", 257) + `"}`, 400, "reason", "256"},
		{"ann/m", `{"score":1,"season":"202611"}`, 404, "", "match result not found"},
		{"ann/m", `{"score":1,"season":"2026"}`, 404, "", "season"},
		{"ann/nothing", `{"score":1}`, 404, "", "match result not found"},
		{"ann/gone", `{"score":1}`, 404, "", "match result not found"},
		{"ann/twice", `{"score":1}`, 400, "season", `"202610" "202611"`},
	} {
		a := h.do("submit", "PATCH", "/v1/boards/cup/results/"+tt.path, tt.body)
		if a.status != tt.status || !strings.Contains(a.raw, strings.ReplaceAll(tt.words, `"`, `\"`)) || tt.field != "" && !slices.Contains(a.violations(), tt.field) {
			t.Errorf("PATCH %s %s: %d %s, want %d that names %q with %q", tt.path, tt.body, a.status, a.raw, tt.status, tt.field, tt.words)
		}
	}
	old := h.do("submit", "PATCH", resultPath, `{"score":12,"revision":0}`)
	if old.status != http.StatusConflict || old.reason() != "REVISION_CHANGED" || !strings.Contains(old.raw, `"score":11`) {
		t.Errorf("PATCH of revision 0: %d %s, want 409 REVISION_CHANGED with the result of revision 1", old.status, old.raw)
	}
	if a := h.do("read", "PATCH", resultPath, `{"score":12}`); a.status != http.StatusForbidden {
		t.Errorf("PATCH with the scope read: %d %s, want 403", a.status, a.raw)
	}
	if a := h.must("submit", "PATCH", "/v1/boards/cup/results/ann/twice", `{"score":12,"season":"202610"}`); a["season"] != "202610" {
		t.Errorf("PATCH with a season: %v, want 202610", a)
	}
}

func TestCorrectionsCannotGoBelowTheFloor(t *testing.T) {
	h := newHarness(t, Options{})
	h.createBoard(`{"board_id":"purse","policy":"SUM","floor":0}`)
	for _, body := range []string{`{"user_id":"ann","match_id":"gift","points":10}`, `{"user_id":"ann","match_id":"bet","points":-5}`} {
		h.must("submit", "POST", "/v1/boards/purse/scores", body)
	}
	const gift = "/v1/boards/purse/results/ann/gift"
	if a := h.do("submit", "PATCH", gift, `{"points":4}`); a.status != http.StatusConflict || a.reason() != "FLOOR" {
		t.Errorf("a correction below the floor: %d %s, want 409 FLOOR", a.status, a.raw)
	}
	h.must("submit", "POST", "/v1/boards/purse/scores", `{"user_id":"ann","match_id":"gift-2","points":1}`)
	if a := h.must("submit", "PATCH", gift, `{"points":4}`); fmt.Sprint(a["status"], a["new_score"]) != "APPLIED0" {
		t.Errorf("the same correction with a higher sum: %v, want APPLIED with the score 0", a)
	}
}

// The oracle of a dry run is the correction itself: both have the same answer, and only the
// correction changes the board.
func TestDryRunsOfCorrections(t *testing.T) {
	h, clock := newMonthlyHarness(t, firstOfNovember)
	h.createBoard(`{"board_id":"purse","policy":"SUM","floor":0}`)
	h.createBoard(`{"board_id":"women","policy":"SUM","source":{"board_id":"purse"}}`)
	for user, score := range map[string]int{"ann": 10, "bob": 15, "cyd": 20} {
		h.must("submit", "POST", "/v1/boards/cup/scores", fmt.Sprintf(`{"user_id":%q,"match_id":"m","score":%d,"achieved_at":"2026-10-30T08:00:00Z"}`, user, score))
		h.must("submit", "POST", "/v1/boards/purse/scores", fmt.Sprintf(`{"user_id":%q,"match_id":"gift","points":%d}`, user, score))
		h.must("submit", "POST", "/v1/boards/purse/scores", fmt.Sprintf(`{"user_id":%q,"match_id":"bet","points":-5}`, user))
	}
	boards := func() (all []string) {
		for _, path := range []string{"cup/scores?season=202610", "purse/scores", "women/scores"} {
			all = append(all, h.do("read", "GET", "/v1/boards/"+path, nil).raw)
		}
		return append(all, h.do("read", "GET", resultPath, nil).raw)
	}
	leaders := func(all []string) string {
		var b strings.Builder
		for _, raw := range all {
			var answer map[string]any
			if err := json.Unmarshal([]byte(raw), &answer); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(&b, get(answer, "data", "leaderboard"), get(answer, "result"))
		}
		return b.String()
	}
	for _, tt := range []struct {
		name, path, body, effects string
	}{
		{"a better score", resultPath, `{"score":17}`, "cup 10>17 3>2"},
		{"a worse score", resultPath, `{"score":1}`, "cup 17>1 2>3"},
		{"no change of the score", resultPath, `{"attributes":{"gender":"F"}}`, ""},
		{"points, also on the linked board", "/v1/boards/purse/results/bob/gift", `{"points":30}`, "purse 10>25 2>1, women 10>25 2>1"},
		{"a refusal because of the floor", "/v1/boards/purse/results/ann/gift", `{"points":4}`, ""},
		{"fewer points, above the floor", "/v1/boards/purse/results/ann/gift", `{"points":6}`, "purse 5>1 3>3, women 5>1 3>3"},
		{"an unknown match", "/v1/boards/purse/results/ann/none", `{"points":6}`, ""},
		{"another revision", resultPath, `{"score":5,"revision":99}`, ""},
		{"a score above the maximum", resultPath, `{"score":5000}`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := h.withT(t)
			before := leaders(boards())
			dry := h.do("submit", "PATCH", tt.path+"?dry_run=true", tt.body)
			if after := leaders(boards()); after != before {
				t.Errorf("the dry run changed the boards from\n%s to\n%s", before, after)
			}
			act := h.do("submit", "PATCH", tt.path, tt.body)
			if dry.status != act.status || dry.reason() != act.reason() || fmt.Sprint(dry.body["result"], dry.body["new_score"], dry.body["rank"]) != fmt.Sprint(act.body["result"], act.body["new_score"], act.body["rank"]) {
				t.Errorf("the dry run answers %d %s, the correction %d %s; want the same status, reason, result, score and rank", dry.status, dry.raw, act.status, act.raw)
			}
			var effects []string
			list, _ := get(dry.body, "effect", "entries").([]any)
			for _, e := range list {
				effects = append(effects, fmt.Sprintf("%v %v>%v %v>%v", get(e, "board"), get(e, "score_before"), get(e, "score_after"), get(e, "rank_before"), get(e, "rank_after")))
			}
			slices.Sort(effects)
			if got := strings.Join(effects, ", "); got != tt.effects {
				t.Errorf("the effect is %q, want %q", got, tt.effects)
			}
		})
	}
	// In a closed season, a dry run needs what the correction needs, and leaves no record.
	later := firstOfNovember.AddDate(0, 1, 0)
	clock.Store(&later)
	if a := h.do("submit", "PATCH", resultPath+"?dry_run=true", `{"score":3,"season":"202610"}`); a.status != http.StatusForbidden {
		t.Errorf("a dry run in a closed season without the admin scope: %d %s, want 403", a.status, a.raw)
	}
	h.must("admin", "PATCH", resultPath+"?dry_run=true", `{"score":3,"season":"202610","reason":"lane"}`)
	if a := h.must("admin", "GET", "/v1/audit", nil); strings.Contains(fmt.Sprint(a), "result.correct") {
		t.Errorf("the dry run left a record: %v", a)
	}
}

func TestConcurrentCorrectionsAllCount(t *testing.T) {
	h, _ := newMonthlyHarness(t, firstOfNovember)
	h.must("submit", "POST", "/v1/boards/cup/scores", `{"user_id":"ann","match_id":"m","score":10}`)
	const callers, corrections = 6, 5
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for n := range corrections {
				if a := h.do("submit", "PATCH", resultPath, fmt.Sprintf(`{"attributes":{"a%d":"%d"}}`, i, n)); a.status != http.StatusOK || a.body["status"] != "APPLIED" {
					t.Errorf("correction %d of caller %d: %d %s, want APPLIED", n, i, a.status, a.raw)
				}
			}
		})
	}
	wg.Wait()
	r := get(h.must("read", "GET", resultPath, nil), "result").(map[string]any)
	want := map[string]any{}
	for i := range callers {
		want[fmt.Sprint("a", i)] = fmt.Sprint(corrections - 1)
	}
	if d := gocmp.Diff(want, r["attributes"]); d != "" || fmt.Sprint(r["revision"]) != fmt.Sprint(callers*corrections) {
		t.Errorf("revision %v, attributes (-want +got):\n%s; want revision %d", r["revision"], d, callers*corrections)
	}
}

func TestRetractionsDuringCorrections(t *testing.T) {
	h, _ := newMonthlyHarness(t, firstOfNovember)
	const callers, rounds = 3, 15
	for round := range rounds {
		match := fmt.Sprint("m", round)
		path := "/v1/boards/cup/results/ann/" + match
		submit := func(revision int) answer {
			return h.do("submit", "POST", "/v1/boards/cup/scores", fmt.Sprintf(`{"user_id":"ann","match_id":%q,"score":10,"revision":%d,"achieved_at":"2026-11-01T08:00:00Z"}`, match, revision))
		}
		submit(0)
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				for n := range 4 {
					// 404: the result is retracted
					if a := h.do("submit", "PATCH", path, fmt.Sprintf(`{"score":%d}`, n+i)); a.status != http.StatusOK && a.status != http.StatusNotFound {
						t.Errorf("a correction: %d %s, want 200 or 404", a.status, a.raw)
					}
				}
			})
		}
		collides := round%2 == 1
		if collides {
			wg.Go(func() { submit(1) })
		}
		wg.Go(func() {
			retract := func() answer {
				switch round % 3 {
				case 0:
					return h.do("submit", "POST", path+":retract", nil)
				case 1:
					return h.do("submit", "POST", "/v1/boards/cup/results:retract", fmt.Sprintf(`{"results":[{"user_id":"ann","match_id":%q}]}`, match))
				}
				return h.do("submit", "POST", "/v1/boards/cup/results/ann:purge", `{"from":"2026-10-01T00:00:00Z"}`)
			}
			a := retract()
			if success, single := a.body["success"]; a.status != http.StatusOK || single && success != true || strings.Contains(a.raw, "SUPERSEDED") {
				t.Errorf("the retraction: %d %s, want success and not SUPERSEDED", a.status, a.raw)
			}
		})
		wg.Wait()
		// A submit does not reserve its revision, so the retraction may have revision 1 too. A
		// correction of the submitted result has revision 2, so it may replace this retraction.
		if a := h.must("read", "GET", path, nil); a["status"] != "RETRACTED" && !collides {
			t.Errorf("after the retraction, the result is %v, want it RETRACTED", a)
		}
	}
}

// Corrections and retractions in a closed season need the admin scope and a reason. They amend the
// final standings and are in the audit log.
func TestAmendmentsOfClosedSeasonsAreRecorded(t *testing.T) {
	for _, sealed := range []bool{false, true} {
		t.Run(fmt.Sprint("sealed ", sealed), func(t *testing.T) {
			h, clock := newMonthlyHarness(t, firstOfNovember)
			for i, user := range []string{"ann", "bob", "cyd"} {
				h.must("submit", "POST", "/v1/boards/cup/scores", fmt.Sprintf(`{"user_id":%q,"match_id":"m","score":%d,"achieved_at":"2026-10-30T08:00:00Z"}`, user, 10*(i+1)))
			}
			later := firstOfNovember.AddDate(0, 0, 10)
			clock.Store(&later)
			if sealed {
				if err := h.service.Sweep(t.Context()); err != nil {
					t.Fatal(err)
				}
				afterSeal := later.Add(time.Minute)
				clock.Store(&afterSeal)
			}
			for _, call := range []struct{ method, path, body string }{
				{"PATCH", resultPath, `{"score":40%s}`},
				{"POST", "/v1/boards/cup/results/cyd/m:retract", `{"season":"202610","dry_run":true%s}`},
				{"POST", "/v1/boards/cup/results/cyd/m:retract", `{"season":"202610"%s}`},
			} {
				bare, reasoned := fmt.Sprintf(call.body, ""), fmt.Sprintf(call.body, `,"reason":"wrong lane"`)
				if a := h.do("submit", call.method, call.path, reasoned); a.status != http.StatusForbidden || a.reason() != "SCOPE_REQUIRED" {
					t.Errorf("%s %s with the scope submit: %d %s, want 403", call.method, call.path, a.status, a.raw)
				}
				if a := h.do("admin", call.method, call.path, bare); a.status != http.StatusBadRequest || !slices.Contains(a.violations(), "reason") {
					t.Errorf("%s %s without a reason: %d %s, want 400 that names reason", call.method, call.path, a.status, a.raw)
				}
				if a := h.must("admin", call.method, call.path, reasoned); a["status"] != "APPLIED" || a["season"] != "202610" {
					t.Errorf("%s %s: %v, want APPLIED in 202610", call.method, call.path, a)
				}
			}
			page := h.must("read", "GET", "/v1/boards/cup/scores?season=202610", nil)
			var got []string
			for _, e := range get(page, "data", "leaderboard").([]any) {
				got = append(got, fmt.Sprint(get(e, "user_id"), " ", get(e, "score"), " ", get(e, "rank")))
			}
			if d := gocmp.Diff([]string{"ann 40 1", "bob 20 2"}, got); d != "" || get(page, "data", "sealed") != sealed {
				t.Errorf("ranking of October (-want +got):\n%s\nsealed %v, want %v", d, get(page, "data", "sealed"), sealed)
			}
			var acts []string
			for _, a := range h.acts("?action=result") {
				acts = append(acts, fmt.Sprint(a["action"], " ", a["season"], " ", a["user_id"], " ", a["reason"], " ", a["match_id"]))
			}
			slices.Sort(acts) // all acts have the same time
			if d := gocmp.Diff([]string{"result.correct 202610 ann wrong lane m", "result.retract 202610 cyd wrong lane m"}, acts); d != "" {
				t.Errorf("acts (-want +got):\n%s", d)
			}
			if sealed {
				seasons := h.must("read", "GET", "/v1/boards/cup/seasons", nil)
				if n := len(get(seasons, "data", "seasons", 1, "amendments").([]any)); n != 2 {
					t.Errorf("the season has %d amendments, want 2: %v", n, seasons)
				}
			}
			if a := h.do("admin", "POST", "/v1/boards/cup/scores", `{"user_id":"dan","match_id":"m","score":50,"achieved_at":"2026-10-30T08:00:00Z"}`); a.reason() != "SEASON_CLOSED" {
				t.Errorf("a new result of the closed season: %d %s, want SEASON_CLOSED", a.status, a.raw)
			}
		})
	}
}

func TestMatchesAreFoundInTheirSeason(t *testing.T) {
	h, _ := newMonthlyHarness(t, firstOfNovember)
	h.must("submit", "POST", "/v1/boards/cup/scores", `{"user_id":"ann","match_id":"m","score":10,"achieved_at":"2026-10-30T08:00:00Z"}`)
	if a := h.must("read", "GET", resultPath, nil); a["season"] != "202610" || a["status"] != "APPLIED" {
		t.Errorf("GET: %v, want APPLIED in 202610", a)
	}
	for range 2 {
		if a := h.must("submit", "POST", resultPath+":retract", nil); a["season"] != "202610" || fmt.Sprint(a["revision"]) != "1" || a["success"] != true {
			t.Errorf("retract: %v, want revision 1 in 202610", a)
		}
	}
	if a := h.must("submit", "POST", "/v1/boards/cup/results/ann/early:retract", `{"revision":3}`); a["season"] != "202611" {
		t.Errorf("a retraction before its result: %v, want the current season", a)
	}
	if a := h.do("submit", "POST", "/v1/boards/cup/results/ann/none:retract", nil); a.status != http.StatusNotFound {
		t.Errorf("a retraction of an unknown match: %d %s, want 404", a.status, a.raw)
	}
	for _, day := range []string{"2026-10-30", "2026-11-01"} {
		h.must("submit", "POST", "/v1/boards/cup/scores", fmt.Sprintf(`{"user_id":"ann","match_id":"both","score":10,"achieved_at":"%sT08:00:00Z"}`, day))
	}
	if a := h.do("submit", "POST", "/v1/boards/cup/results/ann/both:retract", nil); a.status != http.StatusBadRequest || !slices.Contains(a.violations(), "season") {
		t.Errorf("a retraction of a match in two seasons: %d %s, want 400 that names season", a.status, a.raw)
	}
}

// Without a time, a submit meant as a correction would add a second result in the current season.
func TestCorrectionsBySubmitNeedATime(t *testing.T) {
	h, _ := newMonthlyHarness(t, firstOfNovember)
	h.createBoard(`{"board_id":"ever","policy":"BEST"}`)
	const body = `{"user_id":"ann","match_id":"m","score":1,"revision":1%s}`
	a := h.do("submit", "POST", "/v1/boards/cup/scores", fmt.Sprintf(body, ""))
	if a.status != http.StatusBadRequest || !slices.Contains(a.violations(), "achieved_at") || !strings.Contains(a.raw, "use PATCH") {
		t.Errorf("without a time: %d %s, want 400 that names achieved_at and PATCH", a.status, a.raw)
	}
	batch := h.must("submit", "POST", "/v1/boards/cup/scores:batch", `{"results":[`+fmt.Sprintf(body, "")+`]}`)
	if o := get(batch, "outcomes", 0); get(o, "status") != "REJECTED" || get(o, "reason") != "INVALID" || !strings.Contains(fmt.Sprint(get(o, "detail")), "use PATCH") {
		t.Errorf("in a batch: %v, want REJECTED, INVALID with a detail about PATCH", o)
	}
	if a := h.must("submit", "POST", "/v1/boards/cup/scores", fmt.Sprintf(body, `,"achieved_at":"2026-10-30T08:00:00Z"`)); a["season"] != "202610" {
		t.Errorf("with a time: %v, want it applied in 202610", a)
	}
	h.must("submit", "POST", "/v1/boards/ever/scores", fmt.Sprintf(body, ""))
}

func TestSubmitsNameASeason(t *testing.T) {
	h, clock := newMonthlyHarness(t, firstOfNovember.Add(-13*time.Hour))
	const path = "/v1/boards/cup/scores"
	first := h.must("submit", "POST", path, `{"user_id":"ann","match_id":"m","score":10}`)
	clock.Store(&firstOfNovember)
	const body = `{"user_id":"ann","match_id":%q,"score":%d,"revision":%d%s}`
	a := h.must("submit", "POST", path, fmt.Sprintf(body, "m", 20, 1, `,"season":"202610"`))
	if a["season"] != "202610" || a["achieved_at"] != first["achieved_at"] || fmt.Sprint(a["previous_score"]) != "10" {
		t.Errorf("a correction of October without a time: %v, want the season and the time of %v", a, first)
	}
	h.must("submit", "POST", path, `{"user_id":"bob","match_id":"m","score":1,"achieved_at":"2026-11-01T11:00:00Z"}`)
	a = h.must("submit", "POST", path, `{"user_id":"bob","match_id":"m","score":2,"revision":1,"season":"202611"}`)
	if a["season"] != "202611" || a["achieved_at"] != "2026-11-01T11:00:00Z" {
		t.Errorf("a correction of November: %v, want the time of the stored result", a)
	}
	if a := h.must("submit", "POST", path, fmt.Sprintf(body, "m", 30, 2, `,"season":"202610","achieved_at":"2026-10-30T08:00:00Z"`)); a["achieved_at"] != "2026-10-30T08:00:00Z" {
		t.Errorf("a correction with a time: %v, want the time of the correction", a)
	}
	for _, tt := range []struct{ match, fields, field, words string }{
		{"m", `,"season":"202610","achieved_at":"2026-11-01T08:00:00Z"`, "achieved_at", "is in season 202611, not in season 202610"},
		{"new", `,"season":"202610"`, "achieved_at", "the match has no result in season 202610"},
		{"", `,"season":"202610"`, "match_id", ""},
		{"m", `,"season":"2026"`, "season", "no season"},
		{"m", `,"season":"latest"`, "season", "no season"},
	} {
		a := h.do("submit", "POST", path, fmt.Sprintf(body, tt.match, 1, 9, tt.fields))
		if a.status != http.StatusBadRequest || !slices.Contains(a.violations(), tt.field) || !strings.Contains(a.raw, tt.words) {
			t.Errorf("match %q with %s: %d %s, want 400 that names %s with %q", tt.match, tt.fields, a.status, a.raw, tt.field, tt.words)
		}
	}
	batch := h.must("submit", "POST", path+":batch", `{"results":[`+fmt.Sprintf(body, "m", 1, 9, `,"season":"2026"`)+`,`+fmt.Sprintf(body, "m", 40, 3, `,"season":"202610"`)+`]}`)
	if get(batch, "outcomes", 0, "status") != "REJECTED" || get(batch, "outcomes", 1, "season") != "202610" {
		t.Errorf("a batch: %v, want the first result REJECTED, and the second in October", batch)
	}
}

func TestRandomCorrections(t *testing.T) {
	runSeed := seed.New(t)
	rng := rand.New(rand.NewPCG(runSeed, 0))
	h, _ := newMonthlyHarness(t, firstOfNovember)
	type stored struct {
		score      int64
		attributes map[string]string
		revision   int64
		retracted  bool
	}
	model := map[string]*stored{}
	best := func(user string) (score int64, ok bool) {
		for key, s := range model {
			if strings.HasPrefix(key, user+"/") && !s.retracted && (!ok || s.score > score) {
				score, ok = s.score, true
			}
		}
		return score, ok
	}
	for step := range 400 {
		user, match := fmt.Sprint("u", rng.IntN(3)), fmt.Sprint("m", rng.IntN(4))
		key := user + "/" + match
		result, scoreBefore := model[key], ""
		if score, ok := best(user); ok {
			scoreBefore = fmt.Sprint(score)
		}
		score := rng.Int64N(1000)
		name, value := fmt.Sprint("x", rng.IntN(2)), []string{"", "p", "q"}[rng.IntN(3)]
		var a answer
		switch n := rng.IntN(10); {
		case n < 3 && (result == nil || result.retracted):
			added := &stored{score: score, attributes: map[string]string{"gender": "F"}}
			if result != nil {
				added.revision = result.revision + 1
			}
			a = h.do("submit", "POST", "/v1/boards/cup/scores", fmt.Sprintf(
				`{"user_id":%q,"match_id":%q,"score":%d,"revision":%d,"achieved_at":"2026-10-30T08:00:00Z","attributes":{"gender":"F"}}`, user, match, score, added.revision))
			model[key] = added
		case n < 4 && result != nil && !result.retracted:
			a = h.do("submit", "POST", "/v1/boards/cup/results/"+key+":retract", nil)
			result.retracted, result.revision = true, result.revision+1
		case result != nil && !result.retracted && rng.IntN(2) == 0:
			a = h.do("submit", "PATCH", "/v1/boards/cup/results/"+key, fmt.Sprintf(`{"score":%d}`, score))
			result.score, result.revision = score, result.revision+1
		case result != nil && !result.retracted:
			a = h.do("submit", "PATCH", "/v1/boards/cup/results/"+key, fmt.Sprintf(`{"attributes":{%q:%q},"revision":%d}`, name, value, result.revision))
			if result.attributes[name] = value; value == "" {
				delete(result.attributes, name)
			}
			result.revision++
		default:
			if a = h.do("submit", "PATCH", "/v1/boards/cup/results/"+key, `{"score":1}`); a.status != http.StatusNotFound {
				t.Fatalf("seed %d, step %d: PATCH of %s: %d %s, want 404", runSeed, step, key, a.status, a.raw)
			}
			continue
		}
		want := ""
		if score, ok := best(user); ok {
			want = fmt.Sprint(score)
		}
		text := func(v any) string { return strings.TrimPrefix(fmt.Sprint(v), "<nil>") }
		if a.body["status"] != "APPLIED" || text(a.body["new_score"]) != want || a.body["previous_score"] != nil && text(a.body["previous_score"]) != scoreBefore {
			t.Fatalf("seed %d, step %d: %d %s, want APPLIED with the score %q, and the previous score %q if any", runSeed, step, a.status, a.raw, want, scoreBefore)
		}
		r := get(h.must("read", "GET", "/v1/boards/cup/results/"+key, nil), "result")
		s := model[key]
		got := fmt.Sprintf("%v %v %v", get(r, "score"), get(r, "attributes"), get(r, "revision"))
		attributes := any(s.attributes)
		if len(s.attributes) == 0 {
			attributes = map[string]string{}
		}
		if expect := fmt.Sprintf("%v %v %v", s.score, attributes, s.revision); !s.retracted && got != expect {
			t.Fatalf("seed %d, step %d: the result of %s is %s, want %s", runSeed, step, key, got, expect)
		}
	}
	for _, user := range []string{"u0", "u1", "u2"} {
		e, err := h.store.Entry(t.Context(), leaderboard.SeasonKey{Board: "cup", Season: "202610"}, leaderboard.UserID(user))
		if _, ok := best(user); ok != (err == nil) {
			t.Errorf("seed %d: entry of %s: %+v, error %v; the model has an entry: %t", runSeed, user, e, err, ok)
		}
	}
}
