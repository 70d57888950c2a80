package server

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

// A dry run needs the scope of the real call, changes nothing and adds no audit record.
func TestDryRun(t *testing.T) {
	h := newHarness(t, Options{})
	h.createBoard(`{"board_id":"b","policy":"SUM","season":{"schedule":"DAILY"}}`)
	for user, points := range map[string]string{"ann": "5", "bob": "9"} {
		h.must("submit", "POST", "/v1/boards/b/scores", `{"user_id":"`+user+`","match_id":"m","points":`+points+`}`)
	}
	h.must("admin", "POST", "/v1/users/bob:ban", `{}`)
	reads := []string{"/v1/audit", "/v1/bans?include_lifted=true", "/v1/boards/b", "/v1/boards/b/scores", "/v1/boards/b/seasons"}
	before := map[string]string{}
	for _, path := range reads {
		before[path] = h.do("admin", "GET", path, nil).raw
	}
	for _, call := range [][3]string{
		{"POST", "/v1/users/ann:ban", `{"dry_run":true}`},
		{"POST", "/v1/users/bob:unban", `{"dry_run":true}`},
		{"PATCH", "/v1/boards/b?dry_run=true", `{"title":"t"}`},
	} {
		if a := h.do("submit", call[0], call[1], call[2]); a.status != http.StatusForbidden {
			t.Errorf("%s without the scope admin: %d %s, want 403", call[1], a.status, a.raw)
		}
	}

	ban := h.must("admin", "POST", "/v1/users/ann:ban", `{"dry_run":true,"board":"b","reason":"aimbot"}`)
	if e := get(ban, "effect", "entries", 0); get(e, "score") != number(5) || get(e, "rank_before") != number(1) || get(e, "rank_after") != nil ||
		get(ban, "banned") != true || get(ban, "ban", "reason") != "aimbot" || get(ban, "effect", "season_count") != number(1) {
		t.Errorf("dry run of a ban: %v, want the effect that the entry with score 5 and rank 1 disappears from one season", ban)
	}
	unban := h.must("admin", "POST", "/v1/users/bob:unban", `{"dry_run":true}`)
	if e := get(unban, "effect", "entries", 0); get(e, "rank_before") != nil || get(e, "rank_after") != number(1) || get(unban, "banned") != false {
		t.Errorf("dry run of an unban: %v, want banned false, and the effect that the entry appears with rank 1", unban)
	}
	board := h.must("admin", "PATCH", "/v1/boards/b?dry_run=true", `{"retention":"3600s"}`)
	season := get(board, "effect", "seasons", 0)
	if get(season, "removed_before") != nil || get(season, "removed_after") == nil || get(season, "entrants") != number(1) || get(board, "retention") != "3600s" {
		t.Errorf("dry run of a retention: %v, want the retention 3600s, and, for the season with 1 entrant, removed_after without removed_before", board)
	}
	overGRPC, err := h.client().UpdateBoard(h.as("admin"), &pb.UpdateBoardRequest{
		Board: &pb.Board{BoardId: "b", Retention: durationpb.New(3600e9)}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"retention"}}, DryRun: true,
	})
	if err != nil || overGRPC.GetBoard().GetEffect().GetChangedCount() != 1 {
		t.Errorf("dry run of a retention over gRPC: %v, %v; want an effect on 1 season", overGRPC, err)
	}
	preview, err := h.client().BanUser(h.as("admin"), &pb.BanUserRequest{UserId: "ann", DryRun: true})
	if err != nil || len(preview.GetEffect().GetEntries()) != 1 {
		t.Errorf("dry run of a ban over gRPC: %v, %v; want an effect on 1 entry", preview, err)
	}
	for _, path := range reads {
		if diff := cmp.Diff(before[path], h.do("admin", "GET", path, nil).raw); diff != "" {
			t.Errorf("the dry runs changed the answer to GET %s, want it unchanged (-before +after):\n%s", path, diff)
		}
	}

	stored, err := h.client().BanUser(h.as("admin"), &pb.BanUserRequest{UserId: "ann"})
	if err != nil || stored.GetEffect() != nil {
		t.Errorf("ban: %v, %v; want no effect in the answer", stored, err)
	}
	again, err := h.client().UnbanUser(h.as("admin"), &pb.UnbanUserRequest{UserId: "nobody", DryRun: true})
	if diff := cmp.Diff(&pb.BanEffect{Method: "competition"}, again.GetEffect(), protocmp.Transform(), protocmp.IgnoreFields(&pb.BanEffect{}, "as_of")); err != nil || diff != "" {
		t.Errorf("dry run of an unban of a user without a ban: error %v, want nil; effect (-want +got):\n%s", err, diff)
	}
}

func TestDryRunOfARetraction(t *testing.T) {
	h := newHarness(t, Options{})
	h.createBoard(`{"board_id":"b","policy":"SUM","season":{"schedule":"DAILY"}}`)
	for user, points := range map[string]string{"ann": "5", "bob": "3"} {
		h.must("submit", "POST", "/v1/boards/b/scores", `{"user_id":"`+user+`","match_id":"m","points":`+points+`}`)
	}
	h.must("submit", "POST", "/v1/boards/b/scores", `{"user_id":"ann","match_id":"n","points":1}`)
	before := map[string]string{}
	for _, path := range []string{"/v1/audit", "/v1/boards/b/results/ann/m", "/v1/boards/b/scores"} {
		before[path] = h.do("admin", "GET", path, nil).raw
	}
	const path = "/v1/boards/b/results/ann/m:retract"
	if a := h.do("read", "POST", path, `{"dry_run":true}`); a.status != http.StatusForbidden {
		t.Errorf("dry run without the scope submit: %d %s, want 403", a.status, a.raw)
	}
	dry := h.must("submit", "POST", path, `{"dry_run":true}`)
	if e := get(dry, "effect", "entries", 0); get(e, "board") != "b" || get(e, "score_before") != number(6) || get(e, "score_after") != number(1) ||
		get(e, "rank_before") != number(1) || get(e, "rank_after") != number(2) || get(dry, "status") != "APPLIED" {
		t.Errorf("dry run: %v, want APPLIED, and the effect that the score 6 with rank 1 becomes 1 with rank 2", dry)
	}
	request := &pb.RetractResultRequest{Board: "b", UserId: "ann", MatchId: "m", DryRun: true}
	overGRPC, err := h.client().RetractResult(h.as("submit"), request)
	if err != nil || len(overGRPC.GetEffect().GetEntries()) != 1 {
		t.Errorf("dry run over gRPC: %v, %v; want an effect on 1 entry", overGRPC, err)
	}
	unknown := "/v1/boards/b/results/ann/none:retract"
	if dry, act := h.do("submit", "POST", unknown, `{"dry_run":true}`), h.do("submit", "POST", unknown, nil); dry.status != http.StatusNotFound || dry.raw != act.raw {
		t.Errorf("dry run on an unknown match: %d %s, want 404 and the answer to the retraction: %s", dry.status, dry.raw, act.raw)
	}
	for path, answer := range before {
		if diff := cmp.Diff(answer, h.do("admin", "GET", path, nil).raw); diff != "" {
			t.Errorf("the dry runs changed the answer to GET %s, want it unchanged (-before +after):\n%s", path, diff)
		}
	}

	request.DryRun = false
	act, err := h.client().RetractResult(h.as("submit"), request)
	overGRPC.Effect = nil
	if diff := cmp.Diff(act, overGRPC, protocmp.Transform(), protocmp.IgnoreFields(act, "as_of")); err != nil || diff != "" {
		t.Errorf("retraction: error %v, want nil and the answer of the dry run without the effect (-retraction +dry run):\n%s", err, diff)
	}
	request.DryRun = true
	again, err := h.client().RetractResult(h.as("submit"), request)
	if again.GetEffect() != nil {
		again.Effect.AsOf = nil
	}
	if err != nil || again.GetStatus() != pb.Outcome_DUPLICATE || !proto.Equal(again.GetEffect(), &pb.RetractionEffect{Method: "competition"}) {
		t.Errorf("dry run after the retraction: %v, %v; want DUPLICATE and no effect", again, err)
	}
}
