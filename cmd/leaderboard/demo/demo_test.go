package demo

import (
	"context"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/cmd/leaderboard/client"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

var _ = needs.PackageWithoutRace("one call follows another")

func TestMatches(t *testing.T) {
	matches, err := Matches()
	if err != nil {
		t.Fatal(err)
	}
	if len(matches) != 26260 || len(football) > 400<<10 {
		t.Errorf("the file has %d matches in %d bytes, want 26260 in at most 400 KiB", len(matches), len(football))
	}
	if !slices.IsSortedFunc(matches, func(x, y Match) int { return x.Date.Compare(y.Date) }) {
		t.Error("the matches are not in order of date")
	}
	if first, last := matches[0].Date.Year(), matches[len(matches)-1].Date.Year(); first != 1990 || last != 2019 {
		t.Errorf("the matches are of the years %d to %d, want 1990 to 2019", first, last)
	}
}

type slowServer struct {
	pb.LeaderboardServiceClient
	calls map[string]int
}

func (s *slowServer) BatchSubmitScores(_ context.Context, req *pb.BatchSubmitScoresRequest, _ ...grpc.CallOption) (*pb.BatchSubmitScoresResponse, error) {
	if s.calls[req.GetBoard()]++; s.calls[req.GetBoard()] == 1 {
		return nil, status.Error(codes.DeadlineExceeded, "the call took longer than the server allows")
	}
	res := &pb.BatchSubmitScoresResponse{}
	for range req.GetResults() {
		res.Outcomes = append(res.Outcomes, &pb.Outcome{Status: pb.Outcome_APPLIED})
	}
	return res, nil
}

func TestABatchThatExceedsTheTimeLimitIsSentAgain(t *testing.T) {
	s := &slowServer{calls: map[string]int{}}
	d := &replayer{Client: &client.Client{Scores: s}}
	applied, err := d.submit(t.Context(), []Match{{ID: "1", Home: "Japan", Away: "Brazil"}})
	if err != nil || !applied {
		t.Fatalf("submit returned %v, %v; want true and no error", applied, err)
	}
	if len(s.calls) != 1 || s.calls[sourceBoard] != 2 {
		t.Errorf("batches received, by board: %v; want 2 on %s", s.calls, sourceBoard)
	}
}
