package protoconv

import (
	"errors"
	"testing"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

func TestNewRulesSurviveMessages(t *testing.T) {
	score := leaderboard.Score(7)
	boards := []leaderboard.Board{
		{ID: "b", Policy: leaderboard.BestK, DropWorst: 3, Ties: leaderboard.LatestFirst, MinResults: 4},
		{ID: "b", Policy: leaderboard.Sum, Ties: leaderboard.Shared, Floor: &score, Statuses: []leaderboard.Finish{leaderboard.Cut, leaderboard.HorsConcours, leaderboard.DNF, leaderboard.DNS, leaderboard.DSQ},
			TieBreakers: []leaderboard.TieBreaker{{Name: "a"}, {Name: "b", Combine: leaderboard.Greatest}, {Name: "c", Combine: leaderboard.Least}, {Name: "d", Combine: leaderboard.Last}}},
		{ID: "b", Ties: leaderboard.ByUserID},
	}
	for _, b := range boards {
		if got, err := ToBoard(FromBoard(&b)); err != nil || !got.SameAs(&b) {
			t.Errorf("%+v as a message is %+v, error %v", b, got, err)
		}
	}
	for _, f := range append([]leaderboard.Finish{leaderboard.Ranked}, boards[1].Statuses...) {
		r := leaderboard.MatchResult{ResultKey: leaderboard.ResultKey{User: "u", Match: "m"}, Score: 3, Reset: f == leaderboard.DNF, Finish: f}
		if got, err := ToResult(&boards[1], FromResult(&boards[1], &r)); err != nil || got.Finish != f || got.Reset != r.Reset {
			t.Errorf("%+v as a message is %+v, error %v", r, got, err)
		}
	}
	for _, f := range []pb.Result_Finish{pb.Result_TOO_FEW_RESULTS, 99, -1} {
		if _, err := ToResult(&boards[1], &pb.Result{UserId: "u", Points: new(int64(1)), Status: &f}); !errors.Is(err, leaderboard.ErrInvalid) {
			t.Errorf("a result with the status %v: %v, want ErrInvalid", f, err)
		}
	}
}

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
