package protoconv

import (
	"errors"
	"testing"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

func TestToResultTakesOneOfScoreAndPoints(t *testing.T) {
	value := int64(5)
	score, points, neither := &pb.Result{UserId: "u", Score: &value}, &pb.Result{UserId: "u", Points: &value}, &pb.Result{UserId: "u"}
	for policy, accepted := range map[leaderboard.Policy][]*pb.Result{
		leaderboard.Best: {score}, leaderboard.Latest: {score}, leaderboard.First: {score},
		leaderboard.Sum: {points}, leaderboard.Decay: {points}, leaderboard.Average: {points}, leaderboard.BestK: {points}, leaderboard.Count: {points, neither},
	} {
		for _, r := range []*pb.Result{score, points, neither} {
			want := leaderboard.ErrInvalid
			for _, a := range accepted {
				if r == a {
					want = nil
				}
			}
			if _, err := ToResult(&leaderboard.Board{Policy: policy}, r); !errors.Is(err, want) {
				t.Errorf("ToResult(%v) on a %v board: error %v, want %v", r, policy, err, want)
			}
		}
	}
}
