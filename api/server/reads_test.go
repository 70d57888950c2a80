package server

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

// Four users have scores that are all shown as 10: ann 10.25, bob 10.125, cyd 10 and dan 9.75.
func newDecayHarness(t *testing.T, order string) *harness {
	now := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	h := newHarness(t, Options{Now: func() time.Time { return now }})
	h.createBoard(`{"board_id":"trend","policy":"DECAY","half_life":"3600s","order":"` + order + `"}`)
	for i, r := range []struct {
		user      string
		points    int
		halfLives int
	}{{"ann", 10, 0}, {"ann", 1, 2}, {"bob", 10, 0}, {"bob", 1, 3}, {"cyd", 20, 1}, {"dan", 10, 0}, {"dan", -1, 2}} {
		h.must("submit", "POST", "/v1/boards/trend/scores", fmt.Sprintf(`{"user_id":%q,"match_id":"m%d","points":%d,"achieved_at":%q}`,
			r.user, i, r.points, now.Add(-time.Duration(r.halfLives)*time.Hour).Format(time.RFC3339)))
	}
	return h
}

func usersOf(list any) (users []string) {
	entries, _ := get(list, "data", "leaderboard").([]any)
	for _, e := range entries {
		users = append(users, get(e, "user_id").(string))
	}
	return users
}

func TestDecayComparesExactScores(t *testing.T) {
	for order, want := range map[string]struct {
		users                       []string
		best, atLeast, atMost       string
		rankOf9, rankOf10, rankOf11 int64
	}{
		"HIGHER_FIRST": {[]string{"ann", "bob", "cyd", "dan"}, "10.25", "ann bob cyd", "cyd dan", 5, 3, 1},
		"LOWER_FIRST":  {[]string{"dan", "cyd", "bob", "ann"}, "9.75", "cyd bob ann", "dan cyd", 1, 2, 5},
	} {
		t.Run(order, func(t *testing.T) {
			h := newDecayHarness(t, order)
			exact := map[string]string{"ann": "10.25", "bob": "10.125", "cyd": "10", "dan": "9.75"}
			list := h.must("read", "GET", "/v1/boards/trend/scores", nil)
			if got := usersOf(list); !slices.Equal(got, want.users) {
				t.Fatalf("the users are %q, want %q", got, want.users)
			}
			for i, user := range want.users {
				e := get(list, "data", "leaderboard", i)
				if get(e, "score") != number(10) || get(e, "rank") != number(int64(i+1)) || get(e, "score_exact") != exact[user] {
					t.Errorf("the entry of %s is %v, want score 10, rank %d and score_exact %s", user, e, i+1, exact[user])
				}
			}
			for score, rank := range map[int64]int64{9: want.rankOf9, 10: want.rankOf10, 11: want.rankOf11} {
				stats := get(h.must("read", "GET", fmt.Sprintf("/v1/boards/trend/stats?score=%d&rank=1", score), nil), "data")
				if get(stats, "rank_of_score") != number(rank) || get(stats, "score_at_rank_exact") != want.best || get(stats, "scored_at") != "2026-11-20T10:00:00Z" {
					t.Errorf("the statistics with the score %d are %v, want rank_of_score %d, score_at_rank_exact %s and scored_at", score, stats, rank, want.best)
				}
			}
			for query, users := range map[string]string{
				"min_score=10": want.atLeast, "max_score=10": want.atMost, "min_score=10&max_score=10": "cyd", "min_score=11": "", "max_score=9": "", "min_score=9&max_score=11": strings.Join(want.users, " "),
			} {
				for _, limit := range []string{"", "&limit=1"} {
					var got []string
					for token := ""; ; {
						page := query + limit
						if token != "" {
							page += "&page_token=" + url.QueryEscape(token)
						}
						list := h.must("read", "GET", "/v1/boards/trend/scores?"+page, nil)
						got = append(got, usersOf(list)...)
						if n := get(list, "data", "in_range"); n != number(int64(len(strings.Fields(users)))) {
							t.Errorf("%s: in_range is %v, want %d", query, n, len(strings.Fields(users)))
						}
						if token, _ = get(list, "data", "next_page_token").(string); token == "" {
							break
						}
					}
					if strings.Join(got, " ") != users {
						t.Errorf("%s%s: the users are %q, want %q", query, limit, got, users)
					}
				}
			}
			user := get(h.must("read", "GET", "/v1/boards/trend/scores/dan?to_rank=1", nil), "data")
			if get(user, "score_exact") != "9.75" || get(user, "to_rank", "score_exact") != want.best || get(user, "to_rank", "gap") != number(map[bool]int64{true: 1}[order == "HIGHER_FIRST"]) {
				t.Errorf("dan has %v, want score_exact 9.75 and the distance to %s", user, want.best)
			}
			if scores := get(h.must("read", "GET", "/v1/users/bob/scores", nil), "data", "scores", 0); get(scores, "score_exact") != "10.125" || get(scores, "scored_at") == nil {
				t.Errorf("the scores of bob are %v, want score_exact 10.125 and scored_at", scores)
			}
			lookup := h.must("read", "POST", "/v1/boards/trend/scores:lookup", `{"user_ids":["dan"]}`)
			if get(lookup, "data", "leaderboard", 0, "score_exact") != "9.75" {
				t.Errorf("the lookup is %v, want score_exact 9.75", lookup)
			}
			submitted := h.must("submit", "POST", "/v1/boards/trend/scores", `{"user_id":"eve","match_id":"m","points":3,"achieved_at":"2026-11-20T09:00:00Z"}`)
			if get(submitted, "new_score") != number(2) || get(submitted, "new_score_exact") != "1.5" {
				t.Errorf("the answer to a submit is %v, want new_score 2 and new_score_exact 1.5", submitted)
			}
		})
	}
	h := newHarness(t, Options{})
	if o := h.must("submit", "POST", "/v1/scores", `{"user_id":"ann","points":3}`); get(o, "new_score_exact") != nil || get(h.must("read", "GET", "/v1/scores/ann", nil), "data", "score_exact") != nil {
		t.Errorf("a SUM board answers with an exact score: %v, want none", o)
	}
}

func TestDistanceToARank(t *testing.T) {
	h := newHarness(t, Options{})
	h.createBoard(`{"board_id":"race","order":"LOWER_FIRST","policy":"BEST","divisions":["team"]}`)
	h.createBoard(`{"board_id":"best","policy":"BEST"}`)
	for i, n := range []int{100, 90, 90, 80, 70, 70, 60, 50} {
		body := fmt.Sprintf(`{"user_id":"u%d","match_id":"m","points":%d}`, i, n)
		h.must("submit", "POST", "/v1/scores", body)
		body = strings.Replace(body, "points", "score", 1)
		h.must("submit", "POST", "/v1/boards/best/scores", body)
		h.must("submit", "POST", "/v1/boards/race/scores", strings.TrimSuffix(body, "}")+fmt.Sprintf(`,"attributes":{"team":"t%d"}}`, i%2))
	}
	h.must("submit", "POST", "/v1/scores", `{"user_id":"banned","match_id":"m","points":95}`)
	h.must("admin", "POST", "/v1/users/banned:ban", `{"board":"default"}`)
	const none = -1
	for _, tt := range []struct {
		path, query      string
		score, rank, n   int64 // of the user; the rank to reach
		targetScore, gap int64
	}{
		{"/v1/scores/u7", "to_rank=3", 50, 8, 3, 90, 40},
		{"/v1/scores/u7", "to_rank=1", 50, 8, 1, 100, 50},
		{"/v1/scores/u7", "to_rank=8", 50, 8, 8, 50, 0},
		{"/v1/scores/u7", "to_rank=9", 50, 8, 9, none, 0},
		{"/v1/scores/u0", "to_rank=3", 100, 1, 3, 90, 0},
		{"/v1/scores/u2", "to_rank=2", 90, 2, 2, 90, 0},
		{"/v1/scores/u7", "to_rank=3&method=dense", 50, 6, 3, 80, 30},
		{"/v1/scores/u7", "to_rank=4&method=dense", 50, 6, 4, 70, 20},
		{"/v1/scores/u7", "to_rank=7&method=dense", 50, 6, 7, none, 0},
		{"/v1/scores/u7", "to_rank=4&method=ordinal", 50, 8, 4, 80, 30},
		{"/v1/scores/nobody", "to_rank=3", none, none, 3, 90, 90},
		{"/v1/scores/banned", "to_rank=3", none, none, 3, 90, 90},
		{"/v1/scores/nobody", "to_rank=100", none, none, 100, none, 0},
		{"/v1/boards/best/scores/nobody", "to_rank=4", none, none, 4, 80, 80},
		{"/v1/boards/race/scores/u0", "to_rank=3", 100, 8, 3, 70, 30},
		{"/v1/boards/race/scores/u0", "to_rank=2&division=team:t0", 100, 4, 2, 70, 30},
		{"/v1/boards/race/scores/nobody", "to_rank=3", none, none, 3, 70, none},
	} {
		data := get(h.must("read", "GET", tt.path+"?"+tt.query, nil), "data")
		value := func(n int64) any {
			if n == none {
				return nil
			}
			return number(n)
		}
		got := []any{get(data, "score"), get(data, "rank"), get(data, "to_rank", "rank"), get(data, "to_rank", "score"), get(data, "to_rank", "gap")}
		if want := []any{value(tt.score), value(tt.rank), value(tt.n), value(tt.targetScore), value(tt.gap)}; !slices.Equal(got, want) {
			t.Errorf("%s?%s: score, rank and to_rank are %v, want %v", tt.path, tt.query, got, want)
		}
		if get(data, "season") == "" || get(data, "method") == nil || get(data, "as_of") == nil || tt.score == none && (get(data, "achieved_at") != nil || get(data, "percentile") != nil) {
			t.Errorf("%s?%s: %v, want season, method and as_of, and no data of an entry that does not exist", tt.path, tt.query, data)
		}
	}
	for _, query := range []string{"to_rank=0", "to_rank=-1", "to_rank=first", "to_rank=1.5"} {
		if a := h.do("read", "GET", "/v1/scores/u0?"+query, nil); a.status != http.StatusBadRequest || !strings.Contains(a.raw, "to_rank") {
			t.Errorf("%s: %d %s, want 400 that names to_rank", query, a.status, a.raw)
		}
	}
	if a := h.do("read", "GET", "/v1/scores/nobody", nil); a.reason() != "ENTRY_NOT_FOUND" {
		t.Errorf("a user without an entry, without to_rank: %d %s, want ENTRY_NOT_FOUND", a.status, a.raw)
	}
	res, err := h.client().GetUserScore(h.as("read"), &pb.GetUserScoreRequest{UserId: "nobody", ToRank: new(int64(2))})
	if err != nil || res.GetData().Score != nil || res.GetData().GetToRank().GetGap() != 90 {
		t.Errorf("gRPC: %v, error %v, want no score and the gap 90", res, err)
	}
	if _, err := h.client().GetUserScore(h.as("read"), &pb.GetUserScoreRequest{UserId: "u0", ToRank: new(int64(0))}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("gRPC with rank 0: %v, want InvalidArgument", err)
	}
}

// Each message that has ranks or numbers of entries has as_of and method, or is in a message that has them.
func TestMessagesWithRanksAreDated(t *testing.T) {
	checked := 0
	var check func(m protoreflect.MessageDescriptor, dated, named bool, path string)
	check = func(m protoreflect.MessageDescriptor, dated, named bool, path string) {
		dated = dated || m.Fields().ByName("as_of") != nil
		named = named || m.Fields().ByName("method") != nil
		for i := range m.Fields().Len() {
			fd := m.Fields().Get(i)
			at := path + "." + string(fd.Name())
			switch fd.Name() {
			case "rank", "rank_before", "rank_after", "previous_rank", "list_rank", "rank_of_score":
				if checked++; !dated || !named {
					t.Errorf("%s has no as_of or no method beside it", at)
				}
			case "total", "entrants", "in_range", "new_score":
				if checked++; !dated {
					t.Errorf("%s has no as_of beside it", at)
				}
			}
			if fd.Message() != nil && fd.Message().ParentFile().Package() == "leaderboard.v1" {
				check(fd.Message(), dated, named, at)
			}
		}
	}
	services := pb.File_leaderboard_v1_leaderboard_service_proto.Services()
	for i := range services.Len() {
		for j := range services.Get(i).Methods().Len() {
			method := services.Get(i).Methods().Get(j)
			check(method.Output(), false, false, string(method.Name()))
		}
	}
	if checked < 20 {
		t.Errorf("%d fields checked, want at least 20", checked)
	}
}

// every calls f with each map in v.
func every(v any, f func(map[string]any)) {
	switch v := v.(type) {
	case map[string]any:
		f(v)
		for _, part := range v {
			every(part, f)
		}
	case []any:
		for _, part := range v {
			every(part, f)
		}
	}
}

func TestEveryAnswerIsDated(t *testing.T) {
	const form = "2006-01-02T15:04:05.999999999Z"
	created := time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC)
	var clock atomic.Pointer[time.Time]
	clock.Store(&created)
	h := newHarness(t, Options{Now: func() time.Time { return *clock.Load() }})
	tick := func(d time.Duration) string {
		later := clock.Load().Add(d)
		clock.Store(&later)
		return later.Format(form)
	}
	h.createBoard(`{"board_id":"cup","policy":"SUM","matches":true,"divisions":["team"],"season":{"schedule":"DAILY","grace":"0s"}}`)
	h.createBoard(`{"board_id":"best","policy":"BEST","source":{"board_id":"cup"}}`)
	reads := []string{
		"scores", "scores?division=team:red", "scores?start_rank=2", "scores?order=worst", "scores?min_score=1", "scores/ann?to_rank=1", "scores/nobody?to_rank=1",
		"scores?around_score=1", "scores?top_percent=50", "scores/nobody?allow_missing=true", "stats?score=1&rank=1", "seasons/latest", "seasons",
	}
	checkReads := func(state, season string, sealed bool, wants ...string) {
		t.Helper()
		answers := map[string]any{"lookup": h.must("read", "POST", "/v1/boards/cup/scores:lookup", `{"user_ids":["ann"],"season":"`+season+`"}`)}
		for _, read := range reads {
			path := "/v1/boards/cup/" + read
			if !strings.HasPrefix(read, "seasons") {
				path += map[bool]string{true: "&", false: "?"}[strings.Contains(path, "?")] + "season=" + season
			}
			answers[read] = h.must("read", "GET", path, nil)
		}
		for read, answer := range answers {
			data := get(answer, "data")
			if read == "seasons" {
				list, _ := get(data, "seasons").([]any)
				i := slices.IndexFunc(list, func(s any) bool { return get(s, "id") == season })
				data = get(data, "seasons", max(i, 0))
			}
			id := get(data, "season")
			if strings.HasPrefix(read, "seasons") {
				id = get(data, "id")
			} else if get(data, "method") != "competition" || get(data, "sealed") != sealed {
				t.Errorf("%s, %s: method %v, sealed %v, want competition and %v", state, read, get(data, "method"), get(data, "sealed"), sealed)
			}
			if asOf, _ := get(data, "as_of").(string); id != season || !slices.Contains(wants, asOf) {
				t.Errorf("%s, %s: season %v as of %v, want %s as of %v", state, read, id, get(data, "as_of"), season, wants)
			}
		}
	}
	at := created.Format(form)
	tick(time.Minute)
	checkReads("season without results", "20261120", false, at)

	// written checks each part of an answer to a write that has a score or rank.
	written := func(what string, answer any, sealed bool, want string) {
		t.Helper()
		found := 0
		every(answer, func(m map[string]any) {
			_, hasScore := m["new_score"]
			_, hasEntries := m["entries"]
			if !hasScore && !hasEntries {
				return
			}
			found++
			_, linked := m["board_id"] // a linked board, or an Outcome of BatchSubmitResults
			if m["as_of"] != want || m["method"] != "competition" && !linked || !hasEntries && m["sealed"] != sealed && m["season"] != "all" {
				t.Errorf("%s: %v, want method competition, sealed %v and as of %s", what, m, sealed, want)
			}
		})
		if found == 0 {
			t.Errorf("%s: %v has neither a score nor an effect", what, answer)
		}
	}
	at = tick(time.Minute)
	written("submit", h.must("submit", "POST", "/v1/boards/cup/scores?include_linked=true", `{"user_id":"ann","match_id":"m","points":5,"attributes":{"team":"red"}}`), false, at)
	first := at
	tick(time.Minute)
	written("duplicate", h.must("submit", "POST", "/v1/boards/cup/scores", `{"user_id":"ann","match_id":"m","points":5,"attributes":{"team":"red"}}`), false, at)
	checkReads("season with a result", "20261120", false, at)
	at = tick(time.Minute)
	written("batch", h.must("submit", "POST", "/v1/boards/cup/scores:batch", `{"results":[{"user_id":"ann","match_id":"n","points":1},{"user_id":"bob","match_id":"m","points":3}]}`), false, at)
	at = tick(time.Minute)
	written("batch of boards", h.must("submit", "POST", "/v1/results:batch", `{"results":[{"board_id":"cup","user_id":"bob","match_id":"n","points":2}]}`), false, at)
	at = tick(time.Minute)
	written("correction", h.must("submit", "PATCH", "/v1/boards/cup/results/bob/n", `{"points":4}`), false, at)
	now := tick(time.Minute)
	for what, call := range map[string][2]string{
		"dry run of a retraction": {"/v1/boards/cup/results/bob/n:retract", `{"dry_run":true}`},
		"dry run of retractions":  {"/v1/boards/cup/results:retract", `{"dry_run":true,"results":[{"user_id":"bob","match_id":"n"}]}`},
		"dry run of a purge":      {"/v1/boards/cup/results/bob:purge", `{"dry_run":true,"from":"` + first + `"}`},
		"dry run of a void":       {"/v1/boards/cup/matches/m:void", `{"dry_run":true,"reason":"x"}`},
		"dry run of a ban":        {"/v1/users/bob:ban", `{"dry_run":true}`},
	} {
		written(what, h.must("admin", "POST", call[0], call[1]), false, now)
	}
	checkReads("season after dry runs", "20261120", false, at)
	at = tick(time.Minute)
	written("retraction", h.must("submit", "POST", "/v1/boards/cup/results/bob/n:retract?include_linked=true", `{}`), false, at)
	scores := get(h.must("read", "GET", "/v1/users/ann/scores", nil), "data")
	for i := range 2 {
		if e := get(scores, "scores", i); get(scores, "method") != "competition" || get(e, "as_of") != at || get(e, "season") == nil || get(e, "sealed") != false {
			t.Errorf("the scores of ann are %v, want method, and season and as of %s of each", scores, at)
		}
	}

	// Without entries again, the season still has the time of its last change.
	h.must("admin", "POST", "/v1/users/bob:erase", `{}`)
	h.must("submit", "POST", "/v1/boards/cup/results/ann/m:retract", `{}`)
	at = tick(time.Minute)
	h.must("admin", "POST", "/v1/users/ann:erase", `{}`)
	checkReads("season without users", "20261120", false, at)
	tick(time.Minute)
	h.must("submit", "POST", "/v1/boards/cup/scores", `{"user_id":"ann","match_id":"o","points":5}`)

	tick(24 * time.Hour)
	h.sealClosed(t, &clock)
	sealedAt := clock.Load().Format(form)
	checkReads("sealed season", "20261120", true, sealedAt)
	at = tick(time.Minute)
	written("correction of a sealed season", h.must("admin", "PATCH", "/v1/boards/cup/results/ann/o", `{"points":6,"reason":"x"}`), true, at)
	checkReads("amended season", "20261120", true, at)
	if _, accepted := h.must("submit", "POST", "/v1/boards/cup/scores:batch", `{"results":[{"user_id":"ann","match_id":"p","score":5}]}`)["outcomes"].([]any)[0].(map[string]any)["as_of"]; accepted {
		t.Error("the outcome of an invalid result has as_of, want none")
	}
}

func TestRetractionsIgnoreTheFloor(t *testing.T) {
	h := newHarness(t, Options{})
	h.createBoard(`{"board_id":"purse","policy":"SUM","floor":0,"matches":true}`)
	submit := func(match string, revision, points int64, want any) {
		t.Helper()
		a := h.do("submit", "POST", "/v1/boards/purse/scores", map[string]any{"user_id": "ann", "match_id": match, "revision": revision, "points": points, "achieved_at": "2026-11-20T10:00:00Z"})
		if want == nil {
			if a.status != http.StatusConflict || a.reason() != "FLOOR" {
				t.Errorf("%d points in match %s: %d %s, want FLOOR", points, match, a.status, a.raw)
			}
		} else if get(a.body, "new_score") != want {
			t.Errorf("%d points in match %s: %d %s, want the score %v", points, match, a.status, a.raw, want)
		}
	}
	submit("prize", 0, 10, number(10))
	submit("spend", 0, -8, number(2))
	preview := h.must("submit", "POST", "/v1/boards/purse/results/ann/prize:retract", `{"dry_run":true}`)
	if get(preview, "effect", "entries", 0, "score_after") != number(-8) {
		t.Errorf("the dry run is %v, want the score -8 after it", preview)
	}
	if o := h.must("submit", "POST", "/v1/boards/purse/results/ann/prize:retract", `{}`); get(o, "status") != "APPLIED" || get(o, "new_score") != number(-8) {
		t.Errorf("the retraction is %v, want APPLIED and the score -8", o)
	}
	submit("more", 0, -1, nil)
	if a := h.do("submit", "PATCH", "/v1/boards/purse/results/ann/spend", `{"points":-9}`); a.reason() != "FLOOR" {
		t.Errorf("a correction that lowers the sum: %d %s, want FLOOR", a.status, a.raw)
	}
	submit("work", 0, 3, number(-5))
	if o := h.must("submit", "PATCH", "/v1/boards/purse/results/ann/spend", `{"points":-4}`); get(o, "new_score") != number(-1) {
		t.Errorf("the correction is %v, want the score -1", o)
	}
	h.must("admin", "POST", "/v1/boards/purse/matches/work:void", `{"reason":"x"}`)
	if data := get(h.must("read", "GET", "/v1/boards/purse/scores/ann", nil), "data"); get(data, "score") != number(-4) {
		t.Errorf("after a void, ann has %v, want the score -4", data)
	}
}
