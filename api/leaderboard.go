package api

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/internal/wire"
)

// service is what handlers need of *ranking.Service.
type service interface {
	CreateBoard(context.Context, leaderboard.Board) (leaderboard.Board, error)
	Board(context.Context, leaderboard.BoardID) (leaderboard.Board, error)
	Boards(context.Context) ([]leaderboard.Board, error)
	AmendBoard(context.Context, leaderboard.BoardID, func(*leaderboard.Board) error) (leaderboard.Board, error)
	DeleteBoard(context.Context, leaderboard.BoardID) error

	Submit(context.Context, leaderboard.BoardID, []leaderboard.MatchResult) ([]ranking.Receipt, error)
	Accept(context.Context, leaderboard.BoardID, []leaderboard.MatchResult) ([]ranking.Receipt, error)
	Retract(context.Context, leaderboard.ResultKey, *int64) (ranking.Receipt, error)
	Result(context.Context, leaderboard.ResultKey, *int64) (ranking.ResultStatus, error)

	Page(context.Context, ranking.PageQuery) (ranking.Page, error)
	User(context.Context, ranking.Query, leaderboard.UserID, int, bool) (ranking.UserPage, error)
	Lookup(context.Context, ranking.Query, []leaderboard.UserID) (ranking.LookupPage, error)
	Stats(context.Context, ranking.StatsQuery) (ranking.Stats, error)
	Seasons(context.Context, leaderboard.BoardID) ([]ranking.SeasonInfo, error)
	Watch(context.Context, ranking.PageQuery, func(ranking.Page) error) error

	SetBan(context.Context, leaderboard.UserID, bool, string) (leaderboard.Ban, error)
	Ban(context.Context, leaderboard.UserID) (leaderboard.Ban, error)
	Erase(context.Context, leaderboard.UserID) error
	UserScores(context.Context, leaderboard.UserID, leaderboard.Method) ([]ranking.UserScore, error)

	Verify(context.Context, ranking.Selection, bool, ranking.Progress, func(ranking.Difference) error) (ranking.VerifyReport, error)
	Rebuild(context.Context, ranking.Selection, ranking.Progress) (int64, error)
	Export(context.Context, ranking.Selection, func(leaderboard.MatchResult) error) error
}

var _ service = (*ranking.Service)(nil)

const (
	success          = "success"
	defaultLimit     = 10
	defaultNeighbors = 4
	defaultBuckets   = 10
)

// or returns *p, or the default if p is nil.
func or[T, D int | int32](p *T, d D) int {
	if p == nil {
		return int(d)
	}
	return int(*p)
}

// SubmitScore answers a refused result with an error.
func (s *Server) SubmitScore(ctx context.Context, req *pb.SubmitScoreRequest) (*pb.SubmitScoreResponse, error) {
	b, err := s.service.Board(ctx, boardID(req.GetBoard()))
	if err != nil {
		return nil, err
	}
	result, err := wire.ToResult(&b, req.GetResult())
	if err != nil {
		return nil, err
	}
	receipts, err := s.submit(req.GetNoWait())(ctx, b.ID, []leaderboard.MatchResult{result})
	if err != nil {
		return nil, err
	}
	o, err := outcome(&b, result.User, &receipts[0])
	if err != nil {
		return nil, err
	}
	return &pb.SubmitScoreResponse{
		Success: succeeded(o), NewScore: o.NewScore, Rank: o.Rank, Status: o.Status, UserId: o.UserId, MatchId: o.MatchId,
		Revision: o.Revision, Season: o.Season, AchievedAt: o.AchievedAt,
	}, nil
}

// submit is how the service takes results, whether or not the caller waits until
// they are applied.
func (s *Server) submit(noWait bool) func(context.Context, leaderboard.BoardID, []leaderboard.MatchResult) ([]ranking.Receipt, error) {
	if noWait {
		return s.service.Accept
	}
	return s.service.Submit
}

// succeeded says whether a result is safe and was taken into account as it is.
func succeeded(o *pb.Outcome) bool {
	switch o.GetStatus() {
	case pb.Outcome_APPLIED, pb.Outcome_DUPLICATE, pb.Outcome_SUPERSEDED:
		return true
	}
	return false
}

// outcome is what became of one result, or the error that refused it.
func outcome(b *leaderboard.Board, user leaderboard.UserID, r *ranking.Receipt) (*pb.Outcome, error) {
	o := fromReceipt(user, r)
	switch {
	case errors.Is(r.Err, leaderboard.ErrSeasonNotFound):
		return nil, &leaderboard.FieldError{Field: "achieved_at", Problem: messageOf(r.Err)}
	case r.Err != nil:
		return nil, r.Err
	case r.Status != leaderboard.Rejected:
		return o, nil
	}
	return nil, newStatus(codes.FailedPrecondition, refusal(b, r), errorInfo(string(r.Reason)), o)
}

// refusal says in words why a result was rejected.
func refusal(b *leaderboard.Board, r *ranking.Receipt) string {
	switch r.Reason {
	case leaderboard.ReasonFloor:
		return fmt.Sprintf("the score would fall below the board's floor of %d; it is %d", *b.Floor, r.Score)
	case leaderboard.ReasonRange:
		return fmt.Sprintf("the score or a tie-breaker would leave ±2^53; the score is %d", r.Score)
	case leaderboard.ReasonClosed:
		return fmt.Sprintf("season %s takes no more results", r.Season)
	case leaderboard.ReasonErased:
		return "the user was erased after this result was sent"
	}
	return "the result was rejected: " + string(r.Reason)
}

// BatchSubmitScores has an outcome for each result, wrong ones too.
func (s *Server) BatchSubmitScores(ctx context.Context, req *pb.BatchSubmitScoresRequest) (*pb.BatchSubmitScoresResponse, error) {
	b, err := s.service.Board(ctx, boardID(req.GetBoard()))
	if err != nil {
		return nil, err
	}
	res := &pb.BatchSubmitScoresResponse{Outcomes: make([]*pb.Outcome, len(req.GetResults()))}
	results := make([]leaderboard.MatchResult, 0, len(req.GetResults()))
	at := make([]int, 0, len(req.GetResults())) // results[i] is the request's at[i]
	for i, r := range req.GetResults() {
		if ctx.Err() != nil {
			return nil, ctx.Err() // nobody waits for the answer
		}
		result, err := wire.ToResult(&b, r)
		if err != nil {
			res.Outcomes[i] = fromReceipt(result.User, &ranking.Receipt{
				Match: result.Match, Revision: result.Revision, Status: leaderboard.Rejected, Reason: leaderboard.ReasonInvalid, Err: err,
			})
			continue
		}
		results, at = append(results, result), append(at, i)
	}
	if len(results) == 0 {
		return res, nil
	}
	receipts, err := s.submit(req.GetNoWait())(ctx, b.ID, results)
	if err != nil {
		return nil, err
	}
	for i := range receipts {
		res.Outcomes[at[i]] = fromReceipt(results[i].User, &receipts[i])
	}
	return res, nil
}

func resultKey(board, season, user, match string) leaderboard.ResultKey {
	return leaderboard.ResultKey{
		Scope: leaderboard.Scope{Board: boardID(board), Season: leaderboard.SeasonID(season)},
		User:  leaderboard.UserID(user), Match: leaderboard.MatchID(match),
	}
}

func (s *Server) RetractResult(ctx context.Context, req *pb.RetractResultRequest) (*pb.RetractResultResponse, error) {
	b, err := s.service.Board(ctx, boardID(req.GetBoard()))
	if err != nil {
		return nil, err
	}
	key := resultKey(req.GetBoard(), req.GetSeason(), req.GetUserId(), req.GetMatchId())
	receipt, err := s.service.Retract(ctx, key, req.Revision)
	if err != nil {
		return nil, err
	}
	o, err := outcome(&b, key.User, &receipt)
	if err != nil {
		return nil, err
	}
	return &pb.RetractResultResponse{
		Success: succeeded(o), NewScore: o.NewScore, Rank: o.Rank, Status: o.Status, UserId: o.UserId, MatchId: o.MatchId,
		Revision: o.Revision, Season: o.Season,
	}, nil
}

func (s *Server) GetResult(ctx context.Context, req *pb.GetResultRequest) (*pb.GetResultResponse, error) {
	b, err := s.service.Board(ctx, boardID(req.GetBoard()))
	if err != nil {
		return nil, err
	}
	r, err := s.service.Result(ctx, resultKey(req.GetBoard(), req.GetSeason(), req.GetUserId(), req.GetMatchId()), req.Revision)
	if err != nil {
		return nil, err
	}
	res := &pb.GetResultResponse{
		Status: resultStatus[r.Status], Reason: string(r.Reason), Revision: r.Revision, Board: string(b.ID),
		UserId: req.GetUserId(), MatchId: req.GetMatchId(), Season: string(r.Season),
	}
	if r.Result != nil {
		res.Result = wire.FromResult(&b, r.Result)
	}
	return res, nil
}

func (s *Server) ListScores(ctx context.Context, req *pb.ListScoresRequest) (*pb.ListScoresResponse, error) {
	q, err := toQuery(req.GetBoard(), req.GetSeason(), req.GetDivision(), req.GetMethod())
	if err != nil {
		return nil, err
	}
	if req.StartRank != nil && req.GetStartRank() < 1 {
		return nil, &leaderboard.FieldError{Field: "start_rank", Problem: "is from 1"}
	}
	page, err := s.service.Page(ctx, ranking.PageQuery{
		Query: q, Limit: or(req.Limit, defaultLimit), Start: req.GetStartRank(), Token: req.GetPageToken(), Details: req.GetIncludeMetadata(),
	})
	if err != nil {
		return nil, err
	}
	list := fromPage(&page.About, page.Lines)
	list.NextPageToken = page.Next
	return &pb.ListScoresResponse{Status: success, Data: list}, nil
}

func (s *Server) GetUserScore(ctx context.Context, req *pb.GetUserScoreRequest) (*pb.GetUserScoreResponse, error) {
	q, err := toQuery(req.GetBoard(), req.GetSeason(), req.GetDivision(), req.GetMethod())
	if err != nil {
		return nil, err
	}
	page, err := s.service.User(ctx, q, leaderboard.UserID(req.GetUserId()), or(req.Neighbors, defaultNeighbors), req.GetIncludeMetadata())
	if err != nil {
		return nil, err
	}
	return &pb.GetUserScoreResponse{Status: success, Data: fromUser(&page)}, nil
}

func (s *Server) LookupScores(ctx context.Context, req *pb.LookupScoresRequest) (*pb.LookupScoresResponse, error) {
	q, err := toQuery(req.GetBoard(), req.GetSeason(), req.GetDivision(), req.GetMethod())
	if err != nil {
		return nil, err
	}
	users := make([]leaderboard.UserID, len(req.GetUserIds()))
	for i, id := range req.GetUserIds() {
		users[i] = leaderboard.UserID(id)
	}
	page, err := s.service.Lookup(ctx, q, users)
	if err != nil {
		return nil, err
	}
	list := fromPage(&page.About, page.Lines)
	for i := range list.Leaderboard {
		list.Leaderboard[i].ListRank = known(page.ListRanks[i])
	}
	for _, user := range page.Missing {
		list.Missing = append(list.Missing, string(user))
	}
	return &pb.LookupScoresResponse{Status: success, Data: list}, nil
}

func (s *Server) GetStats(ctx context.Context, req *pb.GetStatsRequest) (*pb.GetStatsResponse, error) {
	q, err := toQuery(req.GetBoard(), req.GetSeason(), req.GetDivision(), req.GetMethod())
	if err != nil {
		return nil, err
	}
	if req.Rank != nil && req.GetRank() < 1 {
		return nil, &leaderboard.FieldError{Field: "rank", Problem: "is from 1"}
	}
	stats, err := s.service.Stats(ctx, ranking.StatsQuery{
		Query: q, Buckets: or(req.Buckets, defaultBuckets), Score: (*leaderboard.Score)(req.Score), Rank: req.GetRank(),
	})
	if err != nil {
		return nil, err
	}
	return &pb.GetStatsResponse{Status: success, Data: fromStats(&stats)}, nil
}

func (s *Server) ListSeasons(ctx context.Context, req *pb.ListSeasonsRequest) (*pb.ListSeasonsResponse, error) {
	b, err := s.service.Board(ctx, boardID(req.GetBoard()))
	if err != nil {
		return nil, err
	}
	seasons, err := s.service.Seasons(ctx, b.ID)
	if err != nil {
		return nil, err
	}
	data := &pb.ListSeasonsResponse_Seasons{Board: string(b.ID)}
	if current, err := b.Season.At(s.options.Now()); err == nil {
		data.Current = string(current.ID)
	}
	for i := range seasons {
		data.Seasons = append(data.Seasons, fromSeason(&seasons[i]))
	}
	return &pb.ListSeasonsResponse{Status: success, Data: data}, nil
}

// streaming returns a context that ends with ctx or when the server stops.
func (s *Server) streaming(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.stopping, func() { cancel(errStopping) })
	return ctx, func() { stop(); cancel(nil) }
}

var errStopping = status.Error(codes.Unavailable, "the server is stopping; call another")

// ended is why a stream ended: because the server stops, or err.
func ended(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errStopping) {
		return errStopping
	}
	return err
}

func (s *Server) WatchScores(req *pb.WatchScoresRequest, stream pb.LeaderboardService_WatchScoresServer) error {
	q, err := toQuery(req.GetBoard(), req.GetSeason(), req.GetDivision(), req.GetMethod())
	if err != nil {
		return err
	}
	defer s.watchers.Add(-1)
	if s.watchers.Add(1) > s.options.MaxWatchers {
		return newStatus(codes.ResourceExhausted, fmt.Sprintf("%d callers are watching already", s.options.MaxWatchers), errorInfo("TOO_MANY_WATCHERS"))
	}
	ctx, cancel := s.streaming(stream.Context())
	defer cancel()
	err = s.service.Watch(ctx, ranking.PageQuery{Query: q, Limit: or(req.Limit, defaultLimit)}, func(page ranking.Page) error {
		return stream.Send(&pb.WatchScoresResponse{EventId: eventID(&page), Data: fromPage(&page.About, page.Lines)})
	})
	return ended(ctx, err)
}

// eventID grows with the changes of a ranking.
func eventID(page *ranking.Page) string {
	if page.AsOf.IsZero() {
		return "0"
	}
	return strconv.FormatInt(page.AsOf.UnixMicro(), 10)
}

func (s *Server) ListBoards(ctx context.Context, _ *pb.ListBoardsRequest) (*pb.ListBoardsResponse, error) {
	boards, err := s.service.Boards(ctx)
	if err != nil {
		return nil, err
	}
	res := &pb.ListBoardsResponse{}
	for i := range boards {
		res.Boards = append(res.Boards, fromBoard(&boards[i]))
	}
	return res, nil
}

func (s *Server) GetBoard(ctx context.Context, req *pb.GetBoardRequest) (*pb.GetBoardResponse, error) {
	b, err := s.service.Board(ctx, boardID(req.GetBoard()))
	if err != nil {
		return nil, err
	}
	return &pb.GetBoardResponse{Board: fromBoard(&b)}, nil
}

func (s *Server) CreateBoard(ctx context.Context, req *pb.CreateBoardRequest) (*pb.CreateBoardResponse, error) {
	b, err := toBoard(req.GetBoard())
	if err != nil {
		return nil, err
	}
	if b, err = s.service.CreateBoard(ctx, b); err != nil {
		return nil, err
	}
	return &pb.CreateBoardResponse{Board: fromBoard(&b)}, nil
}

func (s *Server) UpdateBoard(ctx context.Context, req *pb.UpdateBoardRequest) (*pb.UpdateBoardResponse, error) {
	b, err := s.service.AmendBoard(ctx, boardID(req.GetBoard().GetBoardId()), func(b *leaderboard.Board) error {
		changed := fromBoard(b)
		if err := applyMask(changed.ProtoReflect(), req.GetBoard().ProtoReflect(), req.GetUpdateMask().GetPaths()); err != nil {
			return err
		}
		created := b.CreatedAt
		next, err := toBoard(changed)
		next.CreatedAt = created
		*b = next
		return err
	})
	if err != nil {
		return nil, err
	}
	return &pb.UpdateBoardResponse{Board: fromBoard(&b)}, nil
}

// applyMask sets the fields of dst that paths name to what they are in src. No
// paths are all fields that src has.
func applyMask(dst, src protoreflect.Message, paths []string) error {
	named := len(paths) > 0 && paths[0] != "" // which the gateway makes of {}
	if len(paths) == 0 {
		src.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			named = named || fd.Name() != "board_id"
			dst.Set(fd, v)
			return true
		})
	}
	if !named {
		return &leaderboard.FieldError{Field: bodyField, Problem: "names no field to change"}
	}
	for _, path := range paths {
		d, s := dst, src
		name, rest, nested := strings.Cut(path, ".")
		fd := d.Descriptor().Fields().ByName(protoreflect.Name(name))
		for nested && fd != nil && fd.Message() != nil && !fd.IsList() {
			d, s = d.Mutable(fd).Message(), s.Get(fd).Message()
			name, rest, nested = strings.Cut(rest, ".")
			fd = d.Descriptor().Fields().ByName(protoreflect.Name(name))
		}
		switch {
		case fd == nil || nested:
			return &leaderboard.FieldError{Field: "update_mask", Problem: fmt.Sprintf("%.80q is no field of a board", path)}
		case s.Has(fd):
			d.Set(fd, s.Get(fd))
		default:
			d.Clear(fd)
		}
	}
	return nil
}

func (s *Server) DeleteBoard(ctx context.Context, req *pb.DeleteBoardRequest) (*pb.DeleteBoardResponse, error) {
	id := leaderboard.BoardID(req.GetBoard()) // never the default by leaving it out
	if err := id.Validate(); err != nil {
		return nil, err
	}
	if id == leaderboard.DefaultBoard {
		return nil, &leaderboard.FieldError{Field: "board", Problem: "is the default board, which the routes without a board are for, and cannot be deleted"}
	}
	return &pb.DeleteBoardResponse{}, s.service.DeleteBoard(ctx, id)
}

func (s *Server) BanUser(ctx context.Context, req *pb.BanUserRequest) (*pb.BanUserResponse, error) {
	ban, err := s.service.SetBan(ctx, leaderboard.UserID(req.GetUserId()), true, req.GetReason())
	return &pb.BanUserResponse{UserId: req.GetUserId(), Banned: ban.Banned}, err
}

func (s *Server) UnbanUser(ctx context.Context, req *pb.UnbanUserRequest) (*pb.UnbanUserResponse, error) {
	ban, err := s.service.SetBan(ctx, leaderboard.UserID(req.GetUserId()), false, "")
	return &pb.UnbanUserResponse{UserId: req.GetUserId(), Banned: ban.Banned}, err
}

func (s *Server) EraseUser(ctx context.Context, req *pb.EraseUserRequest) (*pb.EraseUserResponse, error) {
	return &pb.EraseUserResponse{UserId: req.GetUserId(), Erased: true}, s.service.Erase(ctx, leaderboard.UserID(req.GetUserId()))
}

func (s *Server) ListUserScores(ctx context.Context, req *pb.ListUserScoresRequest) (*pb.ListUserScoresResponse, error) {
	q, err := toQuery("", "", "", req.GetMethod())
	if err != nil {
		return nil, err
	}
	user := leaderboard.UserID(req.GetUserId())
	scores, err := s.service.UserScores(ctx, user, q.Method)
	if err != nil {
		return nil, err
	}
	ban, err := s.service.Ban(ctx, user)
	if err != nil {
		return nil, err
	}
	data := &pb.ListUserScoresResponse_UserScores{UserId: string(user), Banned: ban.Banned, Method: q.Method.String()}
	for i := range scores {
		sc := &scores[i]
		data.Scores = append(data.Scores, &pb.ListUserScoresResponse_BoardScore{
			Board: string(sc.Board.ID), Season: string(sc.Season.ID), Score: int64(sc.Score), Rank: known(sc.Rank), Total: total(&sc.About),
			AchievedAt: wire.Timestamp(sc.AchievedAt), AsOf: wire.Timestamp(sc.AsOf), Degraded: sc.Degraded, Sealed: sc.Sealed,
		})
	}
	return &pb.ListUserScoresResponse{Status: success, Data: data}, nil
}
