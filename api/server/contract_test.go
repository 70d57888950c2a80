package server

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/api/restjson"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

func keysOf(v any) []string {
	m, _ := v.(map[string]any)
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func number(n int64) json.Number { return json.Number(strconv.FormatInt(n, 10)) }

// The three oldest routes of the API keep their original fields. Their integers are JSON numbers.
func TestOriginalRoutes(t *testing.T) {
	h := newHarness(t, Options{})
	for i := range 12 {
		body := fmt.Sprintf(`{"user_id":"user-%02d","points":%d,"match_id":"m1"}`, i, 100-i)
		got := h.must("submit", "POST", "/v1/scores", body)
		want := map[string]any{"success": true, "new_score": number(int64(100 - i)), "rank": number(int64(i + 1))}
		for k, v := range want {
			if got[k] != v {
				t.Errorf("POST /v1/scores answered %s = %v, want %v", k, got[k], v)
			}
		}
	}
	if got := h.must("submit", "POST", "/v1/scores", `{"user_id":"user-11","points":89,"match_id":"m1"}`); got["new_score"] != number(89) || got["status"] != "DUPLICATE" || got["success"] != true {
		t.Errorf("answer to a duplicate: %v, want DUPLICATE and the score 89", got)
	}
	if got := h.must("submit", "POST", "/v1/scores", `{"user_id":"user-11","points":"-3","match_id":"m2"}`); got["new_score"] != number(86) {
		t.Errorf("answer to a second match: %v, want the score 86", got)
	}

	top := h.must("read", "GET", "/v1/scores", nil)
	if top["status"] != "success" || get(top, "data", "count") != number(10) || len(get(top, "data", "leaderboard").([]any)) != 10 {
		t.Errorf("GET /v1/scores answered %v, want success and 10 entries", top)
	}
	first := get(top, "data", "leaderboard", 0)
	if diff := cmp.Diff([]string{"achieved_at", "rank", "score", "user_id"}, keysOf(first)); diff != "" {
		t.Errorf("fields of an entry (-want +got):\n%s", diff)
	}
	if get(first, "user_id") != "user-00" || get(first, "score") != number(100) || get(first, "rank") != number(1) {
		t.Errorf("the first entry is %v, want user-00 with score 100 and rank 1", first)
	}

	user := h.must("read", "GET", "/v1/scores/user-05", nil)
	neighbors := get(user, "data", "neighbors").([]any)
	if user["status"] != "success" || get(user, "data", "user_id") != "user-05" || get(user, "data", "score") != number(95) || get(user, "data", "rank") != number(6) || len(neighbors) != 9 {
		t.Fatalf("GET /v1/scores/user-05 answered %v, want score 95, rank 6 and 9 neighbors", user)
	}
	for i, n := range neighbors {
		if get(n, "user_id") != fmt.Sprintf("user-%02d", i+1) || get(n, "rank") != number(int64(i+2)) || get(n, "is_current_user") != (i == 4) {
			t.Errorf("neighbor %d is %v, want user-%02d with rank %d", i, n, i+1, i+2)
		}
	}
	// Near an end of the list, a user has fewer neighbors.
	for _, end := range []struct {
		user         string
		n            int
		above, below bool
	}{{"user-00", 5, true, false}, {"user-10", 6, false, true}, {"user-02", 7, true, false}} {
		data := get(h.must("read", "GET", "/v1/scores/"+end.user, nil), "data")
		if len(get(data, "neighbors").([]any)) != end.n || get(data, "neighbors_clipped_above") != end.above || get(data, "neighbors_clipped_below") != end.below {
			t.Errorf("neighbors of %s: %v, want %d, clipped above %v and below %v", end.user, data, end.n, end.above, end.below)
		}
	}
	if a := h.do("read", "GET", "/v1/scores/nobody", nil); a.status != http.StatusNotFound || a.body["status"] != "NOT_FOUND" || a.body["code"] != number(5) || a.reason() != "ENTRY_NOT_FOUND" {
		t.Errorf("GET of a user without an entry: %d %s, want 404 with ENTRY_NOT_FOUND", a.status, a.raw)
	} else if message, want := fmt.Sprint(a.body["message"]), `user "nobody" has no entry on board "default"`; !strings.Contains(message, want) {
		t.Errorf("the message is %q, want it to contain %q", message, want)
	}
}

func TestTiesShareARankByMethod(t *testing.T) {
	h := newHarness(t, Options{})
	h.createBoard(`{"board_id":"race","order":"LOWER_FIRST","season":{"schedule":"NONE"}}`)
	for i, score := range []int{10, 20, 20, 30} {
		h.must("submit", "POST", "/v1/boards/race/scores", fmt.Sprintf(`{"user_id":"u%d","score":%d,"achieved_at":"2026-01-0%dT00:00:00Z"}`, i, score, i+1))
	}
	for method, want := range map[string][]int64{"": {1, 2, 2, 4}, "competition": {1, 2, 2, 4}, "dense": {1, 2, 2, 3}, "ordinal": {1, 2, 3, 4}} {
		data := get(h.must("read", "GET", "/v1/boards/race/scores?method="+method, nil), "data")
		for i, rank := range want {
			if got := get(data, "leaderboard", i); get(got, "rank") != number(rank) || get(got, "user_id") != fmt.Sprintf("u%d", i) {
				t.Errorf("method %q: entry %d is %v, want u%d with rank %d", method, i, got, i, rank)
			}
		}
		if wantMethod := map[string]string{"": "competition"}[method]; wantMethod != "" && get(data, "method") != wantMethod {
			t.Errorf("the default method is %v, want competition", get(data, "method"))
		}
	}
}

const marathon = `{"board_id":"marathon","title":"Marathon","order":"LOWER_FIRST","policy":"BEST","tie_breakers":[{"name":"wins","order":"HIGHER_FIRST"}],
	"unit":"s","decimals":0,"season":{"schedule":"NONE","time_zone":"UTC","grace":"3600s"},"divisions":["gender","country"],"min_score":0,"max_score":100000,"private":true}`

func TestBoards(t *testing.T) {
	h := newHarness(t, Options{})
	made := h.must("admin", "POST", "/v1/boards", marathon)
	var want map[string]any
	dec := json.NewDecoder(strings.NewReader(marathon))
	dec.UseNumber()
	if err := dec.Decode(&want); err != nil {
		t.Fatal(err)
	}
	want["created_at"] = made["created_at"]
	if diff := cmp.Diff(want, made); diff != "" {
		t.Errorf("the answer to CreateBoard differs from the request (-want +got):\n%s", diff)
	}
	if again := h.must("admin", "POST", "/v1/boards", marathon); !cmp.Equal(made, again) {
		t.Errorf("creating the same board again answered %v, want the existing board", again)
	}
	if a := h.do("admin", "POST", "/v1/boards", `{"board_id":"marathon","order":"HIGHER_FIRST"}`); a.status != http.StatusConflict || a.body["status"] != "ALREADY_EXISTS" {
		t.Errorf("creating the board with other rules: %d %s, want 409", a.status, a.raw)
	}
	if got := h.must("read", "GET", "/v1/boards/marathon", nil); !cmp.Equal(made, got) {
		t.Errorf("GetBoard answered %v, want %v", got, made)
	}
	var ids []any
	for _, b := range h.must("read", "GET", "/v1/boards", nil)["boards"].([]any) {
		ids = append(ids, get(b, "board_id"))
	}
	if diff := cmp.Diff([]any{"default", "marathon"}, ids); diff != "" {
		t.Errorf("ids of ListBoards (-want +got):\n%s", diff)
	}

	patched := h.must("admin", "PATCH", "/v1/boards/marathon", `{"title":"Harbor","min_score":null,"season":{"grace":"7200s"}}`)
	want["title"] = "Harbor"
	want["season"].(map[string]any)["grace"] = "7200s"
	delete(want, "min_score")
	if diff := cmp.Diff(want, patched); diff != "" {
		t.Errorf("board after PATCH (-want +got):\n%s", diff)
	}
	if a := h.do("admin", "PATCH", "/v1/boards/marathon", `{"order":"HIGHER_FIRST"}`); a.status != http.StatusBadRequest {
		t.Errorf("PATCH of the order: %d %s, want 400", a.status, a.raw)
	}
	if a := h.do("admin", "PATCH", "/v1/boards/marathon", `{"board_id":"other","title":"x"}`); a.status != http.StatusBadRequest || !slices.Equal(a.violations(), []string{"board_id"}) {
		t.Errorf("PATCH with another id: %d %s, want 400", a.status, a.raw)
	}
	_, err := h.client().UpdateBoard(h.as("admin"), &pb.UpdateBoardRequest{
		Board: &pb.Board{BoardId: "marathon", Title: "Not this", Unit: "ms"}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"unit"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := h.must("read", "GET", "/v1/boards/marathon", nil); got["unit"] != "ms" || got["title"] != "Harbor" {
		t.Errorf("the board after an update with the mask \"unit\": %v, want the new unit and the old title", got)
	}
	if _, err := h.client().UpdateBoard(h.as("admin"), &pb.UpdateBoardRequest{
		Board: &pb.Board{BoardId: "marathon"}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"season.nonsense"}},
	}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("update with an unknown path in the mask: %v, want INVALID_ARGUMENT", err)
	}

	if a := h.do("admin", "DELETE", "/v1/boards/marathon", nil); a.status != http.StatusOK || a.raw != "{}\n" {
		t.Errorf("DELETE: %d %s, want 200 {}", a.status, a.raw)
	}
	for _, method := range []string{"GET", "DELETE"} {
		if a := h.do("admin", method, "/v1/boards/marathon", nil); a.status != http.StatusNotFound || a.reason() != "BOARD_NOT_FOUND" {
			t.Errorf("%s after DELETE: %d %s, want 404 with BOARD_NOT_FOUND", method, a.status, a.raw)
		}
	}
	a := h.do("admin", "DELETE", "/v1/boards/default", nil)
	if a.status != http.StatusBadRequest || !slices.Equal(a.violations(), []string{"board"}) || !strings.Contains(a.raw, "is the default board") {
		t.Errorf("DELETE of the default board: %d %s, want 400", a.status, a.raw)
	}
	h.must("read", "GET", "/v1/scores", nil)
	plain := h.must("admin", "POST", "/v1/boards", `{"board_id":"plain"}`)
	if plain["order"] != "HIGHER_FIRST" || plain["policy"] != "BEST" || get(plain, "season", "schedule") != "NONE" || get(plain, "season", "grace") != "86400s" {
		t.Errorf("board with only an id: %v, want HIGHER_FIRST, BEST, NONE and a grace of 86400s", plain)
	}
	for p := leaderboard.Best; p <= leaderboard.Decay; p++ {
		if got := (pb.Board_BEST + pb.Board_Policy(p)).String(); got != p.String() {
			t.Errorf("policy %v has the name %v in the API, want the same name", p, got)
		}
	}
	for k := leaderboard.None; k <= leaderboard.Every; k++ {
		if got := (pb.Board_Schedule_NONE + pb.Board_Schedule_Kind(k)).String(); got != k.String() {
			t.Errorf("schedule %v has the name %v in the API, want the same name", k, got)
		}
	}
	for day := leaderboard.Monday; day <= leaderboard.Sunday; day++ {
		if got := (pb.Board_Schedule_MONDAY + pb.Board_Schedule_Weekday(day)).String(); got != day.String() {
			t.Errorf("weekday %v has the name %v in the API, want the same name", day, got)
		}
	}
	windows := `{"board_id":"cup","policy":"SUM","floor":-5,"retention":"3600s","season":{"schedule":"EXPLICIT","time_zone":"UTC","grace":"0s","windows":[
		{"id":"cup-1","start":"2026-01-01T00:00:00Z","end":"2026-02-01T00:00:00Z"},{"id":"cup-2","start":"2026-03-01T00:00:00Z","end":"2027-01-01T00:00:00Z"}]}}`
	cup := h.must("admin", "POST", "/v1/boards", windows)
	if get(cup, "season", "windows", 1, "id") != "cup-2" || cup["floor"] != number(-5) || cup["retention"] != "3600s" || get(cup, "season", "grace") != "0s" {
		t.Errorf("board with an explicit schedule: %v, want it as in the request", cup)
	}
	decay := h.must("admin", "POST", "/v1/boards", `{"board_id":"trend","policy":"DECAY","half_life":"86400s"}`)
	if decay["half_life"] != "86400s" {
		t.Errorf("board with a half-life: %v, want half_life 86400s", decay)
	}
	for board, decays := range map[string]bool{"trend": true, "cup": false} {
		achievedAt := map[bool]string{true: "2026-11-19T00:00:00Z", false: "2026-04-01T00:00:00Z"}[decays]
		h.must("submit", "POST", "/v1/boards/"+board+"/scores", map[string]any{"user_id": "ann", "match_id": "m", "points": 8, "achieved_at": achievedAt})
		season := map[bool]string{true: "all", false: "cup-2"}[decays]
		for _, path := range []string{"/scores?season=" + season, "/scores/ann?season=" + season} {
			_, present := get(h.must("read", "GET", "/v1/boards/"+board+path, nil), "data", "scored_at").(string)
			if present != decays {
				t.Errorf("GET %s of board %s: scored_at is present: %v, want %v", path, board, present, decays)
			}
		}
	}
}

func TestDivisionsPagesAndLookup(t *testing.T) {
	h := newHarness(t, Options{})
	h.createBoard(marathon)
	var batch []map[string]any
	for i := range 25 {
		batch = append(batch, map[string]any{
			"user_id": fmt.Sprintf("r%02d", i), "match_id": "finish", "score": 7000 + i/2, "tie_breakers": []int{i % 2},
			"achieved_at": "2026-04-20T10:00:00Z", "attributes": map[string]string{"gender": []string{"F", "M"}[i%2], "country": "KEN"},
			"metadata": map[string]any{"bib": i, "club": "Ärzte & Co <x>"},
		})
	}
	outcomes := h.must("submit", "POST", "/v1/boards/marathon/scores:batch", map[string]any{"results": batch})["outcomes"].([]any)
	for i, o := range outcomes {
		if get(o, "status") != "APPLIED" || get(o, "match_id") != "finish" || get(o, "new_score") != number(int64(7000+i/2)) || get(o, "user_id") != fmt.Sprintf("r%02d", i) {
			t.Errorf("outcome %d is %v, want APPLIED for user r%02d with score %d", i, o, i, 7000+i/2)
		}
	}

	var users []string
	token, pages := "", 0
	for {
		data := get(h.must("read", "GET", "/v1/boards/marathon/scores?limit=7&page_token="+url.QueryEscape(token), nil), "data")
		for _, e := range data.(map[string]any)["leaderboard"].([]any) {
			users = append(users, get(e, "user_id").(string))
		}
		pages++
		if token = get(data, "next_page_token").(string); token == "" {
			break
		}
	}
	var want []string
	for i := range 25 {
		want = append(want, fmt.Sprintf("r%02d", min(i^1, 24))) // of two equal scores, the tie-breaker puts the odd number first
	}
	if pages != 4 || !slices.Equal(users, want) {
		t.Errorf("%d pages with %v, want 4 with %v", pages, users, want)
	}
	if a := h.do("read", "GET", "/v1/scores?page_token="+url.QueryEscape("AQ"), nil); a.status != http.StatusBadRequest || !slices.Equal(a.violations(), []string{"page_token"}) {
		t.Errorf("list with an invalid page token: %d %s, want 400 naming page_token", a.status, a.raw)
	}
	from := get(h.must("read", "GET", "/v1/boards/marathon/scores?start_rank=24&limit=5", nil), "data")
	if get(from, "count") != number(2) || get(from, "total") != number(25) {
		t.Errorf("list from position 24: %v, want 2 of 25 entries", from)
	}

	women := get(h.must("read", "GET", "/v1/boards/marathon/scores?division=gender:F&limit=1000&include_metadata=true&season=all", nil), "data")
	if get(women, "count") != number(13) || get(women, "division") != "gender:F" || get(women, "season") != "all" {
		t.Errorf("list of division gender:F: %v, want 13 entries of season \"all\"", women)
	}
	entry := get(women, "leaderboard", 0)
	if get(entry, "match_id") != "finish" || get(entry, "metadata", "club") != "Ärzte & Co <x>" || get(entry, "metadata", "bib") != number(0) {
		t.Errorf("entry with include_metadata: %v, want the match finish with its metadata", entry)
	}
	if diff := cmp.Diff([]any{"gender:F", "country:KEN"}, get(entry, "divisions")); diff != "" {
		t.Errorf("divisions (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]any{number(0)}, get(entry, "tie_breakers")); diff != "" {
		t.Errorf("tie_breakers (-want +got):\n%s", diff)
	}

	for _, path := range []string{"/v1/boards/marathon/scores:lookup?division=gender:F", "/v1/boards/marathon/scores:lookup"} {
		body := `{"user_ids":["r04","nobody","r00","r04","r02"]}`
		if path[len(path)-1] == 'p' {
			body = `{"user_ids":["r04","nobody","r00","r04","r02"],"division":"gender:F"}`
		}
		data := get(h.must("read", "POST", path, body), "data")
		for i, want := range []string{"r00", "r02", "r04"} {
			if e := get(data, "leaderboard", i); get(e, "user_id") != want || get(e, "rank") != number(int64(i+1)) || get(e, "list_rank") != number(int64(i+1)) {
				t.Errorf("lookup: entry %d is %v, want %s with rank and list_rank %d", i, e, want, i+1)
			}
		}
		if diff := cmp.Diff([]any{"nobody"}, get(data, "missing")); diff != "" {
			t.Errorf("missing (-want +got):\n%s", diff)
		}
	}
	stats := get(h.must("read", "GET", "/v1/boards/marathon/stats?rank=3&score=7001&buckets=4", nil), "data")
	if get(stats, "total") != number(25) || get(stats, "best_score") != number(7000) || get(stats, "worst_score") != number(7012) ||
		get(stats, "score_at_rank") != number(7001) || get(stats, "rank_of_score") != number(3) {
		t.Errorf("stats: %v, want total 25, scores 7000 to 7012, score_at_rank 7001 and rank_of_score 3", stats)
	}
	sum := int64(0)
	for _, b := range get(stats, "histogram").([]any) {
		n, _ := get(b, "count").(json.Number).Int64()
		sum += n
	}
	if sum != 25 || len(get(stats, "percentiles").([]any)) == 0 {
		t.Errorf("the histogram counts %d entries, want 25; the statistics are %v, want percentiles", sum, stats)
	}
	seasons := get(h.must("read", "GET", "/v1/boards/marathon/seasons", nil), "data")
	if get(seasons, "current") != "all" || get(seasons, "seasons", 0, "status") != "open" || get(seasons, "seasons", 0, "entrants") != number(25) {
		t.Errorf("seasons: %v, want the open season \"all\" with 25 entrants", seasons)
	}
	if diff := cmp.Diff([]string{"amendments", "as_of", "entrants", "id", "status"}, keysOf(get(seasons, "seasons", 0))); diff != "" {
		t.Errorf("fields of a season without bounds (-want +got):\n%s", diff)
	}
}

func TestResultsAndRetraction(t *testing.T) {
	h := newHarness(t, Options{})
	h.createBoard(`{"board_id":"b","policy":"BEST","season":{"schedule":"NONE"},"attributes":["clan"]}`)
	submit := func(body string) map[string]any {
		return h.must("submit", "POST", "/v1/boards/b/scores", body)
	}
	submit(`{"user_id":"u","match_id":"m1","score":10}`)
	submit(`{"user_id":"u","match_id":"m2","score":20,"revision":3,"achieved_at":"2026-01-02T03:04:05.678Z","attributes":{"clan":"x"},"metadata":{"k":[1,{"a":null}]}}`)

	got := h.must("read", "GET", "/v1/boards/b/results/u/m2", nil)
	want := map[string]any{
		"status": "APPLIED", "reason": "", "board": "b", "season": "all", "user_id": "u", "match_id": "m2", "revision": number(3),
		"result": map[string]any{
			"user_id": "u", "match_id": "m2", "score": number(20), "revision": number(3), "achieved_at": "2026-01-02T03:04:05.678Z",
			"attributes": map[string]any{"clan": "x"}, "metadata": map[string]any{"k": []any{number(1), map[string]any{"a": nil}}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("GetResult (-want +got):\n%s", diff)
	}
	if got := submit(`{"user_id":"u","match_id":"m2","score":99,"revision":1}`); got["status"] != "SUPERSEDED" || got["success"] != true || got["new_score"] != number(20) {
		t.Errorf("submit of an older revision: %v, want SUPERSEDED and the score 20", got)
	}
	if got := h.must("read", "GET", "/v1/boards/b/results/u/m2?revision=1", nil); got["status"] != "SUPERSEDED" || got["revision"] != number(1) {
		t.Errorf("GetResult of revision 1: %v, want SUPERSEDED", got)
	}
	if got := submit(`{"user_id":"u","match_id":"m2","score":21,"revision":3,"achieved_at":"2026-01-02T03:04:05.678Z"}`); got["status"] != "CONFLICT" || got["success"] != false {
		t.Errorf("submit of the same revision with other content: %v, want CONFLICT", got)
	}

	got = h.must("submit", "POST", "/v1/boards/b/results/u/m2:retract", nil)
	if got["success"] != true || got["status"] != "APPLIED" || got["new_score"] != number(10) || got["rank"] != number(1) || got["revision"] != number(4) {
		t.Errorf("retraction of the best result: %v, want APPLIED as revision 4, and the score 10 with rank 1", got)
	}
	if got := h.must("submit", "POST", "/v1/boards/b/results/u/m2:retract", `{"revision":4,"season":"all"}`); got["status"] != "DUPLICATE" {
		t.Errorf("the same retraction again: %v, want DUPLICATE", got)
	}
	if got := h.must("read", "GET", "/v1/boards/b/results/u/m2", nil); got["status"] != "RETRACTED" {
		t.Errorf("GetResult after the retraction: %v, want RETRACTED", got)
	}
	got = h.must("submit", "POST", "/v1/boards/b/results/u/m1:retract", `{}`)
	if _, has := got["new_score"]; has || got["success"] != true {
		t.Errorf("retraction of the user's last result: %v, want success and no score", got)
	}
	if _, has := got["rank"]; has {
		t.Errorf("a user without results has rank %v, want none", got["rank"])
	}
	if a := h.do("read", "GET", "/v1/boards/b/scores/u", nil); a.status != http.StatusNotFound {
		t.Errorf("GetUserScore of a user without results: %d %s, want 404", a.status, a.raw)
	}
	if a := h.do("submit", "POST", "/v1/boards/b/results/u/unknown:retract", nil); a.status != http.StatusNotFound || a.reason() != "RESULT_NOT_FOUND" {
		t.Errorf("retraction of an unknown match: %d %s, want 404 with RESULT_NOT_FOUND", a.status, a.raw)
	}
	if a := h.do("read", "GET", "/v1/boards/b/results/u/unknown", nil); a.status != http.StatusNotFound || a.reason() != "RESULT_NOT_FOUND" {
		t.Errorf("GetResult of an unknown match: %d %s, want 404 with RESULT_NOT_FOUND", a.status, a.raw)
	}
	made := submit(`{"user_id":"v","score":5}`)
	if id, _ := made["match_id"].(string); id == "" || h.must("read", "GET", "/v1/boards/b/results/v/"+id, nil)["status"] != "APPLIED" {
		t.Errorf("submit without a match id: %v, want a generated id whose result is APPLIED", made)
	}
}

func TestFloorRefusesWithTheCurrentScore(t *testing.T) {
	h := newHarness(t, Options{})
	h.createBoard(`{"board_id":"purse","policy":"SUM","floor":0,"season":{"schedule":"NONE"}}`)
	h.must("submit", "POST", "/v1/boards/purse/scores", `{"user_id":"u","match_id":"m1","points":10}`)
	for range 2 {
		a := h.do("submit", "POST", "/v1/boards/purse/scores", `{"user_id":"u","match_id":"m2","points":-11}`)
		if a.status != http.StatusConflict || a.body["status"] != "FAILED_PRECONDITION" || a.reason() != "FLOOR" {
			t.Fatalf("submit that goes below the floor: %d %s, want 409 with FLOOR", a.status, a.raw)
		}
		outcome := get(a.body, "details", 1)
		if get(outcome, "@type") != "type.googleapis.com/leaderboard.v1.Outcome" || get(outcome, "status") != "REJECTED" || get(outcome, "new_score") != number(10) {
			t.Errorf("the details are %v, want the current score 10", outcome)
		}
	}
	got := h.must("submit", "POST", "/v1/boards/purse/scores:batch", `{"results":[{"user_id":"u","match_id":"m3","points":-4},{"user_id":"u","match_id":"m4","points":-7},{"user_id":"u","match_id":"m5","points":1}]}`)
	var statuses []any
	for _, o := range got["outcomes"].([]any) {
		statuses = append(statuses, get(o, "status"), get(o, "reason"))
	}
	if diff := cmp.Diff([]any{"APPLIED", "", "REJECTED", "FLOOR", "APPLIED", ""}, statuses); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
	rejected := h.must("read", "GET", "/v1/boards/purse/results/u/m2", nil)
	if rejected["status"] != "REJECTED" || rejected["reason"] != "FLOOR" || rejected["season"] != "all" || rejected["result"] != nil {
		t.Errorf("GetResult of a rejected result: %v, want REJECTED with FLOOR", rejected)
	}
}

func TestBatchHasAnOutcomeForEachResult(t *testing.T) {
	h := newHarness(t, Options{})
	got := h.must("submit", "POST", "/v1/scores:batch", `{"results":[
		{"user_id":"a","match_id":"1","points":1},{"user_id":"","match_id":"2","points":1},{"user_id":"b","match_id":"3","score":1},
		{"user_id":"a","match_id":"1","points":1},{"user_id":"c","match_id":"4","points":9007199254740993},{"user_id":"d","match_id":"5","points":2,"achieved_at":"2126-01-01T00:00:00Z"},
		{"user_id":"e","match_id":"6","points":0}]}`)["outcomes"].([]any)
	want := []string{"APPLIED", "REJECTED", "REJECTED", "DUPLICATE", "REJECTED", "REJECTED", "APPLIED"}
	details := []string{"", "user_id: ", "score: ", "", "points: ", "achieved_at: ", ""}
	if len(got) != len(want) {
		t.Fatalf("the answer has %d outcomes, want %d", len(got), len(want))
	}
	for i, o := range got {
		detail := get(o, "detail").(string)
		if get(o, "status") != want[i] || get(o, "match_id") == "" || detail[:len(details[i])] != details[i] || (want[i] == "REJECTED") != (get(o, "reason") == "INVALID") {
			t.Errorf("outcome %d is %v, want %s with a detail that begins with %q", i, o, want[i], details[i])
		}
	}
	if get(got[6], "new_score") != number(0) || get(got[6], "rank") != number(2) {
		t.Errorf("outcome of a score of 0: %v, want score 0 and rank 2", got[6])
	}
	for body, field := range map[string]string{`{}`: "results", `{"results":[]}`: "results", `{"results":null}`: "results"} {
		if a := h.do("submit", "POST", "/v1/scores:batch", body); a.status != http.StatusBadRequest || !slices.Equal(a.violations(), []string{field}) {
			t.Errorf("batch %s: %d %s, want 400 naming %s", body, a.status, a.raw, field)
		}
	}
	tooMany := make([]map[string]any, ranking.MaxBatch+1)
	for i := range tooMany {
		tooMany[i] = map[string]any{"user_id": "u", "points": 1}
	}
	if a := h.do("submit", "POST", "/v1/scores:batch", map[string]any{"results": tooMany}); a.status != http.StatusBadRequest || !slices.Equal(a.violations(), []string{"results"}) {
		t.Errorf("batch of 5,001 results: %d %.300s, want 400", a.status, a.raw)
	}
	all := tooMany[:ranking.MaxBatch]
	if a := h.do("submit", "POST", "/v1/scores:batch", map[string]any{"results": all}); a.status != http.StatusOK || len(a.body["outcomes"].([]any)) != ranking.MaxBatch {
		t.Errorf("batch of 5,000 results: %d %.300s, want 200 with 5,000 outcomes", a.status, a.raw)
	}
}

func TestUsers(t *testing.T) {
	h := newHarness(t, Options{})
	h.createBoard(`{"board_id":"b","season":{"schedule":"NONE"}}`)
	h.must("submit", "POST", "/v1/boards/b/scores", `{"user_id":"u","match_id":"m","score":7}`)
	h.must("submit", "POST", "/v1/scores", `{"user_id":"u","match_id":"m","points":5}`)
	data := get(h.must("admin", "GET", "/v1/users/u/scores", nil), "data")
	if get(data, "user_id") != "u" || get(data, "banned") != false || len(get(data, "scores").([]any)) != 2 ||
		get(data, "scores", 0, "board") != "b" || get(data, "scores", 0, "score") != number(7) || get(data, "scores", 0, "rank") != number(1) {
		t.Errorf("scores of u on all boards: %v, want two, the first on b with score 7 and rank 1", data)
	}
	if got := h.must("admin", "POST", "/v1/users/u:ban", `{"reason":"aimbot"}`); got["banned"] != true || got["user_id"] != "u" {
		t.Errorf("answer to BanUser: %v, want banned true for u", got)
	}
	if a := h.do("read", "GET", "/v1/boards/b/scores/u", nil); a.status != http.StatusNotFound {
		t.Errorf("GetUserScore of a banned user: %d %s, want 404", a.status, a.raw)
	}
	if got := h.must("submit", "POST", "/v1/boards/b/scores", `{"user_id":"u","match_id":"m2","score":9}`); got["status"] != "APPLIED" || get(got, "rank") != nil {
		t.Errorf("submit for a banned user: %v, want APPLIED without a rank", got)
	}
	if data := get(h.must("admin", "GET", "/v1/users/u/scores", nil), "data"); get(data, "banned") != true || len(get(data, "scores").([]any)) != 0 {
		t.Errorf("ListUserScores of a banned user: %v, want banned true and no scores", data)
	}
	if got := h.must("admin", "POST", "/v1/users/u:unban", nil); got["banned"] != false {
		t.Errorf("answer to UnbanUser: %v, want banned false", got)
	}
	if got := get(h.must("read", "GET", "/v1/boards/b/scores/u", nil), "data", "score"); got != number(9) {
		t.Errorf("the score after the ban is lifted is %v, want 9", got)
	}
	if got := h.must("admin", "POST", "/v1/users/u:erase", `{}`); got["erased"] != true {
		t.Errorf("answer to EraseUser: %v, want erased true", got)
	}
	if data := get(h.must("read", "GET", "/v1/users/u/scores", nil), "data"); len(get(data, "scores").([]any)) != 0 {
		t.Errorf("ListUserScores of an erased user: %v, want no scores", data)
	}
}

func TestRESTAndGRPCAnswerAlike(t *testing.T) {
	h := newHarness(t, Options{})
	c := h.client()
	metadata, err := structpb.NewStruct(map[string]any{"map": "dust"})
	if err != nil {
		t.Fatal(err)
	}
	submitted, err := c.SubmitScore(h.as("submit"), &pb.SubmitScoreRequest{Result: &pb.Result{UserId: "u", MatchId: "m", Points: proto.Int64(3), Metadata: metadata}})
	if err != nil || !submitted.GetSuccess() || submitted.GetNewScore() != 3 || submitted.GetRank() != 1 {
		t.Fatalf("submit: %v, %v; want score 3 and rank 1", submitted, err)
	}
	for path, call := range map[string]func() (proto.Message, error){
		"/v1/scores": func() (proto.Message, error) { return c.ListScores(h.as("read"), &pb.ListScoresRequest{}) },
		"/v1/scores/u": func() (proto.Message, error) {
			return c.GetUserScore(h.as("read"), &pb.GetUserScoreRequest{UserId: "u"})
		},
		"/v1/boards/default/results/u/m": func() (proto.Message, error) {
			return c.GetResult(h.as("read"), &pb.GetResultRequest{Board: "default", UserId: "u", MatchId: "m"})
		},
		"/v1/boards/default/seasons": func() (proto.Message, error) {
			return c.ListSeasons(h.as("read"), &pb.ListSeasonsRequest{Board: "default"})
		},
	} {
		m, err := call()
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		want, err := restjson.Append(nil, m)
		if err != nil {
			t.Fatal(err)
		}
		if got := h.do("read", "GET", path, nil).raw; got != string(want)+"\n" {
			t.Errorf("GET %s and its gRPC method answer differently:\nREST %s\ngRPC %s", path, got, want)
		}
	}
	_, err = c.GetUserScore(h.as("read"), &pb.GetUserScoreRequest{UserId: "nobody"})
	if status.Code(err) != codes.NotFound {
		t.Errorf("GetUserScore of a user without an entry: %v, want NOT_FOUND", err)
	}
	nan := &structpb.Struct{Fields: map[string]*structpb.Value{"x": structpb.NewNumberValue(math.NaN())}}
	_, err = c.SubmitScore(h.as("submit"), &pb.SubmitScoreRequest{Result: &pb.Result{UserId: "u", Points: proto.Int64(3), Metadata: nan}})
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("submit with NaN in metadata: %v, want INVALID_ARGUMENT", err)
	}
	if _, err = c.SubmitScore(h.as("submit"), &pb.SubmitScoreRequest{}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("submit without a result: %v, want INVALID_ARGUMENT", err)
	}
}

func TestSealedSeason(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	h := newHarness(t, Options{Now: clock})
	h.createBoard(`{"board_id":"d","policy":"SUM","season":{"schedule":"DAILY","grace":"3600s"}}`)
	for i := range 3 {
		h.must("submit", "POST", "/v1/boards/d/scores", fmt.Sprintf(`{"user_id":"u%d","match_id":"m","points":%d}`, i, 10-i))
	}
	now = now.AddDate(0, 0, 1).Add(2 * time.Hour)
	if err := h.service.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	a := h.do("submit", "POST", "/v1/boards/d/scores", `{"user_id":"u9","match_id":"late","points":5,"achieved_at":"2026-11-20T12:00:00Z"}`)
	if a.status != http.StatusConflict || a.reason() != "SEASON_CLOSED" {
		t.Errorf("submit of a late result: %d %s, want 409 with SEASON_CLOSED", a.status, a.raw)
	}
	final := get(h.must("read", "GET", "/v1/boards/d/scores?season=20261120", nil), "data")
	if get(final, "sealed") != true || get(final, "count") != number(3) {
		t.Errorf("final standings: %v, want 3 entries and sealed true", final)
	}
	now = now.Add(time.Minute)
	h.must("admin", "POST", "/v1/boards/d/results/u0/m:retract", `{"season":"20261120","reason":"wrong lane"}`)
	if first := get(h.must("read", "GET", "/v1/boards/d/scores?season=20261120", nil), "data", "leaderboard", 0); get(first, "user_id") != "u1" {
		t.Errorf("the first entry after the retraction is %v, want u1", first)
	}
	seasons := get(h.must("read", "GET", "/v1/boards/d/seasons", nil), "data", "seasons").([]any)
	old := seasons[len(seasons)-1]
	if get(old, "id") != "20261120" || get(old, "status") != "sealed" || get(old, "sealed_at") == nil || len(get(old, "amendments").([]any)) == 0 {
		t.Errorf("the sealed season: %v, want 20261120, sealed, with an amendment", old)
	}
	if a := h.do("read", "GET", "/v1/boards/d/scores?season=2026W47", nil); a.status != http.StatusNotFound || a.reason() != "SEASON_NOT_FOUND" {
		t.Errorf("list of a season that the board does not have: %d %s, want 404 with SEASON_NOT_FOUND", a.status, a.raw)
	}
}

func TestSchedulesOverREST(t *testing.T) {
	h := newHarness(t, Options{})
	for i, tt := range []struct{ settings, want string }{
		{`"schedule":"HOURLY"`, `"schedule":"HOURLY"`},
		{`"schedule":"QUARTERLY","time_zone":"Asia/Tokyo"`, `"schedule":"QUARTERLY"`},
		{`"schedule":"DAILY","day_start":"04:00"`, `"day_start":"04:00"`},
		{`"schedule":"WEEKLY","week_start":"SUNDAY"`, `"week_start":"SUNDAY"`},
		{`"schedule":"YEARLY","year_start":"04-01"`, `"year_start":"04-01"`},
		{`"schedule":"EVERY","every":"336h","from":"2026-10-19T02:00:00Z","time_zone":"Europe/Berlin"`, `"every":"1209600s"`},
	} {
		body := fmt.Sprintf(`{"board_id":"s%d","season":{%s}}`, i, tt.settings)
		a := h.do("admin", "POST", "/v1/boards", body)
		if a.status != http.StatusOK || !strings.Contains(strings.ReplaceAll(a.raw, " ", ""), tt.want) {
			t.Errorf("create %s: %d %s, want it as in the request", body, a.status, a.raw)
		}
		stored, err := json.Marshal(get(h.must("read", "GET", fmt.Sprintf("/v1/boards/s%d", i), nil), "season"))
		if err != nil {
			t.Fatal(err)
		}
		// A board that was read can be created again; a board with other starts is another one.
		if a := h.do("admin", "POST", "/v1/boards", fmt.Sprintf(`{"board_id":"s%d","season":%s}`, i, stored)); a.status != http.StatusOK {
			t.Errorf("create board s%d again with %s: %d %s, want 200", i, stored, a.status, a.raw)
		}
		if a := h.do("admin", "PATCH", fmt.Sprintf("/v1/boards/s%d", i), `{"season":{"time_zone":"Africa/Cairo"}}`); a.status != http.StatusBadRequest {
			t.Errorf("another time zone for board s%d: %d %s, want 400", i, a.status, a.raw)
		}
	}
	for _, path := range []string{`{"day_start":"05:00"}`, `{"day_start":null}`} {
		if a := h.do("admin", "PATCH", "/v1/boards/s2", `{"season":`+path+`}`); a.status != http.StatusBadRequest {
			t.Errorf("PATCH %s: %d %s, want 400, as starts of seasons are fixed", path, a.status, a.raw)
		}
	}
	a := h.do("admin", "POST", "/v1/boards", `{"board_id":"s3","season":{"schedule":"WEEKLY"}}`)
	if a.status != http.StatusConflict || !strings.Contains(a.raw, "season.week_start") {
		t.Errorf("create the board with another first day: %d %s, want 409 naming season.week_start", a.status, a.raw)
	}
}

func TestAnswersSayWhenTheSeasonEnds(t *testing.T) {
	h := newHarness(t, Options{})
	h.createBoard(`{"board_id":"y","season":{"schedule":"YEARLY","year_start":"04-01"}}`)
	h.createBoard(`{"board_id":"all"}`)
	h.must("submit", "POST", "/v1/boards/y/scores", `{"user_id":"ann","match_id":"m","score":5,"achieved_at":"2026-05-01T00:00:00Z"}`)
	for path, want := range map[string]any{
		"/v1/boards/y/scores?season=2026": "2027-04-01T00:00:00Z", "/v1/boards/y/scores/ann?season=2026": "2027-04-01T00:00:00Z", "/v1/boards/y/stats?season=2026": "2027-04-01T00:00:00Z",
		"/v1/boards/y/scores?season=9999": nil, "/v1/boards/all/scores": nil, "/v1/boards/y/stats?season=9999": nil, // the year 10000 has no form in JSON
	} {
		if got := get(h.must("read", "GET", path, nil), "data", "season_end"); got != want {
			t.Errorf("GET %s: season_end %v, want %v", path, got, want)
		}
	}
	h.must("read", "GET", "/v1/boards/y/seasons/9999", nil)
}
