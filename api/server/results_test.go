package server

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

func resultLines(a map[string]any) []string {
	var out []string
	results, _ := a["results"].([]any)
	for _, r := range results {
		out = append(out, strings.TrimSpace(fmt.Sprint(get(r, "season"), " ", get(r, "match_id"), " ", get(r, "status"), " ", get(r, "reason"))))
	}
	return out
}

func TestResultsOfAUser(t *testing.T) {
	h, clock := newMonthlyHarness(t, firstOfNovember)
	october := firstOfNovember.Add(-36 * time.Hour)
	submit := func(match, user string, score int, achievedAt time.Time) {
		h.do("submit", "POST", "/v1/boards/cup/scores", fmt.Sprintf(`{"user_id":%q,"match_id":%q,"score":%d,"achieved_at":%q}`, user, match, score, achievedAt.Format(time.RFC3339)))
	}
	submit("b", "ann", 5, october)
	submit("a", "ann", 7, october)
	submit("c", "ann", 9, firstOfNovember)
	submit("d", "ann", 1, firstOfNovember)
	submit("e", "bob", 1, firstOfNovember)
	h.must("submit", "POST", "/v1/boards/cup/results/ann/d:retract", `{}`)
	later := firstOfNovember.AddDate(0, 1, 10)
	clock.Store(&later)
	submit("late", "ann", 3, october)
	want := []string{"202611 c APPLIED", "202611 d RETRACTED", "202610 a APPLIED", "202610 b APPLIED"}
	if a := h.must("read", "GET", "/v1/boards/cup/results/ann/late", nil); get(a, "status") != "REJECTED" || get(a, "reason") != "SEASON_CLOSED" {
		t.Errorf("the late result: %v, want REJECTED with SEASON_CLOSED", a)
	}

	const path = "/v1/boards/cup/results/ann"
	all := h.must("read", "GET", path, nil)
	if d := gocmp.Diff(want, resultLines(all)); d != "" || all["next_page_token"] != "" {
		t.Errorf("next_page_token %v, want none; results (-want +got):\n%s", all["next_page_token"], d)
	}
	for limit := 1; limit <= 5; limit++ {
		var got []string
		token := ""
		for {
			page := h.must("read", "GET", fmt.Sprintf("%s?limit=%d&page_token=%s", path, limit, url.QueryEscape(token)), nil)
			got = append(got, resultLines(page)...)
			if token, _ = page["next_page_token"].(string); token == "" {
				break
			}
		}
		if d := gocmp.Diff(want, got); d != "" {
			t.Errorf("pages of %d (-want +got):\n%s", limit, d)
		}
	}
	if d := gocmp.Diff(want[2:], resultLines(h.must("read", "GET", path+"?season=202610", nil))); d != "" {
		t.Errorf("the results of October (-want +got):\n%s", d)
	}
	if got := resultLines(h.must("read", "GET", "/v1/boards/cup/results/nobody", nil)); got != nil {
		t.Errorf("the results of a user without results: %v, want none", got)
	}
	res, err := h.client().ListUserResults(h.as("read"), &pb.ListUserResultsRequest{Board: "cup", UserId: "ann", Season: "202611"})
	if err != nil || len(res.GetResults()) != 2 || res.GetResults()[0].GetResult().GetScore() != 9 {
		t.Errorf("over gRPC: %v, %v; want 2 results, the first with the score 9", res, err)
	}
	for query, field := range map[string]string{
		"limit=0": "limit", "limit=1001": "limit", "page_token=x": "page_token", "page_token=" + url.QueryEscape(resultToken(ranking.ResultPosition{Match: "m"})): "page_token", "limit=x": "limit", "match=1": "match",
	} {
		if a := h.do("read", "GET", path+"?"+query, nil); a.status != http.StatusBadRequest || strings.Join(a.violations(), ",") != field {
			t.Errorf("GET %s?%s: %d %s, want 400 naming %s", path, query, a.status, a.raw, field)
		}
	}
	for path, want := range map[string]int{"/v1/boards/none/results/ann": 404, path + "?season=1999": 404} {
		if a := h.do("read", "GET", path, nil); a.status != want {
			t.Errorf("GET %s: %d %s, want %d", path, a.status, a.raw, want)
		}
	}
}
