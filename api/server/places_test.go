package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

// placesOf returns "user rank" for each entry.
func placesOf(entries []*pb.Entry) (users []string) {
	for _, e := range entries {
		users = append(users, fmt.Sprint(e.GetUserId(), " ", e.GetRank()))
	}
	return users
}

// A score, a percentage and a user without an entry have the same places over all protocols.
func TestPlacesOverAllProtocols(t *testing.T) {
	h := newHarness(t, Options{})
	for i, points := range []int{9, 7, 7, 4, 0, -2} {
		h.must("submit", "POST", "/v1/scores", fmt.Sprintf(`{"user_id":"u%d","match_id":"m","points":%d,"achieved_at":"2026-11-20T0%d:00:00Z"}`, i, points, i))
	}
	h.must("submit", "PUT", "/v1/users/nobody/profile", `{"display_name":"No Body"}`)
	around := &pb.ListScoresRequest{AroundScore: proto.Int64(5), Limit: proto.Int32(4), Method: "dense"}
	percent := &pb.ListScoresRequest{TopPercent: proto.Float64(33.4), Limit: proto.Int32(2)}
	missing := &pb.GetUserScoreRequest{UserId: "nobody", Neighbors: proto.Int32(1), AllowMissing: true, IncludeProfile: true, IncludeMetadata: true}
	check := func(protocol string, lists [2]*pb.ListScoresResponse, user *pb.GetUserScoreResponse, errs ...error) {
		t.Helper()
		for _, err := range errs {
			if err != nil {
				t.Fatalf("%s: %v", protocol, err)
			}
		}
		if d := lists[0].GetData(); !slices.Equal(placesOf(d.GetLeaderboard()), []string{"u1 2", "u2 2", "u3 3", "u4 4"}) || d.GetRankOfScore() != 3 || d.GetTotal() != 6 || d.GetNextPageToken() != "" {
			t.Errorf("%s, around the score 5: %v, want u1 to u4 and the dense rank 3", protocol, d)
		}
		// 33.4 percent of 6, rounded up, are 3 ranks. Two users share rank 2.
		if d := lists[1].GetData(); !slices.Equal(placesOf(d.GetLeaderboard()), []string{"u0 1", "u1 2"}) || d.GetNextPageToken() == "" || d.RankOfScore != nil {
			t.Errorf("%s, the top percent: %v, want u0 and u1, and a next page", protocol, d)
		}
		d := user.GetData()
		if !slices.Equal(placesOf(d.GetNeighbors()), []string{"u4 5", "u5 6"}) || d.GetWouldRank() != 5 || d.Score != nil || d.Rank != nil || d.AchievedAt != nil || d.Percentile != nil {
			t.Errorf("%s, a user without an entry: %v, want the neighbors u4 and u5, and rank 5", protocol, d)
		}
		if d.GetProfile().GetDisplayName() != "No Body" || d.MatchId != nil || d.GetNeighbors()[0].MatchId == nil {
			t.Errorf("%s, a user without an entry: %v, want the profile of the user, and the metadata of neighbors", protocol, d)
		}
	}
	var lists [2]*pb.ListScoresResponse
	var errs [3]error
	lists[0], errs[0] = h.client().ListScores(h.as("read"), around)
	lists[1], errs[1] = h.client().ListScores(h.as("read"), percent)
	user, err := h.client().GetUserScore(h.as("read"), missing)
	check("gRPC", lists, user, errs[0], errs[1], err)
	second := proto.CloneOf(percent)
	second.PageToken = lists[1].GetData().GetNextPageToken()
	if page, err := h.client().ListScores(h.as("read"), second); err != nil || !slices.Equal(placesOf(page.GetData().GetLeaderboard()), []string{"u2 2"}) || page.GetData().GetNextPageToken() != "" {
		t.Errorf("the second page of the top percent: %v, error %v; want u2 only", page, err)
	}
	for i, p := range rpcProtocols {
		lists[0], errs[0] = rpcCall[pb.ListScoresRequest, pb.ListScoresResponse](h, "read", pb.LeaderboardService_ListScores_FullMethodName, i, around)
		lists[1], errs[1] = rpcCall[pb.ListScoresRequest, pb.ListScoresResponse](h, "read", pb.LeaderboardService_ListScores_FullMethodName, i, percent)
		user, errs[2] = rpcCall[pb.GetUserScoreRequest, pb.GetUserScoreResponse](h, "read", pb.LeaderboardService_GetUserScore_FullMethodName, i, missing)
		check(p.name, lists, user, errs[:]...)
	}
	rest := func(path string, m proto.Message) {
		t.Helper()
		if err := protojson.Unmarshal([]byte(h.do("read", "GET", path, nil).raw), m); err != nil {
			t.Fatal(err)
		}
	}
	lists, user = [2]*pb.ListScoresResponse{{}, {}}, &pb.GetUserScoreResponse{}
	rest("/v1/scores?around_score=5&limit=4&method=dense", lists[0])
	rest("/v1/boards/default/scores?top_percent=33.4&limit=2", lists[1])
	rest("/v1/scores/nobody?neighbors=1&allow_missing=true&include_profile=true&include_metadata=true", user)
	check("REST", lists, user)
	if a := h.do("read", "GET", "/v1/scores/nobody", nil); a.status != http.StatusNotFound {
		t.Errorf("a user without an entry, without allow_missing: %d %s, want 404", a.status, a.raw)
	}
	for _, number := range []string{`33.4`, `"33.4"`, `3.34e1`} {
		if a, _ := h.rpcRaw("read", pb.LeaderboardService_ListScores_FullMethodName, `{"top_percent":`+number+`}`); get(a.body, "data", "count") != json.Number("3") {
			t.Errorf("top_percent %s over Connect: %s, want 3 entries", number, a.raw)
		}
	}
	for _, number := range []string{`NaN`, `"NaN"`, `"Infinity"`, `1e999`, `true`, `[1]`, `{}`, `"1 "`, `0`, `101`} {
		if a, reason := h.rpcRaw("read", pb.LeaderboardService_ListScores_FullMethodName, `{"top_percent":`+number+`}`); reason != "INVALID_ARGUMENT" || number != "NaN" && !strings.Contains(a.raw, "top_percent") {
			t.Errorf("top_percent %s over Connect: %s, want INVALID_ARGUMENT", number, a.raw)
		}
	}
}

func TestScoresOfAUserOnSomeBoards(t *testing.T) {
	h := newBoundHarness(t)
	h.createBoard(`{"board_id":"empty"}`)
	h.createBoard(`{"board_id":"a,b/c d","policy":"SUM"}`)
	h.must("admin", "POST", "/v1/boards/a%2Cb%2Fc%20d/scores", `{"user_id":"u","match_id":"m","points":1}`)
	for _, board := range []string{"cup", "other", ""} {
		h.must("admin", "POST", "/v1/users/u:ban", fmt.Sprintf(`{"board":%q}`, board))
	}
	h.must("admin", "POST", "/v1/users/u:unban", `{}`)
	for _, tt := range []struct {
		key          string
		boards       []string
		scores, bans []string
	}{
		{"admin", nil, []string{"*", "Cup", "a,b/c d", "cup2", "eu-", "eu-1", "x-eu-1"}, []string{"cup", "other"}},
		{"admin", []string{"eu-1", "cup2", "empty", "eu-1"}, []string{"cup2", "eu-1"}, nil},
		{"admin", []string{"other", "a,b/c d"}, []string{"a,b/c d"}, []string{"other"}},
		{"bound admin", nil, []string{"eu-", "eu-1"}, []string{"cup"}},
		{"bound admin", []string{"eu-1"}, []string{"eu-1"}, nil},
		{"read", []string{"eu-1", "empty"}, []string{"eu-1"}, nil},
	} {
		res, err := h.client().ListUserScores(h.as(tt.key), &pb.ListUserScoresRequest{UserId: "u", Boards: tt.boards})
		if err != nil {
			t.Fatal(err)
		}
		var scores, bans []string
		for _, s := range res.GetData().GetScores() {
			scores = append(scores, s.GetBoard())
		}
		for _, b := range res.GetData().GetBans() {
			bans = append(bans, b.GetBoard())
		}
		slices.Sort(scores)
		slices.Sort(bans)
		if !slices.Equal(scores, tt.scores) || !slices.Equal(bans, tt.bans) {
			t.Errorf("%s, boards %q: entries on %q and bans on %q, want %q and %q", tt.key, tt.boards, scores, bans, tt.scores, tt.bans)
		}
	}
	a := h.must("read", "GET", "/v1/users/u/scores?boards=a%2Cb%2Fc%20d&boards=eu-1", nil)
	if list, _ := get(a, "data", "scores").([]any); len(list) != 2 {
		t.Errorf("two boards over REST: %v, want two entries", a)
	}
	for _, tt := range []struct {
		key, board string
		want       codes.Code
	}{
		{"read", "nowhere", codes.NotFound}, {"bound read", "nowhere", codes.PermissionDenied}, {"bound read", "other", codes.PermissionDenied}, {"read", "", codes.InvalidArgument},
	} {
		req := &pb.ListUserScoresRequest{UserId: "u", Boards: []string{"eu-1", tt.board}}
		if _, err := h.client().ListUserScores(h.as(tt.key), req); status.Code(err) != tt.want {
			t.Errorf("board %q with the key %s: %v, want %v", tt.board, tt.key, err, tt.want)
		}
		_, err := rpcCall[pb.ListUserScoresRequest, pb.ListUserScoresResponse](h, tt.key, pb.LeaderboardService_ListUserScores_FullMethodName, 1, req)
		if connect.CodeOf(err) != connect.Code(tt.want) {
			t.Errorf("board %q with the key %s over Connect: %v, want %v", tt.board, tt.key, err, tt.want)
		}
	}
	public := newHarness(t, Options{PublicRead: true})
	public.createBoard(`{"board_id":"hidden","private":true}`)
	for _, board := range []string{"hidden", "nowhere"} {
		if a := public.do("", "GET", "/v1/users/u/scores?boards="+board, nil); a.status != http.StatusNotFound || a.reason() != "BOARD_NOT_FOUND" {
			t.Errorf("the board %s without a key: %d %s, want 404 as for an unknown board", board, a.status, a.raw)
		}
	}
}
