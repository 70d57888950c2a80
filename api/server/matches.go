package server

import (
	"context"
	"time"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

// VoidMatch voids a match.
func (s *Server) VoidMatch(ctx context.Context, req *pb.VoidMatchRequest) (*pb.VoidMatchResponse, error) {
	key, effect, err := s.setVoid(ctx, req, true)
	if err != nil {
		return nil, err
	}
	return &pb.VoidMatchResponse{Board: string(key.Board), Season: string(key.Season), MatchId: string(key.Match), Voided: true, Effect: effect}, nil
}

// RestoreMatch ends the void of a match.
func (s *Server) RestoreMatch(ctx context.Context, req *pb.RestoreMatchRequest) (*pb.RestoreMatchResponse, error) {
	key, effect, err := s.setVoid(ctx, req, false)
	if err != nil {
		return nil, err
	}
	return &pb.RestoreMatchResponse{Board: string(key.Board), Season: string(key.Season), MatchId: string(key.Match), Effect: effect}, nil
}

type voidRequest interface {
	GetBoard() string
	GetMatchId() string
	GetSeason() string
	GetReason() string
	GetDryRun() bool
}

// setVoid voids or restores a match. A dry run changes nothing and returns the effect.
func (s *Server) setVoid(ctx context.Context, req voidRequest, void bool) (leaderboard.MatchKey, *pb.RetractionEffect, error) {
	key := leaderboard.MatchKey{
		SeasonKey: leaderboard.SeasonKey{Board: boardID(req.GetBoard()), Season: leaderboard.SeasonID(req.GetSeason())}, Match: leaderboard.MatchID(req.GetMatchId()),
	}
	b, err := s.service.Board(ctx, key.Board)
	if err == nil {
		err = ranking.CheckMatches(&b)
	}
	if err == nil && req.GetReason() == "" {
		err = &leaderboard.FieldError{Field: "reason", Problem: "is required"}
	}
	if err == nil {
		err = ranking.CheckReason(req.GetReason())
	}
	if err == nil {
		key.Season, err = s.service.MatchSeason(ctx, &b, key)
	}
	if err != nil {
		return key, nil, err
	}
	if req.GetDryRun() {
		effects, err := s.service.PreviewVoid(ctx, &b, key, void)
		return key, fromEffects(ctx, &effects), err
	}
	action := "match.restore"
	if void {
		action = "match.void"
	}
	state, err := s.service.MatchState(ctx, key)
	if err != nil {
		return key, nil, err
	}
	act := leaderboard.Act{Action: action, Board: key.Board, Season: key.Season, ActDetail: leaderboard.ActDetail{
		Match: key.Match, Reason: req.GetReason(), Before: matchObject(&state),
	}}
	return key, nil, s.audit(ctx, act, func(outcome *leaderboard.ActDetail) error {
		state, err := s.service.SetVoid(ctx, &b, leaderboard.MatchState{MatchKey: key, Reason: req.GetReason(), Actor: actor(ctx)}, void)
		outcome.After = matchObject(&state)
		return err
	})
}

// matchObject returns the state of a match as JSON for the audit log.
func matchObject(m *leaderboard.MatchState) string {
	fields := map[string]any{"voided": m.IsVoid()}
	if m.Voids > 0 {
		fields["reason"], fields["actor"], fields["changed_at"] = m.Reason, m.Actor, m.At.Format(time.RFC3339Nano)
	}
	return fieldsJSON(fields)
}
