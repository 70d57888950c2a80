package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

func TestSubmitStatesWhatItChanged(t *testing.T) {
	h := newHarness(t, Options{})
	h.must("admin", "POST", "/v1/boards", `{"board_id":"race","order":"LOWER_FIRST","policy":"BEST"}`)
	for i, score := range []int{50, 60, 70, 80} {
		h.must("submit", "POST", "/v1/boards/race/scores", fmt.Sprintf(`{"user_id":"u%d","match_id":"m","score":%d}`, i, score))
	}
	for _, tt := range []struct {
		name, body string
		want       map[string]any // nil if the field is absent
	}{
		{"the first result", `{"user_id":"ann","match_id":"m1","score":75}`,
			map[string]any{"previous_score": nil, "previous_rank": nil, "personal_best": true, "rank": 4}},
		{"a worse result", `{"user_id":"ann","match_id":"m2","score":90}`,
			map[string]any{"previous_score": 75, "previous_rank": 4, "personal_best": false, "rank": 4}},
		{"a better result", `{"user_id":"ann","match_id":"m3","score":60}`,
			map[string]any{"previous_score": 75, "previous_rank": 4, "personal_best": true, "rank": 2}},
		{"a repeated result", `{"user_id":"ann","match_id":"m3","score":60}`,
			map[string]any{"previous_score": nil, "previous_rank": nil, "personal_best": nil, "rank": 2}},
		{"a correction to a worse score", `{"user_id":"ann","match_id":"m3","revision":1,"score":85}`,
			map[string]any{"previous_score": 60, "previous_rank": 2, "personal_best": false, "new_score": 75, "rank": 4}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := h.withT(t).do("submit", "POST", "/v1/boards/race/scores?include_previous_rank=true", tt.body)
			for field, want := range tt.want {
				if got := a.body[field]; fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("%s is %v, want %v: %s", field, got, want, a.raw)
				}
			}
		})
	}
	a := h.do("submit", "POST", "/v1/boards/race/scores", `{"user_id":"ann","match_id":"m4","score":74}`)
	if _, ok := a.body["previous_rank"]; ok || fmt.Sprint(a.body["previous_score"]) != "75" {
		t.Errorf("without include_previous_rank: %s; want previous_score 75 and no previous_rank", a.raw)
	}
	a = h.do("submit", "POST", "/v1/scores", `{"user_id":"ann","points":1}`)
	if _, ok := a.body["personal_best"]; ok {
		t.Errorf("submit to a board with the policy SUM: %s; want no personal_best", a.raw)
	}
	res, err := h.client().SubmitScore(h.as("submit"), &pb.SubmitScoreRequest{
		Board: "race", Result: &pb.Result{UserId: "ann", MatchId: "m5", Score: new(int64)}, IncludePreviousRank: true,
	})
	if err != nil || res.GetPreviousScore() != 74 || res.GetPreviousRank() != 4 || !res.GetPersonalBest() {
		t.Errorf("over gRPC: %v, %v; want previous_score 74, previous_rank 4 and personal_best", res, err)
	}
}

// Each outcome of a batch has the score after its own result. Only the outcome with the user's
// score after the batch has a rank.
func TestBatchOutcomesHaveTheirOwnScores(t *testing.T) {
	h := newHarness(t, Options{})
	h.createBoard(`{"board_id":"ever","policy":"SUM"}`)
	a := h.do("submit", "POST", "/v1/boards/ever/scores:batch?include_previous_rank=true", `{"results":[
		{"user_id":"ann","match_id":"m1","points":5}, {"user_id":"bob","match_id":"m1","points":8},
		{"user_id":"ann","match_id":"m2","points":2}, {"user_id":"ann","match_id":"m1","points":5},
		{"user_id":"ann","match_id":"m1","points":9,"revision":1}, {"user_id":"ann","match_id":"m3","points":1}]}`)
	var got []string
	for _, o := range get(a.body, "outcomes").([]any) {
		o := o.(map[string]any)
		got = append(got, fmt.Sprint(o["status"], " ", o["previous_score"], " ", o["new_score"], " ", o["rank"], " ", o["previous_rank"]))
	}
	want := []string{
		"APPLIED <nil> 5 <nil> <nil>", "APPLIED <nil> 8 2 <nil>", "APPLIED 5 7 <nil> 2", "DUPLICATE <nil> 7 <nil> <nil>",
		"APPLIED 7 11 <nil> 2", "APPLIED 11 12 1 1",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("status, previous_score, new_score, rank and previous_rank are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A rejected result stays rejected, even if the board would now accept it.
func TestRepeatedRejectionIsStated(t *testing.T) {
	h := newHarness(t, Options{})
	h.must("admin", "POST", "/v1/boards", `{"board_id":"purse","policy":"SUM","floor":0}`)
	const bet = `{"user_id":"ann","match_id":"bet","points":-5}`
	first := h.do("submit", "POST", "/v1/boards/purse/scores", bet)
	if first.status != http.StatusConflict || strings.Contains(first.raw, "before") {
		t.Errorf("first bet: %d %s, want 409 without a mention of an earlier rejection", first.status, first.raw)
	}
	h.must("submit", "POST", "/v1/boards/purse/scores", `{"user_id":"ann","match_id":"gift","points":10}`)
	again := h.do("submit", "POST", "/v1/boards/purse/scores", bet)
	for _, want := range []string{"was rejected before (FLOOR)", "new match_id"} {
		if again.status != http.StatusConflict || !strings.Contains(again.body["message"].(string), want) {
			t.Errorf("repeated bet: %d %s, want 409 with %q", again.status, again.raw, want)
		}
	}
	h.must("submit", "POST", "/v1/boards/purse/scores", strings.Replace(bet, `"bet"`, `"bet-2"`, 1))
	batch := h.do("submit", "POST", "/v1/boards/purse/scores:batch", `{"results":[`+bet+`]}`)
	if o := get(batch.body, "outcomes").([]any)[0].(map[string]any); !strings.Contains(fmt.Sprint(o["detail"]), "was rejected before") || fmt.Sprint(o["new_score"]) != "5" {
		t.Errorf("repeated bet in a batch: %s, want a detail with \"was rejected before\", and the current score 5", batch.raw)
	}
}

func TestConflictSaysWhichResultCounts(t *testing.T) {
	h := newHarness(t, Options{})
	submit := func(match string, points int) answer {
		return h.do("submit", "POST", "/v1/scores", fmt.Sprintf(`{"user_id":"ann","match_id":%q,"points":%d}`, match, points))
	}
	for i, tt := range []struct {
		first, second int
		stands        bool
		detail        string
	}{{5, 3, false, "the stored one counts"}, {3, 5, true, "this one counts"}} {
		match := fmt.Sprint("m", i)
		submit(match, tt.first)
		a := submit(match, tt.second)
		if a.body["status"] != "CONFLICT" || a.body["stands"] != tt.stands || !strings.Contains(fmt.Sprint(a.body["detail"]), tt.detail) {
			t.Errorf("%d after %d: %s; want CONFLICT with stands %v and %q", tt.second, tt.first, a.raw, tt.stands, tt.detail)
		}
		if a.body["success"] != false || fmt.Sprint(a.body["new_score"]) != fmt.Sprint(5*(i+1)) {
			t.Errorf("%d after %d: %s; want success false and new_score %d", tt.second, tt.first, a.raw, 5*(i+1))
		}
	}
}

func TestUndeclaredDivisionsAreRefused(t *testing.T) {
	h := newHarness(t, Options{})
	h.must("admin", "POST", "/v1/boards", `{"board_id":"cup","policy":"SUM","divisions":["gender"]}`)
	h.must("submit", "POST", "/v1/boards/cup/scores", `{"user_id":"ann","points":1,"attributes":{"gender":"F"}}`)
	for _, path := range []string{"scores?", "scores/ann?", "stats?", "watch?", "scores?season=latest&"} {
		a := h.do("read", "GET", "/v1/boards/cup/"+path+"division=country:KEN", nil)
		if a.status != http.StatusBadRequest || !strings.Contains(a.raw, "division") {
			t.Errorf("%s with an undeclared division: %d %s, want 400 that names division", path, a.status, a.raw)
		}
	}
	if a := h.do("read", "POST", "/v1/boards/cup/scores:lookup", `{"user_ids":["ann"],"division":"country:KEN"}`); a.status != http.StatusBadRequest {
		t.Errorf("lookup with an undeclared division: %d %s, want 400", a.status, a.raw)
	}
}
