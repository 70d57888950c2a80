package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

func TestBansAreSeenByAdministratorsOnly(t *testing.T) {
	h := newHarness(t, Options{PublicRead: true})
	h.createBoard(`{"board_id":"b","season":{"schedule":"NONE"}}`)
	h.must("submit", "POST", "/v1/boards/b/scores", `{"user_id":"u","match_id":"m","score":7}`)
	got := h.must("admin", "POST", "/v1/users/u:ban", `{"board":"b","reason":"secret reason"}`)
	if !strings.HasPrefix(get(got, "ban", "actor").(string), "key:") || get(got, "ban", "board") != "b" {
		t.Errorf("answer to BanUser: %v, want a ban on b by a key", got)
	}
	if data := get(h.must("admin", "GET", "/v1/users/u/scores", nil), "data"); get(data, "bans", 0, "reason") != "secret reason" || get(data, "banned") != false {
		t.Errorf("an administrator sees %v, want the ban on b with its reason, and banned false", data)
	}
	h.must("admin", "POST", "/v1/users/u:ban", `{"reason":"secret reason"}`)
	for _, scope := range []string{"read", "submit", "none"} {
		for _, call := range [][3]string{
			{"GET", "/v1/users/u/scores"}, {"GET", "/v1/boards/b/scores/u"}, {"GET", "/v1/boards/b/results/u/m"}, {"GET", "/v1/boards/b/results/u"},
			{"GET", "/v1/boards/b/scores"}, {"GET", "/v1/boards/b/stats"}, {"POST", "/v1/boards/b/scores:lookup", `{"user_ids":["u"]}`},
		} {
			a := h.do(scope, call[0], call[1], call[2])
			if a.status != http.StatusOK && a.status != http.StatusNotFound && scope != "none" {
				t.Errorf("%s %s with scope %s: %d %s, want an answer", call[0], call[1], scope, a.status, a.raw)
			}
			if showsBan(a.raw) {
				t.Errorf("%s %s with scope %s: %s, want an answer without the ban", call[0], call[1], scope, a.raw)
			}
		}
	}
	watch := h.watch("/v1/boards/b/watch")
	if e, ok := watch.next(); !ok || showsBan(fmt.Sprint(e)) {
		t.Errorf("the first event of a watch is %v, want one without the ban", e)
	}
	client, ctx := h.client(), h.as("read")
	for name, call := range map[string]func() (proto.Message, error){
		"ListUserScores": func() (proto.Message, error) {
			return client.ListUserScores(ctx, &pb.ListUserScoresRequest{UserId: "u"})
		},
		"GetUserScore": func() (proto.Message, error) {
			return client.GetUserScore(ctx, &pb.GetUserScoreRequest{Board: "b", UserId: "u"})
		},
		"LookupScores": func() (proto.Message, error) {
			return client.LookupScores(ctx, &pb.LookupScoresRequest{Board: "b", UserIds: []string{"u"}})
		},
		"ListUserResults": func() (proto.Message, error) {
			return client.ListUserResults(ctx, &pb.ListUserResultsRequest{Board: "b", UserId: "u"})
		},
		"ListScores": func() (proto.Message, error) { return client.ListScores(ctx, &pb.ListScoresRequest{Board: "b"}) },
	} {
		res, err := call()
		if err != nil && status.Code(err) != codes.NotFound {
			t.Errorf("%s over gRPC: %v", name, err)
		}
		text, _ := protojson.Marshal(res)
		if showsBan(string(text) + fmt.Sprint(err)) {
			t.Errorf("%s over gRPC: %s, %v; want an answer without the ban", name, text, err)
		}
	}
}

func showsBan(answer string) bool {
	return strings.Contains(strings.ToLower(answer), "banned") || strings.Contains(answer, "secret")
}

// The answer to a submit for a banned user has the reason USER_BANNED. The result counts once the
// ban is lifted.
func TestSubmitOfABannedUserHasTheReason(t *testing.T) {
	h := newHarness(t, Options{})
	h.createBoard(`{"board_id":"b","season":{"schedule":"NONE"}}`)
	h.createBoard(`{"board_id":"c","season":{"schedule":"NONE"}}`)
	h.must("admin", "POST", "/v1/users/u:ban", `{"board":"b"}`)
	for range 2 {
		got := h.must("submit", "POST", "/v1/boards/b/scores", `{"user_id":"u","match_id":"m","score":7}`)
		if got["reason"] != "USER_BANNED" || got["success"] != true || got["new_score"] != number(7) || got["rank"] != nil {
			t.Errorf("submit for a banned user: %v, want USER_BANNED, the score 7 and no rank", got)
		}
	}
	batch := h.must("submit", "POST", "/v1/boards/b/scores:batch", `{"results":[{"user_id":"u","match_id":"n","score":9},{"user_id":"v","match_id":"n","score":8}]}`)
	if get(batch, "outcomes", 0, "reason") != "USER_BANNED" || get(batch, "outcomes", 1, "reason") != "" || get(batch, "outcomes", 1, "rank") != number(1) {
		t.Errorf("batch: %v, want USER_BANNED for u, and rank 1 without a reason for v", batch)
	}
	if got := h.must("submit", "POST", "/v1/boards/c/scores", `{"user_id":"u","match_id":"m","score":7}`); got["rank"] != number(1) || got["reason"] != nil {
		t.Errorf("submit on a board without the ban: %v, want rank 1 and no reason", got)
	}
	h.must("admin", "POST", "/v1/users/u:unban", `{"board":"b"}`)
	if got := get(h.must("read", "GET", "/v1/boards/b/scores/u", nil), "data"); get(got, "score") != number(9) || get(got, "rank") != number(1) {
		t.Errorf("entry after the ban is lifted: %v, want score 9 and rank 1", got)
	}
}

func TestBansAreSearched(t *testing.T) {
	now := &atomic.Pointer[time.Time]{}
	now.Store(&firstOfNovember)
	h := newHarness(t, Options{Now: func() time.Time { return *now.Load() }})
	h.createBoard(`{"board_id":"b"}`)
	h.createBoard(`{"board_id":"c"}`)
	h.must("admin", "POST", "/v1/users/Mallory:ban", `{"reason":"Aimbot, ticket 7"}`)
	h.must("admin", "POST", "/v1/users/mallet:ban", `{"board":"b","reason":"abuse"}`)
	h.must("admin", "POST", "/v1/users/trent:ban", `{"board":"c","reason":"aimbot","until":"2026-11-02T00:00:00Z"}`)
	h.must("admin", "POST", "/v1/users/lifted:ban", `{"reason":"aimbot"}`)
	h.must("admin", "POST", "/v1/users/lifted:unban", `{"reason":"appeal"}`)
	later := firstOfNovember.AddDate(0, 0, 1)
	now.Store(&later)
	actor := get(h.must("admin", "GET", "/v1/bans?user=mallet", nil), "bans", 0, "actor").(string)
	for query, want := range map[string]string{
		"":                                    "Mallory mallet",
		"include_lifted=true":                 "Mallory lifted mallet trent",
		"user=MALL":                           "Mallory mallet",
		"user=ory":                            "Mallory",
		"user=nobody":                         "",
		"reason=aimBOT":                       "Mallory",
		"reason=aimbot&include_lifted=true":   "Mallory trent",
		"reason=appeal&include_lifted=true":   "lifted",
		"reason=ticket+7&user=mallet":         "",
		"actor=" + strings.ToUpper(actor[:7]): "Mallory mallet",
		"actor=key:none":                      "",
		"board=b":                             "Mallory mallet",
		"board=c":                             "Mallory",
		"board=c&include_lifted=true":         "Mallory lifted trent",
	} {
		var users []string
		bans, _ := h.must("admin", "GET", "/v1/bans?"+query, nil)["bans"].([]any)
		for _, b := range bans {
			users = append(users, get(b, "user_id").(string))
		}
		slices.Sort(users)
		if got := strings.Join(users, " "); got != want {
			t.Errorf("bans with %q: %q, want %q", query, got, want)
		}
	}
}

func TestBansArePaged(t *testing.T) {
	h := newHarness(t, Options{})
	h.createBoard(`{"board_id":"b"}`)
	users := []string{"a", "b c", "ü"}
	until := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	for _, user := range users {
		h.must("admin", "POST", "/v1/users/"+strings.ReplaceAll(user, " ", "%20")+":ban", `{"board":"b","until":"`+until+`"}`)
	}
	var got []string
	path := "/v1/bans?limit=1"
	for token := ""; ; {
		page := h.must("admin", "GET", path+token, nil)
		got = append(got, get(page, "bans", 0, "user_id").(string))
		if get(page, "bans", 0, "until") != until {
			t.Errorf("page %v, want a ban until %s", page, until)
		}
		next := page["next_page_token"].(string)
		if next == "" {
			break
		}
		token = "&page_token=" + next
	}
	slices.Sort(got) // the order of users depends on the store
	if strings.Join(got, "|") != strings.Join(users, "|") {
		t.Errorf("users of all pages: %q, want %q", got, users)
	}
	for path, field := range map[string]string{"/v1/bans?limit=0": "limit", "/v1/bans?limit=1001": "limit", "/v1/bans?page_token=x": "page_token"} {
		if a := h.do("admin", "GET", path, nil); a.status != http.StatusBadRequest || !strings.Contains(a.raw, field) {
			t.Errorf("GET %s: %d %s, want 400 naming %s", path, a.status, a.raw, field)
		}
	}
	for _, body := range []string{`{"until":"2020-01-01T00:00:00Z"}`, `{"board":"none"}`, `{"reason":"` + strings.Repeat("x", 257) + `"}`} {
		if a := h.do("admin", "POST", "/v1/users/u:ban", body); a.status != http.StatusBadRequest && a.status != http.StatusNotFound {
			t.Errorf("ban with %s: %d %s, want 400 or 404", body, a.status, a.raw)
		}
	}
	for _, body := range []string{`{}`, `{"bans":[{"user_id":"u"}]}`, `{"bans":[{"revision":1}]}`} {
		if a := h.do("admin", "POST", "/v1/bans:import", body); a.status != http.StatusBadRequest {
			t.Errorf("import of %s: %d %s, want 400", body, a.status, a.raw)
		}
	}
}
