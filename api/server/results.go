package server

import (
	"context"
	"encoding/base64"
	"strings"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/api/auth"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/api/protoconv"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

// GetResult returns the state of a result, or of one of its revisions.
func (s *Server) GetResult(ctx context.Context, req *pb.GetResultRequest) (*pb.GetResultResponse, error) {
	b, err := s.board(ctx, leaderboard.BoardID(req.GetBoard()))
	if err != nil {
		return nil, err
	}
	key := resultKey(req.GetBoard(), req.GetSeason(), req.GetUserId(), req.GetMatchId())
	switch {
	case !req.GetHistory():
	case !isAdmin(ctx):
		return nil, &auth.ScopeError{Need: auth.Admin}
	case req.Revision != nil:
		return nil, &leaderboard.FieldError{Field: "history", Problem: "cannot be combined with revision"}
	default:
		if err := b.CheckDirect(); err != nil {
			return nil, err
		}
	}
	r, err := s.service.Result(ctx, &b, key, req.Revision)
	if err != nil {
		return nil, err
	}
	res := fromResultStatus(&b, req.GetUserId(), &r)
	if req.GetHistory() {
		key.Season = r.Season
		acts, err := s.service.ResultActs(ctx, key)
		if err != nil {
			return nil, err
		}
		for i := range acts {
			res.History = append(res.History, s.fromAct(ctx, &acts[i]))
		}
	}
	return res, s.addProfiles(ctx, req.GetIncludeProfile(), res)
}

func fromResultStatus(b *leaderboard.Board, user string, r *ranking.ResultStatus) *pb.GetResultResponse {
	res := &pb.GetResultResponse{
		Status: protoconv.FromResultStatus(r.Status), Reason: string(r.Reason), Revision: r.Revision, Board: string(b.ID),
		UserId: user, MatchId: string(r.Match), Season: string(r.Season),
	}
	if r.Result != nil {
		res.Result = protoconv.FromResult(b, r.Result)
	}
	return res
}

const defaultResults = 100

// ListUserResults returns a page of a user's results on a board.
func (s *Server) ListUserResults(ctx context.Context, req *pb.ListUserResultsRequest) (*pb.ListUserResultsResponse, error) {
	after, err := parseResultToken(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	b, err := s.board(ctx, leaderboard.BoardID(req.GetBoard()))
	if err != nil {
		return nil, err
	}
	page, err := s.service.UserResults(ctx, &b, ranking.ResultsQuery{
		User: leaderboard.UserID(req.GetUserId()), Season: leaderboard.SeasonID(req.GetSeason()), After: after, Limit: orDefault(req.Limit, defaultResults),
	})
	if err != nil {
		return nil, err
	}
	res := &pb.ListUserResultsResponse{NextPageToken: resultToken(page.Next)}
	for i := range page.Results {
		res.Results = append(res.Results, fromResultStatus(&b, req.GetUserId(), &page.Results[i]))
	}
	return res, s.addProfiles(ctx, req.GetIncludeProfile(), res.Results...)
}

func resultToken(p ranking.ResultPosition) string {
	if p.Match == "" {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString([]byte(string(p.Season) + "\n" + string(p.Match)))
}

func parseResultToken(token string) (ranking.ResultPosition, error) {
	if token == "" {
		return ranking.ResultPosition{}, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(token)
	season, match, ok := strings.Cut(string(text), "\n")
	if err != nil || !ok || season == "" || leaderboard.MatchID(match).Validate() != nil {
		return ranking.ResultPosition{}, &leaderboard.FieldError{Field: "page_token", Problem: "must be the next_page_token of an earlier answer"}
	}
	return ranking.ResultPosition{Season: leaderboard.SeasonID(season), Match: leaderboard.MatchID(match)}, nil
}
