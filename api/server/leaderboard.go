package server

import (
	"context"
	"encoding/base64"
	"sync"
	"time"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/api/protoconv"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

type service interface {
	CreateBoard(context.Context, leaderboard.Board) (leaderboard.Board, error)
	Board(context.Context, leaderboard.BoardID) (leaderboard.Board, error)
	Boards(context.Context) ([]leaderboard.Board, error)
	AmendBoard(context.Context, leaderboard.BoardID, func(*leaderboard.Board) error) (leaderboard.Board, error)
	CheckNewBoard(context.Context, leaderboard.Board) (*leaderboard.Board, error)
	CheckAmendment(context.Context, leaderboard.BoardID, func(*leaderboard.Board) error) (before, after leaderboard.Board, err error)
	CheckDeletion(context.Context, leaderboard.BoardID) (leaderboard.Board, error)
	PreviewAmendment(context.Context, leaderboard.BoardID, func(*leaderboard.Board) error) (ranking.BoardPreview, error)
	SeasonInfo(context.Context, *leaderboard.Board, leaderboard.SeasonID) (ranking.SeasonInfo, error)
	Checksum(context.Context, *leaderboard.Board, leaderboard.SeasonID) (string, error)
	EndSeason(context.Context, leaderboard.BoardID, leaderboard.EarlyEnd) (ranking.SeasonEnding, error)
	CheckEnd(context.Context, leaderboard.BoardID, leaderboard.EarlyEnd) (ranking.SeasonInfo, error)
	PreviewEnd(context.Context, leaderboard.BoardID, leaderboard.EarlyEnd) (ranking.SeasonEnding, error)
	DeleteBoard(context.Context, leaderboard.BoardID) error

	Submit(context.Context, *leaderboard.Board, []leaderboard.MatchResult) ([]ranking.Receipt, error)
	Accept(context.Context, *leaderboard.Board, []leaderboard.MatchResult) ([]ranking.Receipt, error)
	AddPreviousRanks(context.Context, *leaderboard.Board, []ranking.Receipt) error
	AddLinked(context.Context, []ranking.Receipt) error
	Retract(context.Context, *leaderboard.Board, leaderboard.ResultKey, *int64) (ranking.Receipt, error)
	PreviewCorrection(context.Context, *leaderboard.Board, leaderboard.ResultKey, ranking.Correction) (leaderboard.MatchResult, ranking.RetractionPreview, error)
	PreviewRetraction(context.Context, *leaderboard.Board, leaderboard.ResultKey, *int64) (ranking.RetractionPreview, error)
	PlanRetractions(context.Context, *leaderboard.Board, []leaderboard.ResultKey) (*ranking.Retractions, error)
	PlanPurge(context.Context, *leaderboard.Board, leaderboard.UserID, leaderboard.SeasonID, time.Time, time.Time) (*ranking.Retractions, error)
	PreviewRetractions(context.Context, *leaderboard.Board, *ranking.Retractions) ([]ranking.Receipt, ranking.Effects, error)
	RetractAll(context.Context, *leaderboard.Board, *ranking.Retractions) ([]ranking.Receipt, error)
	ExportVoids(context.Context, ranking.Selection, func(leaderboard.MatchState) error) error
	MatchSeason(context.Context, *leaderboard.Board, leaderboard.MatchKey) (leaderboard.SeasonID, error)
	Match(context.Context, leaderboard.MatchKey) (leaderboard.MatchState, error)
	Matches(context.Context, *leaderboard.Board, ranking.MatchesQuery) (ranking.MatchesPage, error)
	MatchResults(context.Context, *leaderboard.Board, leaderboard.MatchKey, leaderboard.UserID, int) (ranking.MatchPage, error)
	SetVoid(context.Context, *leaderboard.Board, leaderboard.MatchState, bool) (leaderboard.MatchState, error)
	PreviewVoid(context.Context, *leaderboard.Board, leaderboard.MatchKey, bool) (ranking.Effects, error)
	Correct(context.Context, *leaderboard.Board, leaderboard.ResultKey, ranking.Correction) (leaderboard.MatchResult, ranking.Receipt, error)
	ResultSeason(context.Context, *leaderboard.Board, leaderboard.ResultKey) (leaderboard.SeasonID, bool, error)
	CheckRetraction(context.Context, *leaderboard.Board, leaderboard.ResultKey, *int64) error
	CheckCorrection(context.Context, *leaderboard.Board, leaderboard.ResultKey, ranking.Correction) (leaderboard.Reason, error)
	Result(context.Context, *leaderboard.Board, leaderboard.ResultKey, *int64) (ranking.ResultStatus, error)
	ResultActs(context.Context, leaderboard.ResultKey) ([]leaderboard.Act, error)

	UserResults(context.Context, *leaderboard.Board, ranking.ResultsQuery) (ranking.ResultsPage, error)

	Page(context.Context, ranking.PageQuery) (ranking.Page, error)
	UserToRank(context.Context, ranking.UserQuery, leaderboard.UserID) (ranking.UserPage, error)
	Lookup(context.Context, ranking.Query, []leaderboard.UserID) (ranking.LookupPage, error)
	Search(context.Context, ranking.SearchQuery) (ranking.SearchPage, error)
	Stats(context.Context, ranking.StatsQuery) (ranking.Stats, error)
	Seasons(context.Context, *leaderboard.Board, ranking.SeasonsQuery) (ranking.SeasonsPage, error)
	Watch(context.Context, ranking.PageQuery, func(*ranking.WatchedPage) error) error

	SetBan(context.Context, leaderboard.Ban) (leaderboard.Ban, error)
	PreviewBan(context.Context, leaderboard.Ban) (ranking.BanPreview, error)
	CheckBan(context.Context, *leaderboard.Ban) (leaderboard.Ban, error)
	StoredBan(context.Context, leaderboard.BanKey) (leaderboard.Ban, error)
	CheckImport([]leaderboard.Ban) error
	UserBans(context.Context, leaderboard.UserID) ([]leaderboard.Ban, error)
	Bans(context.Context, ranking.BanQuery) (ranking.BanPage, error)
	ImportBans(context.Context, []leaderboard.Ban) error
	AppendActs(context.Context, []leaderboard.Act) error
	Acts(context.Context, ranking.ActQuery) (ranking.ActPage, error)
	ExportBans(context.Context, leaderboard.BoardID, func(leaderboard.Ban) error) error
	Erase(context.Context, leaderboard.UserID) error
	Profile(context.Context, leaderboard.UserID) (leaderboard.Profile, error)
	Profiles(context.Context, []leaderboard.UserID) ([]leaderboard.Profile, error)
	CheckProfile(*leaderboard.Profile) error
	PutProfiles(context.Context, []leaderboard.Profile) ([]leaderboard.ProfileChange, error)
	ExportProfiles(context.Context, ranking.Selection, func(*leaderboard.Profile) error) error
	UserScores(context.Context, leaderboard.UserID, leaderboard.Method, []leaderboard.BoardID) ([]ranking.UserScore, error)

	CheckSelection(context.Context, ranking.Selection) error
	Verify(context.Context, ranking.Selection, bool, ranking.Progress, func(ranking.Difference) error) (ranking.VerifyReport, error)
	Rebuild(context.Context, ranking.Selection, ranking.Progress) (int64, error)
	Export(context.Context, ranking.Selection, bool, func(leaderboard.MatchResult) error) error
	ExportStandings(context.Context, ranking.Selection, func(*ranking.FinalLine) error) error
	ExportEnds(context.Context, leaderboard.BoardID, leaderboard.SeasonID, func(leaderboard.EarlyEnd) error) error
}

var _ service = (*ranking.Service)(nil)

const (
	success          = "success"
	defaultLimit     = 10
	defaultNeighbors = 4
	defaultBuckets   = 10
)

func orDefault[T, D int | int32](p *T, d D) int {
	if p == nil {
		return int(d)
	}
	return int(*p)
}

func resultKey(board, season, user, match string) leaderboard.ResultKey {
	return leaderboard.ResultKey{
		SeasonKey: leaderboard.SeasonKey{Board: leaderboard.BoardID(board), Season: leaderboard.SeasonID(season)},
		User:      leaderboard.UserID(user), Match: leaderboard.MatchID(match),
	}
}

// listAnswer is an answer of ListScores, which concurrent equal calls share. They must not change it.
type listAnswer struct {
	board   *leaderboard.Board // see Resolved of [ranking.Query]
	message *pb.ListScoresResponse
	json    func() ([]byte, error)
	err     error
}

// shareWait is the longest time that calls wait for equal calls that began earlier.
const shareWait = 50 * time.Millisecond

// ListScores returns a page of a ranking. Equal calls that wait at the same time share one answer, which is
// read after the last of them began. Calls with scores share nothing.
func (s *Server) ListScores(ctx context.Context, req *pb.ListScoresRequest) (*pb.ListScoresResponse, error) {
	q, err := toQuery(ctx, req)
	if err != nil {
		return nil, err
	}
	if req.StartRank != nil && req.GetStartRank() < 1 {
		return nil, &leaderboard.FieldError{Field: "start_rank", Problem: "must be at least 1"}
	}
	if order := req.GetOrder(); order != "" && order != "best" && order != "worst" {
		return nil, &leaderboard.FieldError{Field: "order", Problem: "must be best or worst"}
	}
	pq := ranking.PageQuery{
		Query: q, Limit: orDefault(req.Limit, defaultLimit), Start: req.GetStartRank(), Token: req.GetPageToken(), Worst: req.GetOrder() == "worst",
		Scores: ranking.ScoreRange{Min: (*leaderboard.Score)(req.MinScore), Max: (*leaderboard.Score)(req.MaxScore)},
		Around: (*leaderboard.Score)(req.AroundScore), TopPercent: req.GetTopPercent(),
	}
	if req.TopPercent != nil && !(pq.TopPercent > 0) { // NaN too, which equals no other call
		return nil, &leaderboard.FieldError{Field: "top_percent", Problem: "must be more than 0 and at most 100"}
	}
	if pq.Scores != (ranking.ScoreRange{}) || pq.Around != nil { // scores are compared by pointer, so these calls are never equal
		return s.readScores(ctx, pq)
	}
	answer := listAnswer{board: pq.Resolved}
	pq.Resolved = nil // each call has its own pointer
	if err := s.lists.Do(ctx, pq, &answer); err != nil {
		return nil, err
	}
	if a := admissionFrom(ctx); a != nil {
		a.encode = answer.json
	}
	return answer.message, answer.err
}

func (s *Server) readScores(ctx context.Context, q ranking.PageQuery) (*pb.ListScoresResponse, error) {
	page, err := s.service.Page(ctx, q)
	if err != nil {
		return nil, err
	}
	list := fromPage(&page.About, page.Lines)
	list.NextPageToken, list.InRange, list.RankOfScore = page.Next, page.InRange, rankOrNil(page.RankOfScore)
	return &pb.ListScoresResponse{Status: success, Data: list}, nil
}

// shareScores reads the answer of equal calls. It recovers panics itself, so that the log has their
// stack: the Group calls it in another goroutine. If the read takes as long as a call may take, the calls fail before it does.
func (s *Server) shareScores(ctx context.Context, q ranking.PageQuery, calls []*listAnswer) error {
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	var shared listAnswer
	defer func() {
		if p := recover(); p != nil {
			shared = listAnswer{err: s.panicError(p)}
		}
		for _, call := range calls {
			*call = shared
		}
	}()
	if len(calls) == 1 { // several calls may have read different states of the board
		q.Resolved = calls[0].board
	}
	message, err := s.readScores(ctx, q)
	if shared.message, shared.err = message, err; err == nil && len(calls) > 1 {
		shared.json = sync.OnceValues(func() ([]byte, error) { return appendLine(message) })
	}
	return nil
}

// GetUserScore returns a user's entry and its neighbors.
func (s *Server) GetUserScore(ctx context.Context, req *pb.GetUserScoreRequest) (*pb.GetUserScoreResponse, error) {
	q, err := toQuery(ctx, req)
	if err != nil {
		return nil, err
	}
	if req.ToRank != nil && req.GetToRank() < 1 {
		return nil, &leaderboard.FieldError{Field: "to_rank", Problem: "must be at least 1"}
	}
	uq := ranking.UserQuery{Query: q, Neighbors: orDefault(req.Neighbors, defaultNeighbors), Fill: req.GetFill(), ToRank: req.GetToRank(), AllowMissing: req.GetAllowMissing()}
	page, err := s.service.UserToRank(ctx, uq, leaderboard.UserID(req.GetUserId()))
	if err != nil {
		return nil, err
	}
	return &pb.GetUserScoreResponse{Status: success, Data: fromUser(&page)}, nil
}

// LookupScores returns the entries of the given users, with ranks in the ranking and among these
// users.
func (s *Server) LookupScores(ctx context.Context, req *pb.LookupScoresRequest) (*pb.LookupScoresResponse, error) {
	q, err := toQuery(ctx, req)
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
		list.Leaderboard[i].ListRank = rankOrNil(page.ListRanks[i])
	}
	for _, user := range page.Missing {
		list.Missing = append(list.Missing, string(user))
	}
	return &pb.LookupScoresResponse{Status: success, Data: list}, nil
}

// GetStats returns statistics of a ranking.
func (s *Server) GetStats(ctx context.Context, req *pb.GetStatsRequest) (*pb.GetStatsResponse, error) {
	q, err := toQuery(ctx, req)
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

const defaultSeasons = 100

// ListSeasons returns a page of the seasons of a board.
func (s *Server) ListSeasons(ctx context.Context, req *pb.ListSeasonsRequest) (*pb.ListSeasonsResponse, error) {
	b, err := s.board(ctx, leaderboard.BoardID(req.GetBoard()))
	if err != nil {
		return nil, err
	}
	after, err := parseSeasonToken(&b, req.GetPageToken())
	if err != nil {
		return nil, err
	}
	page, err := s.service.Seasons(ctx, &b, ranking.SeasonsQuery{Limit: orDefault(req.Limit, defaultSeasons), After: after})
	if err != nil {
		return nil, err
	}
	data := &pb.ListSeasonsResponse_Seasons{Board: string(b.ID), NextPageToken: seasonToken(page.Next)}
	if current, err := b.Season.At(s.options.Now()); err == nil {
		data.Current = string(current.ID)
	}
	for i := range page.Seasons {
		data.Seasons = append(data.Seasons, fromSeason(&page.Seasons[i]))
	}
	return &pb.ListSeasonsResponse{Status: success, Data: data}, nil
}

func seasonToken(id leaderboard.SeasonID) string {
	return base64.RawURLEncoding.EncodeToString([]byte(id))
}

func parseSeasonToken(b *leaderboard.Board, token string) (leaderboard.SeasonID, error) {
	if token == "" {
		return "", nil
	}
	id, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		_, err = b.Season.ByID(leaderboard.SeasonID(id))
	}
	if err != nil {
		return "", &leaderboard.FieldError{Field: "page_token", Problem: "must be the next_page_token of an earlier answer for this board"}
	}
	return leaderboard.SeasonID(id), nil
}

// EraseUser deletes all data of a user.
func (s *Server) EraseUser(ctx context.Context, req *pb.EraseUserRequest) (*pb.EraseUserResponse, error) {
	user := leaderboard.UserID(req.GetUserId())
	if err := user.Validate(); err != nil {
		return nil, err
	}
	act := leaderboard.Act{Action: "user.erase", UserHash: user.Digest(), ActDetail: leaderboard.ActDetail{User: user}}
	return &pb.EraseUserResponse{UserId: req.GetUserId(), Erased: true}, s.audit(ctx, act, func(*leaderboard.ActDetail) error { return s.service.Erase(ctx, user) })
}

// ListUserScores returns a user's entries on the boards that the caller may see.
func (s *Server) ListUserScores(ctx context.Context, req *pb.ListUserScoresRequest) (*pb.ListUserScoresResponse, error) {
	method, err := toMethod(req.GetMethod())
	if err != nil {
		return nil, err
	}
	boards, err := s.namedBoards(ctx, req.GetBoards())
	if err != nil {
		return nil, err
	}
	user := leaderboard.UserID(req.GetUserId())
	scores, err := s.service.UserScores(ctx, user, method, boards)
	if err != nil {
		return nil, err
	}
	data := &pb.ListUserScoresResponse_UserScores{UserId: string(user), Method: method.String()}
	if isAdmin(ctx) {
		if err := s.addBans(ctx, user, boards, data); err != nil {
			return nil, err
		}
	}
	for i := range scores {
		sc := &scores[i]
		if !s.sees(ctx, &sc.Board) {
			continue
		}
		data.Scores = append(data.Scores, &pb.ListUserScoresResponse_BoardScore{
			Board: string(sc.Board.ID), Season: string(sc.Season.ID), Score: int64(sc.Score), Rank: rankOrNil(sc.Rank), Total: totalOrNil(&sc.About),
			AchievedAt: protoconv.Timestamp(sc.AchievedAt), AsOf: protoconv.Timestamp(sc.AsOf), Degraded: sc.Degraded, Sealed: sc.Sealed, Filling: trueOrNil(sc.Filling),
			ScoreExact: textOrNil(sc.Exact), ScoredAt: scoredAt(&sc.About), SeasonEnd: protoconv.Timestamp(sc.Season.End), Status: fromLine(&sc.Line).Status,
		})
	}
	return &pb.ListUserScoresResponse{Status: success, Data: data}, nil
}
