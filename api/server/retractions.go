package server

import (
	"context"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/api/protoconv"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

// BatchRetractResults undoes many results. Each result has an outcome, even a result that cannot be
// undone.
func (s *Server) BatchRetractResults(ctx context.Context, req *pb.BatchRetractResultsRequest) (*pb.BatchRetractResultsResponse, error) {
	b, err := s.board(ctx, leaderboard.BoardID(req.GetBoard()))
	if err != nil {
		return nil, err
	}
	keys := make([]leaderboard.ResultKey, len(req.GetResults()))
	for i, r := range req.GetResults() {
		keys[i] = resultKey(req.GetBoard(), r.GetSeason(), r.GetUserId(), r.GetMatchId())
	}
	plan, err := s.service.PlanRetractions(ctx, &b, keys)
	if err != nil {
		return nil, err
	}
	outcomes, effect, err := s.retract(ctx, req, &b, plan)
	if err != nil {
		return nil, err
	}
	return &pb.BatchRetractResultsResponse{Outcomes: outcomes, Effect: effect}, nil
}

// PurgeResults undoes the results of a user between two times.
func (s *Server) PurgeResults(ctx context.Context, req *pb.PurgeResultsRequest) (*pb.PurgeResultsResponse, error) {
	from, err := protoconv.ToTime("from", req.GetFrom())
	if err != nil {
		return nil, err
	}
	to, err := protoconv.ToTime("to", req.GetTo())
	switch {
	case err != nil:
		return nil, err
	case from.IsZero() && to.IsZero():
		return nil, &leaderboard.FieldError{Field: "from", Problem: "is required if to is absent"}
	case !to.IsZero() && !from.Before(to):
		return nil, &leaderboard.FieldError{Field: "to", Problem: "must be after from"}
	}
	b, err := s.board(ctx, leaderboard.BoardID(req.GetBoard()))
	if err != nil {
		return nil, err
	}
	plan, err := s.service.PlanPurge(ctx, &b, leaderboard.UserID(req.GetUserId()), leaderboard.SeasonID(req.GetSeason()), from, to)
	if err != nil {
		return nil, err
	}
	outcomes, effect, err := s.retract(ctx, req, &b, plan)
	if err != nil {
		return nil, err
	}
	return &pb.PurgeResultsResponse{Outcomes: outcomes, Effect: effect, More: plan.More}, nil
}

type retractOptions interface {
	extraOptions
	GetReason() string
	GetDryRun() bool
}

func (s *Server) retract(ctx context.Context, o retractOptions, b *leaderboard.Board, plan *ranking.Retractions) ([]*pb.Outcome, *pb.RetractionEffect, error) {
	key := leaderboard.ResultKey{}
	if len(plan.Closed) > 0 {
		key = plan.Closed[0]
	}
	if err := checkChange(ctx, key, len(plan.Closed) > 0, o.GetReason()); err != nil {
		return nil, nil, err
	}
	var receipts []ranking.Receipt
	var effect *pb.RetractionEffect
	if o.GetDryRun() {
		var effects ranking.Effects
		var err error
		if receipts, effects, err = s.service.PreviewRetractions(ctx, b, plan); err != nil {
			return nil, nil, err
		}
		effect = s.fromEffects(ctx, &effects)
	} else if err := s.auditAll(ctx, retractionActs(ctx, plan, o.GetReason()), func(outcomes []leaderboard.Act) (err error) {
		if receipts, err = s.service.RetractAll(ctx, b, plan); err == nil {
			s.setResultObjects(ctx, b, outcomes, retractable(plan, receipts), nil)
		}
		return err
	}); err != nil {
		return nil, nil, err
	} else {
		s.addExtras(ctx, o, b, receipts)
	}
	outcomes := make([]*pb.Outcome, len(receipts))
	for i := range receipts {
		receipts[i].Err = s.reveal(ctx, receipts[i].Err)
		outcomes[i] = fromReceipt(b, plan.Keys[i].User, &receipts[i])
	}
	return outcomes, effect, nil
}

func retractionActs(ctx context.Context, plan *ranking.Retractions, reason string) []leaderboard.Act {
	var acts []leaderboard.Act
	if isRecorded(ctx, reason) {
		for _, key := range retractable(plan, plan.Keys) {
			acts = append(acts, resultAct("result.retract", key, reason))
		}
	}
	return acts
}

// retractable returns the elements of list, which has one for each of plan.Keys, whose results
// RetractAll retracts.
func retractable[T any](plan *ranking.Retractions, list []T) []T {
	var elements []T
	for i := range list {
		if plan.Retractable(i) {
			elements = append(elements, list[i])
		}
	}
	return elements
}

// fromEffects omits the boards that the caller may not see.
func (s *Server) fromEffects(ctx context.Context, e *ranking.Effects) *pb.RetractionEffect {
	effect := &pb.RetractionEffect{Degraded: e.Degraded, Method: leaderboard.Competition.String(), AsOf: protoconv.Timestamp(e.AsOf)}
	for board, n := range e.Changed {
		if s.seesID(ctx, board) {
			effect.ChangedCount += int64(n)
		}
	}
	for i := range e.Entries {
		x := &e.Entries[i]
		if !s.seesID(ctx, x.Board) {
			continue
		}
		effect.Entries = append(effect.Entries, &pb.RetractionEffect_Entry{
			UserId: string(x.User), Board: string(x.Board), Season: string(x.Season), ScoreBefore: (*int64)(x.ScoreBefore), ScoreAfter: (*int64)(x.ScoreAfter),
			RankBefore: rankOrNil(x.RankBefore), RankAfter: rankOrNil(x.RankAfter),
		})
	}
	effect.Truncated = int(effect.GetChangedCount()) > len(effect.GetEntries())
	return effect
}
