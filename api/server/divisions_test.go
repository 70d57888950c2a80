package server

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

func newRaceHarness(t *testing.T) *harness {
	h := newHarness(t, Options{})
	h.createBoard(`{"board_id":"race","divisions":["gender","gender+age"]}`)
	for i, r := range []string{`"gender":"F","age":"30-34"`, `"gender":"M","age":"30-34"`, `"gender":"F","age":"30-34"`, `"gender":"F","age":"7+\\"`, `"gender":"F"`} {
		h.must("submit", "POST", "/v1/boards/race/scores", fmt.Sprintf(`{"user_id":"u%d","match_id":"m","score":%d,"attributes":{%s}}`, i, i, r))
	}
	return h
}

func TestCrossedDivisions(t *testing.T) {
	h := newRaceHarness(t)
	const crossed = `gender+age:F+30-34`
	var users []string
	for _, query := range []string{"division=gender:F&division=age:30-34", "division=age:30-34&division=gender:F", "division=" + url.QueryEscape(crossed)} {
		list := get(h.must("read", "GET", "/v1/boards/race/scores?include_metadata=true&"+query, nil), "data")
		users = append(users, fmt.Sprint(get(list, "leaderboard", 0, "user_id"), get(list, "leaderboard", 1, "user_id")))
		if get(list, "division") != crossed || get(list, "total") != number(2) || fmt.Sprint(get(list, "leaderboard", 0, "divisions")) != "[gender:F "+crossed+"]" {
			t.Errorf("%s: %v, want two users of division %s", query, list, crossed)
		}
	}
	if want := []string{"u2u0", "u2u0", "u2u0"}; !slices.Equal(users, want) {
		t.Errorf("the users of each list are %q, want %q", users, want)
	}
	if data := get(h.must("read", "GET", "/v1/boards/race/scores/u3?division=gender:F&division="+url.QueryEscape(`age:7+\`), nil), "data"); get(data, "division") != `gender+age:F+7\+\\` || get(data, "rank") != number(1) {
		t.Errorf("the answer for u3 is %v, want rank 1 in a division whose name has escapes", data)
	}
	if data := get(h.must("read", "GET", "/v1/boards/race/stats?division=gender:F&division=age:30-34&rank=2", nil), "data"); get(data, "score_at_rank") != number(0) {
		t.Errorf("the statistics are %v, want the score 0 at rank 2", data)
	}
	for path, body := range map[string]string{
		"?division=gender:F&division=age:30-34": `{"user_ids":["u0","u1"]}`,
		"":                                      `{"user_ids":["u0","u1"],"divisions":["age:30-34","gender:F"]}`,
		"?division=gender:F":                    `{"user_ids":["u0","u1"],"divisions":["age:30-34"]}`,
	} {
		if data := get(h.must("read", "POST", "/v1/boards/race/scores:lookup"+path, body), "data"); get(data, "division") != crossed || get(data, "missing", 0) != "u1" || get(data, "count") != number(1) {
			t.Errorf("lookup %s %s: %v, want u0 of division %s", path, body, data, crossed)
		}
	}
	res, err := h.client().ListScores(h.as("read"), &pb.ListScoresRequest{Board: "race", Divisions: []string{"age:30-34", "gender:F"}})
	if err != nil || res.GetData().GetDivision() != crossed || res.GetData().GetCount() != 2 {
		t.Errorf("gRPC: %v, error %v, want two users of division %s", res, err, crossed)
	}
	stream, err := h.client().WatchScores(h.as("read"), &pb.WatchScoresRequest{Board: "race", Division: "gender:F", Divisions: []string{"age:30-34"}})
	if err != nil {
		t.Fatal(err)
	}
	if event, err := stream.Recv(); err != nil || event.GetData().GetDivision() != crossed {
		t.Errorf("watch: %v, error %v, want the division %s", event, err, crossed)
	}
}

func TestCrossedDivisionsThatAreRefused(t *testing.T) {
	h := newRaceHarness(t)
	const declares = `the board declares "gender", "gender+age"`
	for query, names := range map[string]string{
		"division=age:30-34":                                              declares,
		"division=gender:F&division=country:KEN":                          declares,
		"division=gender:F&division=gender:M":                             declares,
		"division=gender:F&division=age:30-34&division=gender:F":          declares,
		"division=gender:F&division=age:30-34&division=age:40":            declares,
		"division=gender:F&division=age":                                  "attribute:value",
		"division=gender%2Bage:F":                                         "a value for each of its 2 attributes",
		"division=gender:F&divisions=age:30-34":                           "is not a parameter",
		"season=all&season=all":                                           "is given twice",
		"division=gender:F&division=%FF":                                  "is not valid UTF-8",
		strings.TrimPrefix(strings.Repeat("&division=gender:F", 17), "&"): "at most 3",
	} {
		for _, path := range []string{"scores", "scores/u0", "stats", "watch"} {
			if a := h.do("read", "GET", "/v1/boards/race/"+path+"?"+query, nil); a.status != http.StatusBadRequest || !strings.Contains(strings.ReplaceAll(a.raw, `\"`, `"`), names) {
				t.Errorf("%s?%s: %d %s, want 400 that says %s", path, query, a.status, a.raw, names)
			}
		}
	}
	for path, body := range map[string]string{
		"?division=age:30-34&division=gender:F": `{"user_ids":["u0"],"divisions":["age:30-34"]}`,
		"":                                      `{"user_ids":["u0"],"divisions":"age:30-34"}`,
	} {
		if a := h.do("read", "POST", "/v1/boards/race/scores:lookup"+path, body); a.status != http.StatusBadRequest {
			t.Errorf("lookup %s %s: %d %s, want 400", path, body, a.status, a.raw)
		}
	}
	for _, divisions := range []string{`["gender","gender+gender"]`, `["a+b+c+d"]`, `["a+b","b+a"]`, `["a+"]`, `["A+b"]`} {
		if a := h.do("admin", "POST", "/v1/boards", `{"board_id":"other","divisions":`+divisions+`}`); a.status != http.StatusBadRequest || !strings.Contains(a.raw, "divisions[") {
			t.Errorf("a board with the divisions %s: %d %s, want 400 that names the division", divisions, a.status, a.raw)
		}
	}
	if _, err := h.client().GetStats(h.as("read"), &pb.GetStatsRequest{Board: "race", Divisions: []string{"age:30-34"}}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("gRPC: %v, want InvalidArgument", err)
	}
}

func TestPatchOfDivisions(t *testing.T) {
	h := newRaceHarness(t)
	if effect := h.must("admin", "PATCH", "/v1/boards/race?dry_run=true", `{"divisions":["age"]}`); fmt.Sprint(get(effect, "divisions")) != "[age]" {
		t.Errorf("the preview is %v, want the division age", effect)
	}
	for body, names := range map[string]string{
		`{"divisions":["age","age"]}`:         "divisions[1]",
		`{"divisions":["gender+age+gender"]}`: "divisions[0]",
		`{"divisions":"age"}`:                 "divisions",
		`{"past_divisions":[["age"]]}`:        "past_divisions",
	} {
		if a := h.do("admin", "PATCH", "/v1/boards/race", body); a.status != http.StatusBadRequest || !strings.Contains(a.raw, names) {
			t.Errorf("PATCH %s: %d %s, want 400 that names %s", body, a.status, a.raw, names)
		}
	}
	board := h.must("admin", "PATCH", "/v1/boards/race", `{"divisions":["age","gender+age"]}`)
	if fmt.Sprint(get(board, "divisions"), get(board, "filling_divisions")) != "[gender+age age] [age]" || get(board, "filling") != true {
		t.Errorf("the board is %v, want filling true and [age] in filling_divisions", board)
	}
	const path = "/v1/boards/race/scores?division=age:30-34"
	if data := get(h.must("read", "GET", path, nil), "data"); get(data, "filling") != true {
		t.Errorf("the list is %v, want filling true", data)
	}
	if data := get(h.must("read", "GET", "/v1/boards/race/scores?division=gender:F&division=age:30-34", nil), "data"); get(data, "filling") != nil || get(data, "count") != number(2) {
		t.Errorf("the list of a division from before the PATCH is %v, want two users and no filling", data)
	}
	if a := h.do("read", "GET", "/v1/boards/race/scores?division=gender:F", nil); a.status != http.StatusBadRequest {
		t.Errorf("a division that the PATCH removed: %d %s, want 400", a.status, a.raw)
	}
	if err := h.service.FillDivisions(t.Context()); err != nil {
		t.Fatal(err)
	}
	if data := get(h.must("read", "GET", path, nil), "data"); get(data, "filling") != nil || get(data, "count") != number(3) {
		t.Errorf("the list is %v, want three users and no filling", data)
	}
	if board := h.must("admin", "GET", "/v1/boards/race", nil); get(board, "filling") != nil || get(board, "filling_divisions") != nil {
		t.Errorf("the board is %v, want neither filling nor filling_divisions", board)
	}
	if board := h.must("admin", "PATCH", "/v1/boards/race", `{"divisions":[]}`); get(board, "divisions", 0) != nil {
		t.Errorf("the board is %v, want no divisions", board)
	}
}

// Ann's best result has no mods, and her latest result has the mod DT. So she leads the division mods:DT with a
// score that she reached without it. A linked board with match ranks only results with DT.
func TestDivisionsRankUsersAndLinkedBoardsResults(t *testing.T) {
	h := newHarness(t, Options{})
	h.createBoard(`{"board_id":"map","policy":"BEST","divisions":["mods"]}`)
	h.createBoard(`{"board_id":"map-DT","policy":"BEST","source":{"board_id":"map","match":{"mods":"DT"}}}`)
	for _, r := range []string{
		`{"user_id":"ann","match_id":"1","score":850000,"achieved_at":"2026-11-20T10:00:00Z","attributes":{"mods":"none"}}`,
		`{"user_id":"ann","match_id":"2","score":400000,"achieved_at":"2026-11-20T11:00:00Z","attributes":{"mods":"DT"}}`,
		`{"user_id":"bob","match_id":"1","score":700000,"achieved_at":"2026-11-20T10:00:00Z","attributes":{"mods":"DT"}}`,
	} {
		h.must("submit", "POST", "/v1/boards/map/scores", r)
	}
	for path, want := range map[string]string{
		"/v1/boards/map/scores?division=mods:DT":   "ann 850000 bob 700000",
		"/v1/boards/map/scores?division=mods:none": "",
		"/v1/boards/map-DT/scores":                 "bob 700000 ann 400000",
	} {
		var got []string
		list, _ := get(h.must("read", "GET", path, nil), "data", "leaderboard").([]any)
		for _, e := range list {
			got = append(got, fmt.Sprint(get(e, "user_id"), " ", get(e, "score")))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s has %q, want %q", path, got, want)
		}
	}
}
