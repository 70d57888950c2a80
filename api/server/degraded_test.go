package server

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/api/auth"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/api/restjson"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/internal/secret"
	"github.com/open-leaderboard/leaderboard/test/embedded"
	"github.com/open-leaderboard/leaderboard/test/faults"
)

type faultyHarness struct {
	*harness
	store *faults.Store
	index *faults.Index
	now   atomic.Pointer[time.Time]
}

func (h *faultyHarness) advance(d time.Duration) {
	now := h.now.Load().Add(d)
	h.now.Store(&now)
}

// newFaultyHarness starts a server. On its default board, v has 3 points and u has 1 point.
func newFaultyHarness(t *testing.T) *faultyHarness {
	t.Helper()
	store, index := embedded.Open(t)
	h := &faultyHarness{store: &faults.Store{Store: store}, index: &faults.Index{Index: index}}
	now := time.Now()
	h.now.Store(&now)
	clock := func() time.Time { return *h.now.Load() }
	svc := ranking.New(h.store, h.index, ranking.Options{Now: clock})
	t.Cleanup(svc.Close)
	if err := svc.EnsureDefaultBoard(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.harness = serve(t, svc, h.store, Options{Now: clock})
	for user, points := range map[string]string{"u": "1", "v": "3"} {
		h.must("submit", "POST", "/v1/scores", `{"user_id":"`+user+`","match_id":"m","points":`+points+`}`)
	}
	return h
}

type readCase struct {
	method, path, body string
	call               func(pb.LeaderboardServiceClient, *faultyHarness) (proto.Message, error)
}

var reads = map[string]readCase{
	"a list": {"GET", "/v1/scores", "", func(c pb.LeaderboardServiceClient, h *faultyHarness) (proto.Message, error) {
		return c.ListScores(h.as("read"), &pb.ListScoresRequest{})
	}},
	"a list from a position": {"GET", "/v1/scores?start_rank=2", "", func(c pb.LeaderboardServiceClient, h *faultyHarness) (proto.Message, error) {
		return c.ListScores(h.as("read"), &pb.ListScoresRequest{StartRank: proto.Int64(2)})
	}},
	"the worst first": {"GET", "/v1/scores?order=worst", "", func(c pb.LeaderboardServiceClient, h *faultyHarness) (proto.Message, error) {
		return c.ListScores(h.as("read"), &pb.ListScoresRequest{Order: "worst"})
	}},
	"a list around a score": {"GET", "/v1/scores?around_score=2", "", func(c pb.LeaderboardServiceClient, h *faultyHarness) (proto.Message, error) {
		return c.ListScores(h.as("read"), &pb.ListScoresRequest{AroundScore: proto.Int64(2)})
	}},
	"the top percent": {"GET", "/v1/scores?top_percent=50.0", "", func(c pb.LeaderboardServiceClient, h *faultyHarness) (proto.Message, error) {
		return c.ListScores(h.as("read"), &pb.ListScoresRequest{TopPercent: proto.Float64(50)})
	}},
	"a user without an entry": {"GET", "/v1/scores/x?allow_missing=true", "", func(c pb.LeaderboardServiceClient, h *faultyHarness) (proto.Message, error) {
		return c.GetUserScore(h.as("read"), &pb.GetUserScoreRequest{UserId: "x", AllowMissing: true})
	}},
	"a user": {"GET", "/v1/scores/u", "", func(c pb.LeaderboardServiceClient, h *faultyHarness) (proto.Message, error) {
		return c.GetUserScore(h.as("read"), &pb.GetUserScoreRequest{UserId: "u"})
	}},
	"a user with metadata": {"GET", "/v1/scores/u?include_metadata=true", "", func(c pb.LeaderboardServiceClient, h *faultyHarness) (proto.Message, error) {
		return c.GetUserScore(h.as("read"), &pb.GetUserScoreRequest{UserId: "u", IncludeMetadata: true})
	}},
	"a lookup": {"POST", "/v1/scores:lookup", `{"user_ids":["u","v","w"]}`, func(c pb.LeaderboardServiceClient, h *faultyHarness) (proto.Message, error) {
		return c.LookupScores(h.as("read"), &pb.LookupScoresRequest{UserIds: []string{"u", "v", "w"}})
	}},
	"statistics": {"GET", "/v1/boards/default/stats", "", func(c pb.LeaderboardServiceClient, h *faultyHarness) (proto.Message, error) {
		return c.GetStats(h.as("read"), &pb.GetStatsRequest{Board: "default"})
	}},
	"seasons": {"GET", "/v1/boards/default/seasons", "", func(c pb.LeaderboardServiceClient, h *faultyHarness) (proto.Message, error) {
		return c.ListSeasons(h.as("read"), &pb.ListSeasonsRequest{Board: "default"})
	}},
	"a user on a board": {"GET", "/v1/users/u/scores?boards=default", "", func(c pb.LeaderboardServiceClient, h *faultyHarness) (proto.Message, error) {
		return c.ListUserScores(h.as("read"), &pb.ListUserScoresRequest{UserId: "u", Boards: []string{"default"}})
	}},
	"a user on all boards": {"GET", "/v1/users/u/scores", "", func(c pb.LeaderboardServiceClient, h *faultyHarness) (proto.Message, error) {
		return c.ListUserScores(h.as("read"), &pb.ListUserScoresRequest{UserId: "u"})
	}},
	"a result": {"GET", "/v1/boards/default/results/u/m", "", func(c pb.LeaderboardServiceClient, h *faultyHarness) (proto.Message, error) {
		return c.GetResult(h.as("read"), &pb.GetResultRequest{Board: "default", UserId: "u", MatchId: "m"})
	}},
	"a board": {"GET", "/v1/boards/default", "", func(c pb.LeaderboardServiceClient, h *faultyHarness) (proto.Message, error) {
		m, err := c.GetBoard(h.as("read"), &pb.GetBoardRequest{Board: "default"})
		return m.GetBoard(), err
	}},
	"a watch": {"GET", "/v1/boards/default/watch", "", func(c pb.LeaderboardServiceClient, h *faultyHarness) (proto.Message, error) {
		stream, err := c.WatchScores(h.as("read"), &pb.WatchScoresRequest{Board: "default"})
		if err != nil {
			return nil, err
		}
		m, err := stream.Recv()
		return m, err
	}},
}

// ask makes a read over REST and gRPC, and compares the answers. It returns the HTTP status, the
// error's reason, and the answer as JSON.
func (h *faultyHarness) ask(r readCase) (int, string, string) {
	h.t.Helper()
	m, err := r.call(h.client(), h)
	if strings.HasSuffix(r.path, "/watch") { // gRPC only, because a stream over REST does not end
		if err != nil {
			return httpStatus(status.Code(err)), reasonOf(err), ""
		}
		return http.StatusOK, "", mustJSON(h.t, m)
	}
	var body any
	if r.body != "" {
		body = r.body
	}
	a := h.do("read", r.method, r.path, body)
	if err != nil {
		if a.status != httpStatus(status.Code(err)) || a.reason() != reasonOf(err) {
			h.t.Errorf("%s: REST answers %d %s, and gRPC %v; want the same error", r.path, a.status, a.raw, err)
		}
		if status.Code(err) == codes.Unavailable && (a.header.Get("Retry-After") == "" || !strings.Contains(status.Convert(err).Message(), "try again")) {
			h.t.Errorf("%s: error %v, Retry-After %q; want both to suggest a retry", r.path, err, a.header.Get("Retry-After"))
		}
		return a.status, a.reason(), a.raw
	}
	if want := mustJSON(h.t, m) + "\n"; a.raw != want {
		h.t.Errorf("REST and gRPC answer %s differently:\nREST %s\ngRPC %s", r.path, a.raw, want)
	}
	return a.status, "", a.raw
}

func mustJSON(t testing.TB, m proto.Message) string {
	t.Helper()
	b, err := restjson.Append(nil, m)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func find(v any, key string) []any {
	var all []any
	switch v := v.(type) {
	case map[string]any:
		for k, inner := range v {
			if k == key {
				all = append(all, inner)
			}
			all = append(all, find(inner, key)...)
		}
	case []any:
		for _, inner := range v {
			all = append(all, find(inner, key)...)
		}
	}
	return all
}

// checkAnswers makes each read of the map reads. want has the names of the reads whose answers are
// incomplete, with "degraded" or, for an error, a text such as "503 UNAVAILABLE".
func (h *faultyHarness) checkAnswers(want map[string]string) {
	h.t.Helper()
	for name, r := range reads {
		code, reason, raw := h.ask(r)
		wantReason, fails := strings.CutPrefix(want[name], "503 ")
		if (code == http.StatusServiceUnavailable) != fails || fails && reason != wantReason || !fails && code != http.StatusOK {
			h.t.Errorf("%s: %d %s %s, want %q, where \"\" means a complete answer", name, code, reason, raw, want[name])
		}
		if code != http.StatusOK {
			continue
		}
		var v any
		if err := json.Unmarshal([]byte(raw), &v); err != nil {
			h.t.Fatal(err)
		}
		for _, rank := range find(v, "rank") {
			if rank == float64(0) || want[name] == "degraded" {
				h.t.Errorf("%s: the answer has the rank %v, want no rank in a degraded answer, and ranks from 1 in others: %s", name, rank, raw)
			}
		}
		flags := find(v, "degraded")
		if want[name] == "degraded" {
			for _, number := range []string{"total", "percentile", "entrants"} {
				if got := find(v, number); len(got) != 0 {
					h.t.Errorf("%s is degraded and has %s %v, want none: %s", name, number, got, raw)
				}
			}
			if name != "seasons" && (len(flags) == 0 || flags[0] != true) {
				h.t.Errorf("%s: want degraded true: %s", name, raw)
			}
		} else if len(flags) > 0 && flags[0] != false {
			h.t.Errorf("%s: want degraded false: %s", name, raw)
		}
		if len(flags) > 0 {
			for _, key := range []string{"season", "method", "as_of"} {
				if got := find(v, key); len(got) == 0 || got[0] == "" {
					h.t.Errorf("%s: the answer has no %s: %s", name, key, raw)
				}
			}
		}
	}
}

func TestReadsWithoutTheIndex(t *testing.T) {
	h := newFaultyHarness(t)
	h.checkAnswers(map[string]string{})
	h.index.Set(faults.Refuse)
	h.advance(time.Minute)
	h.checkAnswers(map[string]string{
		"a list": "degraded", "a list from a position": "503 RANK_UNAVAILABLE", "a user": "degraded", "a user with metadata": "degraded",
		"the worst first": "503 RANK_UNAVAILABLE", "a list around a score": "503 RANK_UNAVAILABLE", "the top percent": "503 RANK_UNAVAILABLE",
		"a user without an entry": "503 RANK_UNAVAILABLE", "a user on a board": "degraded",
		"a lookup": "degraded", "statistics": "503 RANK_UNAVAILABLE", "seasons": "degraded", "a user on all boards": "degraded", "a watch": "degraded",
	})
	got := h.must("submit", "POST", "/v1/scores", `{"user_id":"u","match_id":"m2","points":5}`)
	if got["status"] != "APPLIED" || got["new_score"] != number(6) || got["rank"] != nil {
		t.Errorf("submit while the index is down: %v, want APPLIED, the score 6 and no rank", got)
	}
	h.index.Set(faults.Up)
	tick := time.NewTicker(50 * time.Millisecond) // reads try a failed index once a second
	defer tick.Stop()
	for get(h.must("read", "GET", "/v1/scores/u", nil), "data", "degraded") == true {
		<-tick.C
	}
	h.checkAnswers(map[string]string{})
	if rank := get(h.must("read", "GET", "/v1/scores/u", nil), "data", "rank"); rank != number(1) {
		t.Errorf("after the index is back, the rank is %v, want 1", rank)
	}
}

func TestReadsWithoutTheStore(t *testing.T) {
	h := newFaultyHarness(t)
	h.checkAnswers(map[string]string{}) // fills the caches of boards and keys
	h.store.Set(faults.Refuse)
	h.advance(time.Minute) // the server reads cached boards and keys again
	const unavailable = "503 UNAVAILABLE"
	h.checkAnswers(map[string]string{"a user with metadata": unavailable, "seasons": unavailable, "a user on all boards": unavailable, "a user on a board": unavailable, "a result": unavailable})
	for path, body := range map[string]string{
		"/v1/scores":                             `{"user_id":"u","match_id":"m2","points":5}`,
		"/v1/scores:batch":                       `{"results":[{"user_id":"u","match_id":"m2","points":5}]}`,
		"/v1/boards/default/results/u/m:retract": `{}`,
	} {
		if a := h.do("submit", "POST", path, body); a.status != http.StatusServiceUnavailable || a.reason() != "UNAVAILABLE" || a.header.Get("Retry-After") == "" {
			t.Errorf("POST %s while the store is down: %d %s, want 503 with UNAVAILABLE and Retry-After", path, a.status, a.raw)
		}
	}
	if _, err := h.client().SubmitScore(h.as("submit"), &pb.SubmitScoreRequest{Result: &pb.Result{UserId: "u", Points: proto.Int64(5)}}); status.Code(err) != codes.Unavailable {
		t.Errorf("SubmitScore over gRPC while the store is down: %v, want UNAVAILABLE", err)
	}
	h.store.Set(faults.Up)
	h.advance(time.Minute)
	h.checkAnswers(map[string]string{})
	if got := h.must("submit", "POST", "/v1/scores", `{"user_id":"u","match_id":"m2","points":5}`); got["status"] != "APPLIED" || got["new_score"] != number(6) {
		t.Errorf("submit after the store is back: %v, want APPLIED and the score 6", got)
	}
}

// While the store is unavailable, a cached key stays valid for an hour after the server last read
// the key. The server refuses keys that have expired, and keys that it has found revoked.
func TestKeysWithoutTheStore(t *testing.T) {
	h := newFaultyHarness(t)
	h.must("read", "GET", "/v1/scores", nil)
	h.must("admin", "GET", "/v1/keys", nil)
	h.store.Set(faults.Refuse)
	h.advance(59 * time.Minute)
	h.must("read", "GET", "/v1/scores", nil)
	h.keys["stranger"] = "lbk_of_somebody_else"
	if a := h.do("stranger", "GET", "/v1/scores", nil); a.status != http.StatusServiceUnavailable {
		t.Errorf("a key that is not cached, while the store is down: %d %s, want 503", a.status, a.raw)
	}
	h.advance(2 * time.Minute)
	if a := h.do("read", "GET", "/v1/scores", nil); a.status != http.StatusServiceUnavailable {
		t.Errorf("a key that the server read more than an hour ago: %d %s, want 503", a.status, a.raw)
	}
	h.store.Set(faults.Up)
	h.must("read", "GET", "/v1/scores", nil)

	key, err := h.store.APIKey(t.Context(), auth.KeyFrom(secret.Text(h.keys["read"]), "", nil, time.Now()).Hash)
	if err != nil {
		t.Fatal(err)
	}
	key.ExpiresAt = h.now.Load().Add(30 * time.Minute)
	if err := h.store.PutAPIKey(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	h.advance(time.Minute)
	h.must("read", "GET", "/v1/scores", nil)
	h.store.Set(faults.Refuse)
	h.advance(31 * time.Minute)
	if a := h.do("read", "GET", "/v1/scores", nil); a.status != http.StatusUnauthorized {
		t.Errorf("a cached key that has expired: %d %s, want 401", a.status, a.raw)
	}
	h.store.Set(faults.Up)
	if err := h.store.DeleteAPIKey(t.Context(), key.ID); err != nil && !errors.Is(err, leaderboard.ErrAPIKeyNotFound) {
		t.Fatal(err)
	}
	h.advance(time.Minute)
	if a := h.do("read", "GET", "/v1/scores", nil); a.status != http.StatusUnauthorized {
		t.Errorf("a cached key that another server revoked: %d %s, want 401", a.status, a.raw)
	}
	h.store.Set(faults.Refuse)
	if a := h.do("read", "GET", "/v1/scores", nil); a.status == http.StatusOK {
		t.Error("while the store is down, the server accepts a key that it found revoked, want an error")
	}
}
