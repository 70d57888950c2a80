package server

import (
	"context"
	"fmt"
	"time"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/api/protoconv"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

// GetSeason returns a season, on request with its checksum.
func (s *Server) GetSeason(ctx context.Context, req *pb.GetSeasonRequest) (*pb.GetSeasonResponse, error) {
	b, err := s.board(ctx, leaderboard.BoardID(req.GetBoard()))
	if err != nil {
		return nil, err
	}
	info, err := s.service.SeasonInfo(ctx, &b, leaderboard.SeasonID(req.GetSeason()))
	if err != nil {
		return nil, err
	}
	season := fromSeason(&info)
	if req.GetChecksum() {
		sum, err := s.service.Checksum(ctx, &b, info.ID)
		if err != nil {
			return nil, err
		}
		season.Checksum = &sum
	}
	return &pb.GetSeasonResponse{Status: success, Data: season}, nil
}

// EndSeason ends a season before its time. A dry run returns what would change.
func (s *Server) EndSeason(ctx context.Context, req *pb.EndSeasonRequest) (*pb.EndSeasonResponse, error) {
	b, err := s.board(ctx, leaderboard.BoardID(req.GetBoard()))
	if err != nil {
		return nil, err
	}
	season, err := b.Season.ByID(leaderboard.SeasonID(req.GetSeason()))
	if err != nil {
		return nil, err
	}
	endAt, err := protoconv.ToTime("at", req.GetAt())
	if err != nil {
		return nil, err
	}
	// decided_at is for imports: the time at which an administrator ended the season on another server.
	decidedAt, err := protoconv.ToTime("decided_at", req.GetDecidedAt())
	if err != nil {
		return nil, err
	}
	end := leaderboard.EarlyEnd{ID: season.ID, At: endAt, DecidedAt: decidedAt}
	if err := ranking.CheckReason(req.GetReason()); err != nil {
		return nil, err
	}
	if req.GetReason() == "" {
		return nil, &leaderboard.FieldError{Field: "reason", Problem: "is required; the audit log keeps it"}
	}
	if req.GetDryRun() {
		ending, err := s.service.PreviewEnd(ctx, b.ID, end)
		if err != nil {
			return nil, err
		}
		res := fromEnding(&ending)
		res.DryRun = true
		return res, nil
	}
	before, err := s.service.CheckEnd(ctx, b.ID, end)
	if err != nil {
		return nil, err
	}
	act := leaderboard.Act{Action: "season.end", Board: b.ID, Season: season.ID, ActDetail: leaderboard.ActDetail{Reason: req.GetReason(), Before: messageJSON(fromSeason(&before))}}
	if !endAt.IsZero() {
		act.After = fieldsJSON(map[string]any{"at": endAt.UTC().Format(time.RFC3339Nano)})
	}
	var ending ranking.SeasonEnding
	if err := s.audit(ctx, act, func(outcome *leaderboard.ActDetail) (err error) {
		ending, err = s.service.EndSeason(ctx, b.ID, end)
		outcome.After = messageJSON(fromSeason(&ending.Season))
		return err
	}); err != nil {
		return nil, err
	}
	return fromEnding(&ending), nil
}

func fromEnding(e *ranking.SeasonEnding) *pb.EndSeasonResponse {
	res := &pb.EndSeasonResponse{Season: fromSeason(&e.Season), ExcludedResults: e.Results, ExcludedUsers: e.Users}
	if e.Next != nil {
		res.NextSeason, res.NextStart = string(e.Next.ID), protoconv.Timestamp(e.Next.Start)
	}
	return res
}

func endRefusalMessage(b *leaderboard.Board, id leaderboard.SeasonID) string {
	season, err := b.Season.ByID(id)
	if _, early := b.Season.EarlyEnd(id); err != nil || !early {
		return fmt.Sprintf("an administrator ended season %s before the time of this result", id) // the cached board does not have the end yet
	}
	advice := "the board has no later season"
	if following, ok := b.Season.After(season.End); ok {
		advice = fmt.Sprintf("the next season, %s, starts at %s", following.ID, following.Start.Format(time.RFC3339))
	}
	return fmt.Sprintf("an administrator ended season %s at %s, and the result is not before that time; %s", id, season.End.Format(time.RFC3339Nano), advice)
}
