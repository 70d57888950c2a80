package server

import (
	"context"
	"encoding/base64"
	"errors"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/api/protoconv"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

// VoidMatch voids a match.
func (s *Server) VoidMatch(ctx context.Context, req *pb.VoidMatchRequest) (*pb.VoidMatchResponse, error) {
	key, effect, err := s.setVoid(ctx, req, true, req.GetAllowUnknown())
	if err != nil {
		return nil, err
	}
	return &pb.VoidMatchResponse{Board: string(key.Board), Season: string(key.Season), MatchId: string(key.Match), Voided: true, Effect: effect}, nil
}

// RestoreMatch ends the void of a match.
func (s *Server) RestoreMatch(ctx context.Context, req *pb.RestoreMatchRequest) (*pb.RestoreMatchResponse, error) {
	key, effect, err := s.setVoid(ctx, req, false, false)
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

// setVoid voids or restores a match. A dry run changes nothing and returns the effect. Errors:
// [leaderboard.ErrMatchNotFound], unless allowUnknown is true.
func (s *Server) setVoid(ctx context.Context, req voidRequest, void, allowUnknown bool) (leaderboard.MatchKey, *pb.RetractionEffect, error) {
	key := leaderboard.MatchKey{
		SeasonKey: leaderboard.SeasonKey{Board: leaderboard.BoardID(req.GetBoard()), Season: leaderboard.SeasonID(req.GetSeason())}, Match: leaderboard.MatchID(req.GetMatchId()),
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
	if errors.Is(err, leaderboard.ErrMatchNotFound) && allowUnknown {
		err = &leaderboard.FieldError{Field: "season", Problem: "is required with allow_unknown, because no result names the match"}
	}
	var state leaderboard.MatchState
	if err == nil {
		state, err = s.service.Match(ctx, key)
	}
	if errors.Is(err, leaderboard.ErrMatchNotFound) && allowUnknown {
		err = nil
	}
	if err != nil {
		return key, nil, err
	}
	if req.GetDryRun() {
		effects, err := s.service.PreviewVoid(ctx, &b, key, void)
		return key, s.fromEffects(ctx, &effects), err
	}
	action := "match.restore"
	if void {
		action = "match.void"
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
func matchObject(m *leaderboard.MatchState) string { return messageJSON(fromMatch(m, true)) }

func fromMatch(m *leaderboard.MatchState, details bool) *pb.Match {
	match := &pb.Match{Board: string(m.Board), Season: string(m.Season), MatchId: string(m.Match), Voided: m.IsVoid()}
	if m.Voids > 0 {
		match.ChangedAt = protoconv.Timestamp(m.At)
		if details {
			match.Reason, match.Actor = &m.Reason, &m.Actor
		}
	}
	return match
}

// ListMatches returns a page of the matches of a season.
func (s *Server) ListMatches(ctx context.Context, req *pb.ListMatchesRequest) (*pb.ListMatchesResponse, error) {
	after, err := parseIDToken[leaderboard.MatchID](req.GetPageToken())
	if err != nil {
		return nil, err
	}
	b, err := s.board(ctx, boardID(req.GetBoard()))
	if err != nil {
		return nil, err
	}
	page, err := s.service.Matches(ctx, &b, ranking.MatchesQuery{
		Season: leaderboard.SeasonID(req.GetSeason()), Prefix: leaderboard.MatchID(req.GetPrefix()), After: after, Limit: orDefault(req.Limit, defaultResults),
	})
	if err != nil {
		return nil, err
	}
	res := &pb.ListMatchesResponse{NextPageToken: idToken(page.Next)}
	for i := range page.Matches {
		res.Matches = append(res.Matches, fromMatch(&page.Matches[i], isAdmin(ctx)))
	}
	return res, nil
}

// GetMatch returns a match with a page of its results.
func (s *Server) GetMatch(ctx context.Context, req *pb.GetMatchRequest) (*pb.GetMatchResponse, error) {
	after, err := parseIDToken[leaderboard.UserID](req.GetPageToken())
	if err != nil {
		return nil, err
	}
	b, err := s.board(ctx, boardID(req.GetBoard()))
	if err != nil {
		return nil, err
	}
	key := leaderboard.MatchKey{SeasonKey: leaderboard.SeasonKey{Board: b.ID, Season: leaderboard.SeasonID(req.GetSeason())}, Match: leaderboard.MatchID(req.GetMatchId())}
	page, err := s.service.MatchResults(ctx, &b, key, after, orDefault(req.Limit, defaultResults))
	if err != nil {
		return nil, err
	}
	res := &pb.GetMatchResponse{Match: fromMatch(&page.State, isAdmin(ctx)), NextPageToken: idToken(page.Next)}
	for i := range page.Results {
		res.Results = append(res.Results, fromResultStatus(&b, string(page.Results[i].User), &page.Results[i].ResultStatus))
	}
	return res, s.addProfiles(ctx, req.GetIncludeProfile(), res.Results...)
}

func idToken[T ~string](id T) string { return base64.RawURLEncoding.EncodeToString([]byte(id)) }

func parseIDToken[T interface {
	~string
	Validate() error
}](token string) (T, error) {
	id, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(id) > 0 && T(id).Validate() != nil {
		return "", &leaderboard.FieldError{Field: "page_token", Problem: "must be the next_page_token of an earlier answer"}
	}
	return T(id), nil
}
