package server

import (
	"context"
	"encoding/json"
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
	b, err := s.board(ctx, leaderboard.BoardID(req.GetBoard()))
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
		return retractResponse(&b, key.User, &preview.Receipt, s.fromEffects(ctx, &preview.Effects))
	}
	if err := checkChange(ctx, key, closed, req.GetReason()); err != nil {
		return nil, err
	}
	var acts []leaderboard.Act
	if isRecorded(ctx, req.GetReason()) {
		if err := s.service.CheckRetraction(ctx, &b, key, req.Revision); err != nil {
			return nil, err
		}
		acts = append(acts, resultAct("result.retract", key, req.GetReason()))
	}
	receipts := make([]ranking.Receipt, 1)
	err = s.auditAll(ctx, acts, func(outcomes []leaderboard.Act) (err error) {
		if receipts[0], err = s.service.Retract(ctx, &b, key, req.Revision); err == nil {
			s.setResultObjects(ctx, &b, outcomes, receipts, nil)
		}
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
		NewScoreExact: o.NewScoreExact, Method: o.Method, AsOf: o.AsOf, Sealed: o.Sealed,
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

// isRecorded reports whether the audit log records changes of results. Changes by game servers
// have no record, unless the game server gives a reason.
func isRecorded(ctx context.Context, reason string) bool { return isAdmin(ctx) || reason != "" }

func resultAct(action string, key leaderboard.ResultKey, reason string) leaderboard.Act {
	return leaderboard.Act{
		Action: action, Board: key.Board, Season: key.Season, ActDetail: leaderboard.ActDetail{User: key.User, Match: key.Match, Reason: reason},
	}
}

// setResultObjects sets Before and After of acts on results: outcomes[i] is about receipts[i], which
// comes from a correction or retraction. corrected is the corrected result, or nil for retractions.
func (s *Server) setResultObjects(ctx context.Context, b *leaderboard.Board, outcomes []leaderboard.Act, receipts []ranking.Receipt, corrected *leaderboard.MatchResult) {
	if len(outcomes) == 0 {
		return
	}
	// Without these ranks, the records have the scores only.
	_ = s.service.AddPreviousRanks(ctx, b, receipts)
	for i := range outcomes {
		act, r := &outcomes[i], &receipts[i]
		if act.Failed = r.Err != nil; act.Failed {
			continue
		}
		sent := corrected
		if sent == nil {
			sent = &leaderboard.MatchResult{ResultKey: leaderboard.ResultKey{
				SeasonKey: leaderboard.SeasonKey{Board: b.ID, Season: r.Season}, User: act.User, Match: act.Match,
			}, Revision: r.Revision, Retracted: true}
		}
		before, after := r.Replaced, r.Replaced
		switch {
		case r.Status == leaderboard.Duplicate:
			before, after = sent, sent
		case r.TookEffect() || r.Status == leaderboard.Accepted:
			after = sent
		}
		act.Before = resultObject(b, before, "", r.ScoreBefore(), r.PreviousRank)
		var score *leaderboard.Score
		status := ""
		if r.Status == leaderboard.Accepted {
			status = r.Status.String()
		} else if r.HasScore {
			score = &r.Score
		}
		act.After = resultObject(b, after, status, score, r.Rank)
	}
}

// resultObject returns a result and its user's entry as JSON for the audit log, or "" for no result.
// An empty status means that the result is stored.
func resultObject(b *leaderboard.Board, r *leaderboard.MatchResult, status string, score *leaderboard.Score, rank int64) string {
	if r == nil {
		return ""
	}
	if status == "" {
		status = ranking.StatusOf(b, r).Status.String()
	}
	type entry struct {
		Score leaderboard.Score `json:"score"`
		Rank  int64             `json:"rank,omitzero"`
	}
	object := struct {
		Status string          `json:"status"`
		Result json.RawMessage `json:"result"`
		Entry  *entry          `json:"entry,omitempty"`
	}{Status: status, Result: json.RawMessage(messageJSON(protoconv.FromResult(b, r)))}
	if score != nil {
		object.Entry = &entry{*score, rank}
	}
	text, err := json.Marshal(object)
	if err != nil {
		return "" // cannot happen: messageJSON returns valid JSON
	}
	return string(text)
}

// CorrectResult changes fields of a stored result. A dry run writes nothing and returns the effect.
func (s *Server) CorrectResult(ctx context.Context, req *pb.CorrectResultRequest) (*pb.CorrectResultResponse, error) {
	b, err := s.board(ctx, leaderboard.BoardID(req.GetBoard()))
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
	if err := checkChange(ctx, key, c.Amends, req.GetReason()); err != nil {
		return nil, err
	}
	var acts []leaderboard.Act
	if isRecorded(ctx, req.GetReason()) && !req.GetDryRun() {
		var rejection leaderboard.Reason
		if rejection, err = s.service.CheckCorrection(ctx, &b, key, c); rejection == "" {
			acts = append(acts, resultAct("result.correct", key, req.GetReason()))
		}
	}
	var result leaderboard.MatchResult
	var effect *pb.RetractionEffect
	receipts := make([]ranking.Receipt, 1)
	switch {
	case err != nil:
	case req.GetDryRun():
		var preview ranking.RetractionPreview
		result, preview, err = s.service.PreviewCorrection(ctx, &b, key, c)
		receipts[0], effect = preview.Receipt, s.fromEffects(ctx, &preview.Effects)
	default:
		err = s.auditAll(ctx, acts, func(outcomes []leaderboard.Act) error {
			if result, receipts[0], err = s.service.Correct(ctx, &b, key, c); err == nil {
				s.setResultObjects(ctx, &b, outcomes, receipts, &result)
			}
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
		NewScoreExact: o.NewScoreExact, Method: o.Method, AsOf: o.AsOf, Sealed: o.Sealed,
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
	c := ranking.Correction{Revision: req.Revision, Reset: req.Reset_, TieBreakers: req.GetTieBreakers(), Attributes: req.GetAttributes()}
	hasScore := req.Score != nil || req.Points != nil
	if !hasScore { // ToResult requires a score
		zero := int64(0)
		if b.AddsUp() {
			r.Points = &zero
		} else {
			r.Score = &zero
		}
	}
	r.Status = req.Status
	result, err := protoconv.ToResult(b, r)
	if err != nil {
		return c, err
	}
	if req.Status != nil {
		c.Finish = &result.Finish
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
	if !hasScore && c.AchievedAt == nil && c.Metadata == nil && c.Reset == nil && c.Finish == nil && len(c.TieBreakers) == 0 && len(c.Attributes) == 0 {
		name := "score"
		if b.AddsUp() {
			name = "points"
		}
		return c, &leaderboard.FieldError{Field: name, Problem: "is required unless tie_breakers, achieved_at, attributes, metadata, reset or status is given: give the fields to change"}
	}
	return c, nil
}

func revisionStatus(b *leaderboard.Board, e *ranking.RevisionError) error {
	return newStatus(codes.FailedPrecondition, e.Error(), errorInfo(pb.Error_REVISION_CHANGED), protoconv.FromResult(b, &e.Current))
}
