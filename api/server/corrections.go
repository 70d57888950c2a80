package server

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/api/auth"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/api/protoconv"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

// RetractResult undoes a result. A dry run writes nothing and returns the effect.
func (s *Server) RetractResult(ctx context.Context, req *pb.RetractResultRequest) (*pb.RetractResultResponse, error) {
	b, err := s.board(ctx, boardID(req.GetBoard()))
	if err != nil {
		return nil, err
	}
	key := resultKey(req.GetBoard(), req.GetSeason(), req.GetUserId(), req.GetMatchId())
	season, closed, err := s.service.ResultSeason(ctx, &b, key)
	if errors.Is(err, leaderboard.ErrResultNotFound) && req.Revision != nil {
		err = nil // the retraction arrives before its result, and belongs to the current season
	}
	if err != nil {
		return nil, err
	}
	key.Season = season
	if req.GetDryRun() {
		if err := checkChange(ctx, key, closed, req.GetReason()); err != nil {
			return nil, err
		}
		preview, err := s.service.PreviewRetraction(ctx, &b, key, req.Revision)
		if err != nil {
			return nil, err
		}
		return retractResponse(&b, key.User, &preview.Receipt, fromEffects(ctx, &preview.Effects))
	}
	receipts := make([]ranking.Receipt, 1)
	err = s.change(ctx, "result.retract", key, closed, req.GetReason(), func() (err error) {
		receipts[0], err = s.service.Retract(ctx, &b, key, req.Revision)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.addExtras(ctx, req, &b, receipts)
	return retractResponse(&b, key.User, &receipts[0], nil)
}

func retractResponse(b *leaderboard.Board, user leaderboard.UserID, receipt *ranking.Receipt, effect *pb.RetractionEffect) (*pb.RetractResultResponse, error) {
	o, err := outcome(b, user, receipt)
	if err != nil {
		return nil, err
	}
	return &pb.RetractResultResponse{
		Success: succeeded(o) || o.GetStands(), NewScore: o.NewScore, Rank: o.Rank, Status: o.Status, UserId: o.UserId, MatchId: o.MatchId,
		Revision: o.Revision, Season: o.Season, Effect: effect, PreviousScore: o.PreviousScore, PreviousRank: o.PreviousRank, Linked: o.Linked,
	}, nil
}

// checkChange checks that the caller may change a stored result. In a closed season, the caller
// needs the admin scope and a reason.
func checkChange(ctx context.Context, key leaderboard.ResultKey, closed bool, reason string) error {
	err := ranking.CheckReason(reason)
	switch {
	case err != nil || !closed:
		return err
	case !isAdmin(ctx):
		return &auth.ScopeError{Need: auth.Admin}
	case reason == "":
		return &leaderboard.FieldError{Field: "reason", Problem: fmt.Sprintf("is required, because season %s is closed", key.Season)}
	}
	return nil
}

// change calls do if checkChange allows the change. In a closed season, change also writes the
// audit log.
func (s *Server) change(ctx context.Context, action string, key leaderboard.ResultKey, closed bool, reason string, do func() error) error {
	if err := checkChange(ctx, key, closed, reason); err != nil {
		return err
	}
	if !closed {
		return do()
	}
	return s.audit(ctx, leaderboard.Act{
		Action: action, Board: key.Board, Season: key.Season,
		ActDetail: leaderboard.ActDetail{User: key.User, Reason: reason, After: fieldJSON("match_id", string(key.Match))},
	}, do)
}

// CorrectResult changes fields of a stored result. A dry run writes nothing and returns the effect.
func (s *Server) CorrectResult(ctx context.Context, req *pb.CorrectResultRequest) (*pb.CorrectResultResponse, error) {
	b, err := s.board(ctx, boardID(req.GetBoard()))
	if err != nil {
		return nil, err
	}
	c, err := toCorrection(&b, req)
	if err != nil {
		return nil, err
	}
	key := resultKey(req.GetBoard(), req.GetSeason(), req.GetUserId(), req.GetMatchId())
	if key.Season, c.Amends, err = s.service.ResultSeason(ctx, &b, key); err != nil {
		return nil, err
	}
	var result leaderboard.MatchResult
	var effect *pb.RetractionEffect
	receipts := make([]ranking.Receipt, 1)
	if req.GetDryRun() {
		var preview ranking.RetractionPreview
		if err = checkChange(ctx, key, c.Amends, req.GetReason()); err == nil {
			result, preview, err = s.service.PreviewCorrection(ctx, &b, key, c)
		}
		receipts[0], effect = preview.Receipt, fromEffects(ctx, &preview.Effects)
	} else {
		err = s.change(ctx, "result.correct", key, c.Amends, req.GetReason(), func() error {
			result, receipts[0], err = s.service.Correct(ctx, &b, key, c)
			return err
		})
	}
	var outdated *ranking.RevisionError
	if errors.As(err, &outdated) {
		return nil, revisionStatus(&b, outdated)
	}
	if err != nil {
		return nil, err
	}
	if !req.GetDryRun() {
		s.addExtras(ctx, req, &b, receipts)
	}
	o, err := outcome(&b, key.User, &receipts[0])
	if err != nil {
		return nil, err
	}
	res := correctResponse(o, protoconv.FromResult(&b, &result))
	res.Effect = effect
	return res, nil
}

func correctResponse(o *pb.Outcome, result *pb.Result) *pb.CorrectResultResponse {
	res := &pb.CorrectResultResponse{
		Success: succeeded(o) || o.GetStands(), NewScore: o.NewScore, Rank: o.Rank, Status: o.Status, UserId: o.UserId, MatchId: o.MatchId,
		Revision: o.Revision, Season: o.Season, Result: result,
		PreviousScore: o.PreviousScore, PreviousRank: o.PreviousRank, PersonalBest: o.PersonalBest, Linked: o.Linked,
	}
	if o.GetReason() != "" {
		res.Reason = &o.Reason
	}
	return res
}

// toCorrection converts a request. It checks everything that does not depend on the stored result.
func toCorrection(b *leaderboard.Board, req *pb.CorrectResultRequest) (ranking.Correction, error) {
	// ToResult checks the request's fields like those of a new result.
	r := &pb.Result{
		UserId: req.GetUserId(), MatchId: req.GetMatchId(), Score: req.Score, Points: req.Points, TieBreakers: req.GetTieBreakers(),
		AchievedAt: req.GetAchievedAt(), Metadata: req.GetMetadata(),
	}
	c := ranking.Correction{Revision: req.Revision, TieBreakers: req.GetTieBreakers(), Attributes: req.GetAttributes()}
	hasScore := req.Score != nil || req.Points != nil
	if !hasScore { // ToResult requires a score
		zero := int64(0)
		if b.AddsUp() {
			r.Points = &zero
		} else {
			r.Score = &zero
		}
	}
	result, err := protoconv.ToResult(b, r)
	if err != nil {
		return c, err
	}
	if hasScore {
		c.Score = &result.Score
	}
	if req.GetAchievedAt() != nil {
		c.AchievedAt = &result.AchievedAt
	}
	if req.Metadata != nil {
		c.Metadata = &result.Metadata
	}
	if !hasScore && c.AchievedAt == nil && c.Metadata == nil && len(c.TieBreakers) == 0 && len(c.Attributes) == 0 {
		name := "score"
		if b.AddsUp() {
			name = "points"
		}
		return c, &leaderboard.FieldError{Field: name, Problem: "is required unless tie_breakers, achieved_at, attributes or metadata is given: give the fields to change"}
	}
	return c, nil
}

func revisionStatus(b *leaderboard.Board, e *ranking.RevisionError) error {
	return newStatus(codes.FailedPrecondition, e.Error(), errorInfo("REVISION_CHANGED"), protoconv.FromResult(b, &e.Current))
}
