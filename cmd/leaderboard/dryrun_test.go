package main

import (
	"context"
	"slices"
	"testing"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

type olderServer struct {
	pb.UnimplementedLeaderboardServiceServer
	scores pb.LeaderboardServiceClient
}

func (o *olderServer) BanUser(ctx context.Context, r *pb.BanUserRequest) (*pb.BanUserResponse, error) {
	r.DryRun = false
	return o.scores.BanUser(ctx, r)
}

func (o *olderServer) UnbanUser(ctx context.Context, r *pb.UnbanUserRequest) (*pb.UnbanUserResponse, error) {
	r.DryRun = false
	return o.scores.UnbanUser(ctx, r)
}

func (o *olderServer) UpdateBoard(ctx context.Context, r *pb.UpdateBoardRequest) (*pb.UpdateBoardResponse, error) {
	r.DryRun = false
	return o.scores.UpdateBoard(ctx, r)
}

func (o *olderServer) RetractResult(ctx context.Context, r *pb.RetractResultRequest) (*pb.RetractResultResponse, error) {
	r.DryRun = false
	return o.scores.RetractResult(ctx, r)
}

// An older server ignores dry_run and makes the change, so the command fails.
func TestDryRunsOfAnOlderServer(t *testing.T) {
	s := startInsecure(t)
	s.ok(t, "submit", "ada", "--points", "3", "--match", "m1")
	o := serve(t, &olderServer{scores: dial(t, s)})
	for _, args := range [][]string{{"ban", "ada"}, {"unban", "ada"}, {"retract", "ada", "m1"}, {"board", "update", "default", "--title", "Other"}} {
		for _, flags := range [][]string{{"--dry-run"}, {"--dry-run", "--json"}} {
			args := slices.Concat(args, flags)
			r := o.do(t, args...)
			r.mustFail(t, exitFailure, []string{"older version", "made the change"}, args)
			if r.stdout != "" {
				t.Errorf("%v prints %q on standard output, want nothing", args, r.stdout)
			}
		}
	}
	checkContains(t, s.ok(t, "board", "show", "default"), "Other")
}
