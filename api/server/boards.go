package server

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/grpc"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/api/auth"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

// reach is the set of boards that the calls of a method concern.
type reach int8

const (
	// everyBoard: all boards. A key for some boards only may not make the call. Methods without an
	// entry in reaches have this reach.
	everyBoard reach = iota
	// seenBoards: checkBoards checks no board, and the handler lists only boards that the caller may
	// see.
	seenBoards
	// oneBoard: the board that the request names, or the default board.
	oneBoard
	// givenBoard: the board that the request names, or all boards.
	givenBoard
	// resultBoards: the boards that the results name. A result that names no board is for the
	// default board.
	resultBoards
)

var reaches = map[string]reach{
	pb.LeaderboardService_SubmitScore_FullMethodName:         oneBoard,
	pb.LeaderboardService_BatchSubmitScores_FullMethodName:   oneBoard,
	pb.LeaderboardService_BatchSubmitResults_FullMethodName:  resultBoards,
	pb.LeaderboardService_RetractResult_FullMethodName:       oneBoard,
	pb.LeaderboardService_BatchRetractResults_FullMethodName: oneBoard,
	pb.LeaderboardService_PurgeResults_FullMethodName:        oneBoard,
	pb.LeaderboardService_VoidMatch_FullMethodName:           oneBoard,
	pb.LeaderboardService_RestoreMatch_FullMethodName:        oneBoard,
	pb.LeaderboardService_CorrectResult_FullMethodName:       oneBoard,
	pb.LeaderboardService_GetResult_FullMethodName:           oneBoard,
	pb.LeaderboardService_ListUserResults_FullMethodName:     oneBoard,
	pb.LeaderboardService_ListScores_FullMethodName:          oneBoard,
	pb.LeaderboardService_GetUserScore_FullMethodName:        oneBoard,
	pb.LeaderboardService_LookupScores_FullMethodName:        oneBoard,
	pb.LeaderboardService_GetStats_FullMethodName:            oneBoard,
	pb.LeaderboardService_ListSeasons_FullMethodName:         oneBoard,
	pb.LeaderboardService_WatchScores_FullMethodName:         oneBoard,
	pb.LeaderboardService_ListBoards_FullMethodName:          seenBoards,
	pb.LeaderboardService_GetBoard_FullMethodName:            oneBoard,
	pb.LeaderboardService_CreateBoard_FullMethodName:         oneBoard,
	pb.LeaderboardService_UpdateBoard_FullMethodName:         oneBoard,
	pb.LeaderboardService_DeleteBoard_FullMethodName:         oneBoard,
	pb.LeaderboardService_ListUserScores_FullMethodName:      seenBoards,
	pb.LeaderboardService_GetSeason_FullMethodName:           oneBoard,
	pb.LeaderboardService_EndSeason_FullMethodName:           oneBoard,

	pb.LeaderboardService_BanUser_FullMethodName:   givenBoard,
	pb.LeaderboardService_UnbanUser_FullMethodName: givenBoard,

	pb.AdminService_ListBans_FullMethodName:      givenBoard,
	pb.AdminService_ListActs_FullMethodName:      givenBoard,
	pb.AdminService_Verify_FullMethodName:        givenBoard,
	pb.AdminService_Rebuild_FullMethodName:       givenBoard,
	pb.AdminService_ExportResults_FullMethodName: oneBoard,
}

// boardsOf returns the boards that a request concerns, each once. "" means all boards.
func boardsOf(r reach, req any) []leaderboard.BoardID {
	if r != resultBoards {
		return []leaderboard.BoardID{boardOf(r, req)}
	}
	var ids []leaderboard.BoardID
	if req, ok := req.(interface{ GetResults() []*pb.Result }); ok {
		for _, result := range req.GetResults() {
			ids = append(ids, boardID(result.GetBoardId()))
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func boardOf(r reach, req any) leaderboard.BoardID {
	name := ""
	switch req := req.(type) {
	case interface{ GetBoard() string }:
		name = req.GetBoard()
	case interface{ GetBoard() *pb.Board }:
		name = req.GetBoard().GetBoardId()
	}
	if r == oneBoard {
		return boardID(name)
	}
	return leaderboard.BoardID(name)
}

// checkBoards checks that the caller may call a method for the boards of the request. Errors:
// [auth.BoardError] if the caller's key is for other boards; [leaderboard.ErrBoardNotFound] if the
// caller may not see a board.
func (s *Server) checkBoards(ctx context.Context, method string, req any) error {
	a := admissionFrom(ctx)
	if a == nil || scopeOf(method) == auth.Public {
		return nil
	}
	r := reaches[method]
	if r == seenBoards {
		return nil
	}
	for _, id := range boardsOf(r, req) {
		if err := s.checkBoard(ctx, a, r, id); err != nil {
			return err
		}
	}
	return nil
}

// checkBoard checks one board. If checkBoard reads the board, it sets a.board.
func (s *Server) checkBoard(ctx context.Context, a *admission, r reach, id leaderboard.BoardID) error {
	if bound := a.caller.Bound; !bound.AllBoards() && (r == everyBoard || id == "" || !bound.Allows(id)) {
		if r == everyBoard {
			id = ""
		}
		return &auth.BoardError{Board: id}
	}
	if s.seesAll(a) || r == everyBoard || id == "" {
		return nil
	}
	b, err := s.publicBoard(ctx, id)
	a.board = b
	return err
}

func (s *Server) seesAll(a *admission) bool { return s.options.Insecure || !a.anonymous() }

// publicBoard returns a board. Errors: [leaderboard.ErrBoardNotFound] if the board is private or
// unknown. publicBoard must run before the handler, because errors of the handler show that a
// private board exists.
func (s *Server) publicBoard(ctx context.Context, id leaderboard.BoardID) (*leaderboard.Board, error) {
	b, err := s.service.Board(ctx, id)
	if err == nil && b.Private {
		err = fmt.Errorf("server: board %q is private: %w", id, leaderboard.ErrBoardNotFound)
	}
	if err != nil {
		return nil, err
	}
	return &b, nil
}

func resolvedBoard(ctx context.Context, id leaderboard.BoardID) *leaderboard.Board {
	if a := admissionFrom(ctx); a != nil && a.board != nil && a.board.ID == id {
		return a.board
	}
	return nil
}

func (s *Server) board(ctx context.Context, id leaderboard.BoardID) (leaderboard.Board, error) {
	if b := resolvedBoard(ctx, id); b != nil {
		return *b, nil
	}
	return s.service.Board(ctx, id)
}

func allows(ctx context.Context, id leaderboard.BoardID) bool {
	a := admissionFrom(ctx)
	return a == nil || a.caller.Bound.Allows(id)
}

func (s *Server) sees(ctx context.Context, b *leaderboard.Board) bool {
	a := admissionFrom(ctx)
	return allows(ctx, b.ID) && (!b.Private || a == nil || s.seesAll(a))
}

// boardRegistrar registers services whose streams check the boards of each message. An interceptor
// checks the unary calls.
type boardRegistrar struct {
	grpc.ServiceRegistrar
	api *Server
}

func (r boardRegistrar) RegisterService(desc *grpc.ServiceDesc, impl any) {
	wrapped := *desc
	wrapped.Streams = nil
	for _, m := range desc.Streams {
		handler, method := m.Handler, "/"+desc.ServiceName+"/"+m.StreamName
		m.Handler = func(srv any, ss grpc.ServerStream) error {
			return handler(srv, boardStream{ss, r.api, method})
		}
		wrapped.Streams = append(wrapped.Streams, m)
	}
	r.ServiceRegistrar.RegisterService(&wrapped, impl)
}

type boardStream struct {
	grpc.ServerStream
	api    *Server
	method string
}

func (s boardStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return s.api.checkBoards(s.Context(), s.method, m)
}
