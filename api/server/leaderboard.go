package server

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/api/auth"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/api/protoconv"
	"github.com/open-leaderboard/leaderboard/api/restjson"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

// service is the part of *ranking.Service that the handlers use.
type service interface {
	CreateBoard(context.Context, leaderboard.Board) (leaderboard.Board, error)
	Board(context.Context, leaderboard.BoardID) (leaderboard.Board, error)
	Boards(context.Context) ([]leaderboard.Board, error)
	AmendBoard(context.Context, leaderboard.BoardID, func(*leaderboard.Board) error) (leaderboard.Board, error)
	PreviewAmendment(context.Context, leaderboard.BoardID, func(*leaderboard.Board) error) (ranking.BoardPreview, error)
	SeasonInfo(context.Context, *leaderboard.Board, leaderboard.SeasonID) (ranking.SeasonInfo, error)
	Checksum(context.Context, *leaderboard.Board, leaderboard.SeasonID) (string, error)
	EndSeason(context.Context, leaderboard.BoardID, leaderboard.EarlyEnd) (ranking.SeasonEnding, error)
	PreviewEnd(context.Context, leaderboard.BoardID, leaderboard.EarlyEnd) (ranking.SeasonEnding, error)
	DeleteBoard(context.Context, leaderboard.BoardID) error

	Submit(context.Context, *leaderboard.Board, []leaderboard.MatchResult) ([]ranking.Receipt, error)
	Accept(context.Context, *leaderboard.Board, []leaderboard.MatchResult) ([]ranking.Receipt, error)
	AddPreviousRanks(context.Context, *leaderboard.Board, []ranking.Receipt) error
	AddLinked(context.Context, []ranking.Receipt) error
	Retract(context.Context, *leaderboard.Board, leaderboard.ResultKey, *int64) (ranking.Receipt, error)
	PreviewRetraction(context.Context, *leaderboard.Board, leaderboard.ResultKey, *int64) (ranking.RetractionPreview, error)
	PlanRetractions(context.Context, *leaderboard.Board, []leaderboard.ResultKey) (*ranking.Retractions, error)
	PlanPurge(context.Context, *leaderboard.Board, leaderboard.UserID, leaderboard.SeasonID, time.Time, time.Time) (*ranking.Retractions, error)
	PreviewRetractions(context.Context, *leaderboard.Board, *ranking.Retractions) ([]ranking.Receipt, ranking.Effects, error)
	RetractAll(context.Context, *leaderboard.Board, *ranking.Retractions) ([]ranking.Receipt, error)
	ExportVoids(context.Context, ranking.Selection, func(leaderboard.MatchState) error) error
	MatchSeason(context.Context, *leaderboard.Board, leaderboard.MatchKey) (leaderboard.SeasonID, error)
	SetVoid(context.Context, *leaderboard.Board, leaderboard.MatchState, bool) (leaderboard.MatchState, error)
	PreviewVoid(context.Context, *leaderboard.Board, leaderboard.MatchKey, bool) (ranking.Effects, error)
	Correct(context.Context, *leaderboard.Board, leaderboard.ResultKey, ranking.Correction) (leaderboard.MatchResult, ranking.Receipt, error)
	ResultSeason(context.Context, *leaderboard.Board, leaderboard.ResultKey) (leaderboard.SeasonID, bool, error)
	Result(context.Context, *leaderboard.Board, leaderboard.ResultKey, *int64) (ranking.ResultStatus, error)

	UserResults(context.Context, *leaderboard.Board, ranking.ResultsQuery) (ranking.ResultsPage, error)

	Page(context.Context, ranking.PageQuery) (ranking.Page, error)
	User(context.Context, ranking.Query, leaderboard.UserID, int, bool) (ranking.UserPage, error)
	Lookup(context.Context, ranking.Query, []leaderboard.UserID) (ranking.LookupPage, error)
	Stats(context.Context, ranking.StatsQuery) (ranking.Stats, error)
	Seasons(context.Context, *leaderboard.Board) ([]ranking.SeasonInfo, error)
	Watch(context.Context, ranking.PageQuery, func(ranking.Page) error) error

	SetBan(context.Context, leaderboard.Ban) (leaderboard.Ban, error)
	PreviewBan(context.Context, leaderboard.Ban) (ranking.BanPreview, error)
	CheckBan(context.Context, *leaderboard.Ban) (leaderboard.Ban, error)
	CheckImport([]leaderboard.Ban) error
	UserBans(context.Context, leaderboard.UserID) ([]leaderboard.Ban, error)
	Bans(context.Context, ranking.BanQuery) (ranking.BanPage, error)
	ImportBans(context.Context, []leaderboard.Ban) error
	AppendAct(context.Context, leaderboard.Act) error
	Acts(context.Context, ranking.ActQuery) (ranking.ActPage, error)
	ExportBans(context.Context, leaderboard.BoardID, func(leaderboard.Ban) error) error
	Erase(context.Context, leaderboard.UserID) error
	UserScores(context.Context, leaderboard.UserID, leaderboard.Method) ([]ranking.UserScore, error)

	Verify(context.Context, ranking.Selection, bool, ranking.Progress, func(ranking.Difference) error) (ranking.VerifyReport, error)
	Rebuild(context.Context, ranking.Selection, ranking.Progress) (int64, error)
	Export(context.Context, ranking.Selection, bool, func(leaderboard.MatchResult) error) error
	ExportEnds(context.Context, leaderboard.BoardID, leaderboard.SeasonID, func(leaderboard.EarlyEnd) error) error
}

var _ service = (*ranking.Service)(nil)

const (
	success          = "success"
	defaultLimit     = 10
	defaultNeighbors = 4
	defaultBuckets   = 10
)

// orDefault returns *p, or the default d if p is nil.
func orDefault[T, D int | int32](p *T, d D) int {
	if p == nil {
		return int(d)
	}
	return int(*p)
}

// SubmitScore records one result. It returns an error if the result is rejected.
func (s *Server) SubmitScore(ctx context.Context, req *pb.SubmitScoreRequest) (*pb.SubmitScoreResponse, error) {
	b, err := s.service.Board(ctx, boardID(req.GetBoard()))
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

// submitResponse returns the answer to a call whose only result has the outcome o.
func submitResponse(o *pb.Outcome) *pb.SubmitScoreResponse {
	res := &pb.SubmitScoreResponse{
		Success: succeeded(o), NewScore: o.NewScore, Rank: o.Rank, Status: o.Status, UserId: o.UserId, MatchId: o.MatchId,
		Revision: o.Revision, Season: o.Season, AchievedAt: o.AchievedAt,
		PreviousScore: o.PreviousScore, PreviousRank: o.PreviousRank, PersonalBest: o.PersonalBest, Stands: o.Stands, Linked: o.Linked,
	}
	if o.GetReason() != "" {
		res.Reason = &o.Reason
	}
	if o.GetDetail() != "" {
		res.Detail = &o.Detail
	}
	return res
}

// newResult converts a message to a match result. It also refuses ids that older results
// may have, but that new results must not have. The error joins a
// [leaderboard.FieldError] for each fault.
func newResult(b *leaderboard.Board, r *pb.Result) (leaderboard.MatchResult, error) {
	result, err := protoconv.ToResult(b, r)
	if result.User.Validate() == nil {
		err = errors.Join(err, result.User.ValidateNew())
	}
	if result.Match != "" {
		err = errors.Join(err, result.Match.ValidateNew())
	}
	return result, err
}

// extraOptions has the fields that are common to all requests that write results.
type extraOptions interface {
	GetIncludePreviousRank() bool
	GetIncludeLinked() bool
}

// submitOptions has the fields that are common to all requests with new results.
type submitOptions interface {
	extraOptions
	GetNoWait() bool
}

// submit passes new results to the service, for a method of the API.
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
	return receipts, err
}

// addExtras adds to receipts what a request asks for beyond the outcomes of its results.
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

// extraTimeout bounds the time for reading the parts of a submit's answer that the caller
// asked for, such as the previous rank.
const extraTimeout = 2 * time.Second

// addExtra adds what the caller requested beyond the outcomes of results, which are
// applied already. If add fails or takes longer than extraTimeout, the answer lacks it.
func (s *Server) addExtra(ctx context.Context, b *leaderboard.Board, what string, add func(context.Context) error) {
	limited, cancel := context.WithTimeout(ctx, extraTimeout)
	defer cancel()
	if err := add(limited); err != nil && ctx.Err() == nil {
		s.options.Log.WarnContext(ctx, "an answer to a submit lacks what was requested", "board", b.ID, "lacks", what, "err", err)
	}
}

// submitAndWait waits until the results are applied, and measures that time.
func (s *Server) submitAndWait(ctx context.Context, method string, b *leaderboard.Board, results []leaderboard.MatchResult) ([]ranking.Receipt, error) {
	begun := time.Now()
	receipts, err := s.service.Submit(ctx, b, results)
	if slices.ContainsFunc(receipts, func(r ranking.Receipt) bool {
		return r.Err == nil && (r.Status == leaderboard.Applied || r.Status == leaderboard.Accepted)
	}) {
		s.metrics.visible.WithLabelValues(method).Observe(time.Since(begun).Seconds())
	}
	return receipts, err
}

// succeeded reports whether a result is stored, and counts or has a higher revision that
// counts instead.
func succeeded(o *pb.Outcome) bool {
	switch o.GetStatus() {
	case pb.Outcome_APPLIED, pb.Outcome_DUPLICATE, pb.Outcome_SUPERSEDED:
		return true
	}
	return false
}

// outcome converts the receipt of one result to a message. It returns an error if the
// result was rejected or could not be applied.
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
	return nil, newStatus(codes.FailedPrecondition, refusal(b, r), errorInfo(string(r.Reason)), o)
}

// refusal returns the message about a rejected result.
func refusal(b *leaderboard.Board, r *ranking.Receipt) string {
	if r.Repeated && r.Reason != leaderboard.ReasonEnded {
		return fmt.Sprintf("the same result was rejected before (%s), and stays rejected; to try again, submit it with a new match_id", r.Reason)
	}
	switch r.Reason {
	case leaderboard.ReasonFloor:
		return fmt.Sprintf("the score is %d and would fall below the board's floor of %d", r.Score, *b.Floor)
	case leaderboard.ReasonRange:
		return fmt.Sprintf("the score is %d; with this result, the score or a tie-breaker would be outside ±2^53", r.Score)
	case leaderboard.ReasonClosed:
		return fmt.Sprintf("season %s is closed and accepts no more results", r.Season)
	case leaderboard.ReasonEnded:
		return refusedByEnd(b, r.Season)
	case leaderboard.ReasonErased:
		return "the user was erased after this result was sent"
	case leaderboard.ReasonDeleted:
		return "the board or the season was deleted after this result was sent"
	}
	return "the result was rejected: " + string(r.Reason)
}

func resultKey(board, season, user, match string) leaderboard.ResultKey {
	return leaderboard.ResultKey{
		SeasonKey: leaderboard.SeasonKey{Board: boardID(board), Season: leaderboard.SeasonID(season)},
		User:      leaderboard.UserID(user), Match: leaderboard.MatchID(match),
	}
}

// ListScores returns a page of a ranking.
func (s *Server) ListScores(ctx context.Context, req *pb.ListScoresRequest) (*pb.ListScoresResponse, error) {
	q, err := toQuery(req)
	if err != nil {
		return nil, err
	}
	if req.StartRank != nil && req.GetStartRank() < 1 {
		return nil, &leaderboard.FieldError{Field: "start_rank", Problem: "must be at least 1"}
	}
	page, err := s.service.Page(ctx, ranking.PageQuery{
		Query: q, Limit: orDefault(req.Limit, defaultLimit), Start: req.GetStartRank(), Token: req.GetPageToken(), Details: req.GetIncludeMetadata(),
		Scores: ranking.ScoreRange{Min: (*leaderboard.Score)(req.MinScore), Max: (*leaderboard.Score)(req.MaxScore)},
	})
	if err != nil {
		return nil, err
	}
	list := fromPage(&page.About, page.Lines)
	list.NextPageToken, list.InRange = page.Next, page.InRange
	return &pb.ListScoresResponse{Status: success, Data: list}, nil
}

// GetUserScore returns a user's entry and its neighbors.
func (s *Server) GetUserScore(ctx context.Context, req *pb.GetUserScoreRequest) (*pb.GetUserScoreResponse, error) {
	q, err := toQuery(req)
	if err != nil {
		return nil, err
	}
	page, err := s.service.User(ctx, q, leaderboard.UserID(req.GetUserId()), orDefault(req.Neighbors, defaultNeighbors), req.GetIncludeMetadata())
	if err != nil {
		return nil, err
	}
	return &pb.GetUserScoreResponse{Status: success, Data: fromUser(&page)}, nil
}

// LookupScores returns the entries of the given users. Each entry has its rank in the
// ranking, and its rank among the given users.
func (s *Server) LookupScores(ctx context.Context, req *pb.LookupScoresRequest) (*pb.LookupScoresResponse, error) {
	q, err := toQuery(req)
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

// GetStats returns statistics of a ranking.
func (s *Server) GetStats(ctx context.Context, req *pb.GetStatsRequest) (*pb.GetStatsResponse, error) {
	q, err := toQuery(req)
	if err != nil {
		return nil, err
	}
	if req.Rank != nil && req.GetRank() < 1 {
		return nil, &leaderboard.FieldError{Field: "rank", Problem: "must be at least 1"}
	}
	stats, err := s.service.Stats(ctx, ranking.StatsQuery{
		Query: q, Buckets: orDefault(req.Buckets, defaultBuckets), Score: (*leaderboard.Score)(req.Score), Rank: req.GetRank(),
	})
	if err != nil {
		return nil, err
	}
	return &pb.GetStatsResponse{Status: success, Data: fromStats(&stats)}, nil
}

// ListSeasons returns the seasons of a board.
func (s *Server) ListSeasons(ctx context.Context, req *pb.ListSeasonsRequest) (*pb.ListSeasonsResponse, error) {
	b, err := s.service.Board(ctx, boardID(req.GetBoard()))
	if err != nil {
		return nil, err
	}
	seasons, err := s.service.Seasons(ctx, &b)
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

// recheckInterval is how often the server checks the credentials of the caller of a
// running stream.
const recheckInterval = 2 * time.Second

// streaming returns the context for a stream. It is canceled
//
//   - when ctx is canceled;
//   - when the server stops;
//   - soon after the caller's credentials expire or are revoked;
//   - soon after the board becomes private, if the caller has no credentials.
//
// board is empty if the stream sends no data of a board to callers without credentials.
func (s *Server) streaming(ctx context.Context, board leaderboard.BoardID) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.stopping, func() { cancel(errStopping) })
	if a := admissionFrom(ctx); !a.anonymous() || board != "" && a != nil && !s.options.Insecure {
		go s.recheck(ctx, a, board, cancel)
	}
	return ctx, func() { stop(); cancel(nil) }
}

// recheck calls cancel when the caller's credentials are no longer valid, or when a
// caller without credentials may no longer see the board. It then returns. It also
// returns when ctx is done.
func (s *Server) recheck(ctx context.Context, a *admission, board leaderboard.BoardID, cancel context.CancelCauseFunc) {
	ticker := time.NewTicker(recheckInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if a.anonymous() {
			if err := s.checkPublic(ctx, board); errors.Is(err, leaderboard.ErrBoardNotFound) {
				cancel(err)
				return
			}
		} else if s.guard.Recheck(ctx, a.caller) != nil {
			cancel(errCredentialsEnded)
			return
		}
	}
}

var (
	errStopping         = errors.New("server: stopping")
	errCredentialsEnded = newStatus(codes.Unauthenticated, "the key or token of this stream expired or was revoked; call again with a valid one", errorInfo("UNAUTHENTICATED"))
)

// ended returns the error for the caller of a stream that ended with err. If the server
// canceled the stream, the returned error is the cause of the cancellation. Otherwise it
// is err.
func ended(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	cause := context.Cause(ctx)
	if errors.Is(cause, errStopping) {
		return stoppingStatus()
	}
	for _, reason := range []error{errCredentialsEnded, leaderboard.ErrBoardNotFound} {
		if errors.Is(cause, reason) {
			return cause
		}
	}
	return err
}

// reasonStopping is the reason of the error that ends a stream when the server stops.
const reasonStopping = "SERVER_STOPPING"

// stoppingStatus returns the error of a stream that ends because the server stops. The
// error tells the client to reconnect after a random delay, so that not all clients
// reconnect to another server at the same time.
func stoppingStatus() error {
	delay := 500*time.Millisecond + rand.N(1500*time.Millisecond)
	return newStatus(codes.Unavailable, "the server is stopping; reconnect to reach another server",
		errorInfo(reasonStopping), &errdetails.RetryInfo{RetryDelay: durationpb.New(delay)})
}

// addWatcher counts a call as a running watcher until done is called. It returns an
// error if the server already has too many watchers, or if too many have the same key
// or, without a key, the same address.
func (s *Server) addWatcher(ctx context.Context) (done func(), err error) {
	source := ""
	if a := admissionFrom(ctx); a != nil {
		source = a.source
	}
	s.watching.Lock()
	defer s.watching.Unlock()
	total, own := s.watchers.Load(), s.watchersOf[source]
	switch {
	case total >= s.options.MaxWatchers:
		return nil, tooMany("TOO_MANY_WATCHERS", fmt.Sprintf("the server already has %d watchers; try again later", total))
	case own >= s.options.MaxCallerWatchers && !s.options.Insecure:
		return nil, tooMany("TOO_MANY_WATCHERS", fmt.Sprintf("this key, or this address, already has %d watchers; end some of them first", own))
	}
	s.watchers.Add(1)
	s.watchersOf[source] = own + 1
	return func() {
		s.watching.Lock()
		defer s.watching.Unlock()
		s.watchers.Add(-1)
		if s.watchersOf[source]--; s.watchersOf[source] == 0 {
			delete(s.watchersOf, source)
		}
	}, nil
}

// WatchScores sends the top of a ranking now and after each change.
func (s *Server) WatchScores(req *pb.WatchScoresRequest, stream pb.LeaderboardService_WatchScoresServer) error {
	q, err := toQuery(req)
	if err != nil {
		return err
	}
	done, err := s.addWatcher(stream.Context())
	if err != nil {
		return err
	}
	defer done()
	ctx, cancel := s.streaming(stream.Context(), q.Board)
	defer cancel()
	err = s.service.Watch(ctx, ranking.PageQuery{Query: q, Limit: orDefault(req.Limit, defaultLimit)}, func(page ranking.Page) error {
		return stream.Send(&pb.WatchScoresResponse{EventId: eventID(&page), Data: fromPage(&page.About, page.Lines)})
	})
	return ended(ctx, err)
}

// eventID returns the id of an event: the time of the last change, in microseconds. The
// id is "0" before the first change.
func eventID(page *ranking.Page) string {
	if page.AsOf.IsZero() {
		return "0"
	}
	return strconv.FormatInt(page.AsOf.UnixMicro(), 10)
}

// ListBoards returns the boards that the caller may see.
func (s *Server) ListBoards(ctx context.Context, _ *pb.ListBoardsRequest) (*pb.ListBoardsResponse, error) {
	boards, err := s.service.Boards(ctx)
	if err != nil {
		return nil, err
	}
	res := &pb.ListBoardsResponse{}
	for i := range boards {
		if s.sees(ctx, &boards[i]) {
			res.Boards = append(res.Boards, s.fromBoard(ctx, &boards[i]))
		}
	}
	return res, nil
}

// GetBoard returns a board.
func (s *Server) GetBoard(ctx context.Context, req *pb.GetBoardRequest) (*pb.GetBoardResponse, error) {
	b, err := s.service.Board(ctx, boardID(req.GetBoard()))
	if err != nil {
		return nil, err
	}
	return &pb.GetBoardResponse{Board: s.fromBoard(ctx, &b)}, nil
}

// fromBoard returns the message of a board. It leaves out the source and the linked boards
// that the caller may not see.
func (s *Server) fromBoard(ctx context.Context, b *leaderboard.Board) *pb.Board {
	board := protoconv.FromBoard(b)
	unseen := func(id string) bool {
		other, err := s.service.Board(ctx, leaderboard.BoardID(id))
		return err != nil || !s.sees(ctx, &other)
	}
	board.LinkedBoards = slices.DeleteFunc(board.LinkedBoards, unseen)
	if board.Source != nil && unseen(board.Source.BoardId) {
		board.Source = nil
	}
	return board
}

// boardObject returns a board as the audit log has it. It leaves out the source and the
// linked boards: an act on a board does not change them, and not every reader may see them.
func boardObject(b *leaderboard.Board) string {
	board := protoconv.FromBoard(b)
	board.Source, board.LinkedBoards = nil, nil
	return object(board)
}

// CreateBoard creates a board. Creating the same board again changes nothing.
func (s *Server) CreateBoard(ctx context.Context, req *pb.CreateBoardRequest) (*pb.CreateBoardResponse, error) {
	b, err := protoconv.ToBoard(req.GetBoard())
	if b.ID.Validate() == nil { // otherwise s.service.CreateBoard reports the invalid id
		err = errors.Join(err, b.ID.ValidateNew())
	}
	if err != nil {
		return nil, err
	}
	if b.Source != nil && !allows(ctx, b.Source.Board) {
		return nil, &auth.BoardError{Board: b.Source.Board}
	}
	b.StrictSubmits = true
	act := leaderboard.Act{Action: "board.create", Board: b.ID, ActDetail: leaderboard.ActDetail{After: object(req.GetBoard())}}
	if err := s.audited(ctx, act, func() (err error) {
		b, err = s.service.CreateBoard(ctx, b)
		return err
	}); err != nil {
		return nil, err
	}
	return &pb.CreateBoardResponse{Board: s.fromBoard(ctx, &b)}, nil
}

// UpdateBoard changes the mutable fields of a board.
func (s *Server) UpdateBoard(ctx context.Context, req *pb.UpdateBoardRequest) (*pb.UpdateBoardResponse, error) {
	change := func(b *leaderboard.Board) error {
		changed := protoconv.FromBoard(b)
		if err := applyMask(changed.ProtoReflect(), req.GetBoard().ProtoReflect(), req.GetUpdateMask().GetPaths()); err != nil {
			return err
		}
		next, err := protoconv.ToBoard(changed)
		next.CreatedAt, next.Links, next.FillLease, next.Season.Ends = b.CreatedAt, b.Links, b.FillLease, b.Season.Ends
		next.Rolling, next.StrictSubmits = b.Rolling, b.StrictSubmits
		next.Unfilled, next.RecountLease = b.Unfilled, b.RecountLease
		*b = next
		return err
	}
	id := boardID(req.GetBoard().GetBoardId())
	if req.GetDryRun() {
		p, err := s.service.PreviewAmendment(ctx, id, change)
		if err != nil {
			return nil, err
		}
		return &pb.UpdateBoardResponse{Board: s.fromBoardPreview(ctx, &p)}, nil
	}
	b, err := s.service.Board(ctx, id)
	if err != nil {
		return nil, err
	}
	act := leaderboard.Act{Action: "board.update", Board: b.ID, ActDetail: leaderboard.ActDetail{Before: boardObject(&b)}}
	if err := change(&b); err != nil {
		return nil, err
	}
	act.After = boardObject(&b)
	if err := s.audited(ctx, act, func() (err error) {
		b, err = s.service.AmendBoard(ctx, act.Board, change)
		return err
	}); err != nil {
		return nil, err
	}
	return &pb.UpdateBoardResponse{Board: s.fromBoard(ctx, &b)}, nil
}

// fromBoardPreview returns the board as it would be, with what would change.
func (s *Server) fromBoardPreview(ctx context.Context, p *ranking.BoardPreview) *pb.Board {
	b := s.fromBoard(ctx, &p.Board)
	b.Effect = &pb.BoardEffect{Truncated: p.Truncated, ChangedCount: int64(p.Changed), RemovedCount: int64(p.Removed)}
	for i := range p.Seasons {
		e := &p.Seasons[i]
		b.Effect.Seasons = append(b.Effect.Seasons, &pb.BoardEffect_Season{
			Id: string(e.ID), Added: e.Added, ClosesBefore: protoconv.Timestamp(e.ClosesBefore), ClosesAfter: protoconv.Timestamp(e.ClosesAfter),
			RemovedBefore: protoconv.Timestamp(e.RemovedBefore), RemovedAfter: protoconv.Timestamp(e.RemovedAfter), RemovedNext: e.RemovedNext, Entrants: e.Total,
		})
	}
	return b
}

// applyMask sets the fields of dst that paths name to their values in src. Without
// paths, it sets all fields that src has.
func applyMask(dst, src protoreflect.Message, paths []string) error {
	named := len(paths) > 0 && paths[0] != "" // the gateway converts the body {} to the path ""
	if len(paths) == 0 {
		src.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			named = named || fd.Name() != "board_id"
			dst.Set(fd, v)
			return true
		})
	}
	if !named {
		return &leaderboard.FieldError{Field: restjson.BodyField, Problem: "names no field to change"}
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
			return &leaderboard.FieldError{Field: "update_mask", Problem: fmt.Sprintf("%.80q is not a field of a board", path)}
		case s.Has(fd):
			d.Set(fd, s.Get(fd))
		default:
			d.Clear(fd)
		}
	}
	return nil
}

// DeleteBoard deletes a board with all of its results.
func (s *Server) DeleteBoard(ctx context.Context, req *pb.DeleteBoardRequest) (*pb.DeleteBoardResponse, error) {
	id := leaderboard.BoardID(req.GetBoard()) // here, an empty id must not mean the default board
	if err := id.Validate(); err != nil {
		return nil, err
	}
	if id == leaderboard.DefaultBoard {
		return nil, &leaderboard.FieldError{Field: "board", Problem: "is the default board and cannot be deleted, because requests that name no board use it"}
	}
	b, err := s.service.Board(ctx, id)
	if err != nil {
		return nil, err
	}
	act := leaderboard.Act{Action: "board.delete", Board: id, ActDetail: leaderboard.ActDetail{Before: boardObject(&b)}}
	return &pb.DeleteBoardResponse{}, s.audited(ctx, act, func() error { return s.service.DeleteBoard(ctx, id) })
}

// EraseUser deletes all data of a user.
func (s *Server) EraseUser(ctx context.Context, req *pb.EraseUserRequest) (*pb.EraseUserResponse, error) {
	user := leaderboard.UserID(req.GetUserId())
	if err := user.Validate(); err != nil {
		return nil, err
	}
	// The erasure also removes the user from this act's record.
	act := leaderboard.Act{Action: "user.erase", ActDetail: leaderboard.ActDetail{User: user}}
	return &pb.EraseUserResponse{UserId: req.GetUserId(), Erased: true}, s.audited(ctx, act, func() error { return s.service.Erase(ctx, user) })
}

// ListUserScores returns a user's entries on the boards that the caller may see.
func (s *Server) ListUserScores(ctx context.Context, req *pb.ListUserScoresRequest) (*pb.ListUserScoresResponse, error) {
	method, err := toMethod(req.GetMethod())
	if err != nil {
		return nil, err
	}
	user := leaderboard.UserID(req.GetUserId())
	scores, err := s.service.UserScores(ctx, user, method)
	if err != nil {
		return nil, err
	}
	data := &pb.ListUserScoresResponse_UserScores{UserId: string(user), Method: method.String()}
	if isAdmin(ctx) {
		if err := s.addBans(ctx, user, data); err != nil {
			return nil, err
		}
	}
	for i := range scores {
		sc := &scores[i]
		if !s.sees(ctx, &sc.Board) {
			continue
		}
		data.Scores = append(data.Scores, &pb.ListUserScoresResponse_BoardScore{
			Board: string(sc.Board.ID), Season: string(sc.Season.ID), Score: int64(sc.Score), Rank: known(sc.Rank), Total: total(&sc.About),
			AchievedAt: protoconv.Timestamp(sc.AchievedAt), AsOf: protoconv.Timestamp(sc.AsOf), Degraded: sc.Degraded, Sealed: sc.Sealed, Filling: ifTrue(sc.Filling),
		})
	}
	return &pb.ListUserScoresResponse{Status: success, Data: data}, nil
}
