package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/api/protoconv"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

// SubmitScore records one result. It returns an error if the result is rejected.
func (s *Server) SubmitScore(ctx context.Context, req *pb.SubmitScoreRequest) (*pb.SubmitScoreResponse, error) {
	b, err := s.board(ctx, boardID(req.GetBoard()))
	if err != nil {
		return nil, err
	}
	result, err := newResult(&b, req.GetResult())
	if err != nil {
		return nil, err
	}
	receipts, err := s.submit(ctx, "SubmitScore", req, &b, []leaderboard.MatchResult{result})
	if err != nil {
		return nil, err
	}
	o, err := outcome(&b, result.User, &receipts[0])
	if err != nil {
		return nil, err
	}
	return submitResponse(o), nil
}

func submitResponse(o *pb.Outcome) *pb.SubmitScoreResponse {
	res := &pb.SubmitScoreResponse{
		Success: succeeded(o), NewScore: o.NewScore, Rank: o.Rank, Status: o.Status, UserId: o.UserId, MatchId: o.MatchId,
		Revision: o.Revision, Season: o.Season, AchievedAt: o.AchievedAt,
		PreviousScore: o.PreviousScore, PreviousRank: o.PreviousRank, PersonalBest: o.PersonalBest, Stands: o.Stands, Linked: o.Linked,
		NewScoreExact: o.NewScoreExact, Method: o.Method, AsOf: o.AsOf, Sealed: o.Sealed,
	}
	if o.GetReason() != "" {
		res.Reason = &o.Reason
	}
	if o.GetDetail() != "" {
		res.Detail = &o.Detail
	}
	return res
}

// newResult converts a message to a match result. It refuses ids that only stored results may have.
// The error joins a [leaderboard.FieldError] for each fault.
func newResult(b *leaderboard.Board, r *pb.Result) (leaderboard.MatchResult, error) {
	result, err := protoconv.ToResult(b, r)
	result.Season = leaderboard.SeasonID(r.GetSeason())
	if result.User.Validate() == nil {
		err = errors.Join(err, result.User.ValidateNew())
	}
	if result.Match != "" {
		err = errors.Join(err, result.Match.ValidateNew())
	}
	return result, err
}

type extraOptions interface {
	GetIncludePreviousRank() bool
	GetIncludeLinked() bool
}

type submitOptions interface {
	extraOptions
	GetNoWait() bool
}

func (s *Server) submit(ctx context.Context, method string, o submitOptions, b *leaderboard.Board, results []leaderboard.MatchResult) ([]ranking.Receipt, error) {
	send := s.service.Accept
	if !o.GetNoWait() {
		send = func(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) ([]ranking.Receipt, error) {
			return s.submitAndWait(ctx, method, b, results)
		}
	}
	receipts, err := send(ctx, b, results)
	if err == nil {
		s.addExtras(ctx, o, b, receipts)
	}
	for i := range receipts {
		receipts[i].Err = s.reveal(ctx, receipts[i].Err)
	}
	return receipts, err
}

func (s *Server) addExtras(ctx context.Context, o extraOptions, b *leaderboard.Board, receipts []ranking.Receipt) {
	if o.GetIncludePreviousRank() {
		s.addExtra(ctx, b, "previous ranks", func(ctx context.Context) error { return s.service.AddPreviousRanks(ctx, b, receipts) })
	}
	if o.GetIncludeLinked() {
		s.addExtra(ctx, b, "linked boards", func(ctx context.Context) error { return s.service.AddLinked(ctx, receipts) })
		for i := range receipts {
			receipts[i].Linked = slices.DeleteFunc(receipts[i].Linked, func(l ranking.LinkedReceipt) bool { return !s.sees(ctx, l.Board) })
		}
	}
}

// extraTimeout bounds the time for reading one optional part of an answer.
const extraTimeout = 2 * time.Second

// addExtra calls add, which reads part. If add fails or takes longer than extraTimeout, the answer
// lacks the part, and addExtra logs the error.
func (s *Server) addExtra(ctx context.Context, b *leaderboard.Board, part string, add func(context.Context) error) {
	limited, cancel := context.WithTimeout(ctx, extraTimeout)
	defer cancel()
	if err := add(limited); err != nil && ctx.Err() == nil {
		s.options.Log.WarnContext(ctx, "reading an optional part of an answer failed; the answer lacks this part", "board", b.ID, "part", part, "err", err)
	}
}

func (s *Server) submitAndWait(ctx context.Context, method string, b *leaderboard.Board, results []leaderboard.MatchResult) ([]ranking.Receipt, error) {
	start := time.Now()
	receipts, err := s.service.Submit(ctx, b, results)
	if slices.ContainsFunc(receipts, func(r ranking.Receipt) bool {
		return r.Err == nil && (r.Status == leaderboard.Applied || r.Status == leaderboard.Accepted)
	}) {
		s.metrics.visible.WithLabelValues(method).Observe(time.Since(start).Seconds())
	}
	return receipts, err
}

// succeeded reports whether the result, or a higher revision of it, was applied now or before.
func succeeded(o *pb.Outcome) bool {
	switch o.GetStatus() {
	case pb.Outcome_APPLIED, pb.Outcome_DUPLICATE, pb.Outcome_SUPERSEDED:
		return true
	}
	return false
}

// outcome converts a receipt. It returns an error if the result was rejected or could not be applied.
func outcome(b *leaderboard.Board, user leaderboard.UserID, r *ranking.Receipt) (*pb.Outcome, error) {
	o := fromReceipt(b, user, r)
	switch {
	case errors.Is(r.Err, leaderboard.ErrSeasonNotFound):
		return nil, &leaderboard.FieldError{Field: "achieved_at", Problem: messageOf(r.Err)}
	case r.Err != nil:
		return nil, r.Err
	case r.Status != leaderboard.Rejected:
		return o, nil
	}
	return nil, newStatus(codes.FailedPrecondition, refusalMessage(b, r), errorInfo(pb.Error_Reason(pb.Error_Reason_value[string(r.Reason)])), o)
}

func refusalMessage(b *leaderboard.Board, r *ranking.Receipt) string {
	if r.Repeated && r.Reason != leaderboard.ReasonEnded {
		return fmt.Sprintf("the same result was rejected before (%s), and stays rejected; to try again, submit it with a new match_id", r.Reason)
	}
	switch r.Reason {
	case leaderboard.ReasonFloor:
		return fmt.Sprintf("the score is %d and would fall below the board's floor of %d", r.Score, *b.Floor)
	case leaderboard.ReasonRange:
		return fmt.Sprintf("the score is %d; with this result, the score or a tie-breaker would be outside ±2^53, or the user would have more results in the season than the server can keep", r.Score)
	case leaderboard.ReasonClosed:
		return fmt.Sprintf("season %s is closed and accepts no more results", r.Season)
	case leaderboard.ReasonEnded:
		return endRefusalMessage(b, r.Season)
	case leaderboard.ReasonSeasons:
		return fmt.Sprintf("the board already has %d seasons with results, and this result would begin another one; delete old seasons by a shorter retention, then submit the result again", leaderboard.MaxBoardSeasons)
	case leaderboard.ReasonErased:
		return "the user was erased after this result was sent"
	case leaderboard.ReasonDeleted:
		return "the board or the season was deleted after this result was sent"
	}
	return "the result was rejected: " + string(r.Reason)
}
