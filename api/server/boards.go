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

// reach states which boards a call of a method concerns.
type reach int8

const (
	// everyBoard: the call concerns all boards. A key that is bound to boards may not
	// make such a call. A method without an entry in the variable reaches has this reach.
	everyBoard reach = iota
	// seenBoards: the answer leaves out the boards that the caller may not see.
	seenBoards
	// oneBoard: the call concerns the board that the request names. If the request names
	// no board, the call concerns the default board.
	oneBoard
	// givenBoard: the call concerns the board that the request names. If the request
	// names no board, the call concerns all boards.
	givenBoard
	// resultBoards: the call concerns the boards that the results of the request name. A
	// result that names no board is of the default board.
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

// boardsOf returns the boards that a request concerns, each once. The id "" means all
// boards. r is the reach of the request's method.
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

// boardOf returns the board that a request concerns, or "" if it concerns all boards. r
// is the reach of the request's method.
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

// checkBoards returns an error if the caller may not call a method for a board of the
// request. If the caller's key is bound to other boards, the error is an
// [auth.BoardError]. If the caller may not see the board, the error is the same as for a
// board that does not exist.
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

// checkBoard does the work of checkBoards for one board. If it reads the board, it sets
// a.board.
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

// seesAll reports whether a caller may see private boards.
func (s *Server) seesAll(a *admission) bool { return s.options.Insecure || !a.anonymous() }

// publicBoard returns a board. Errors: [leaderboard.ErrBoardNotFound] if the board is private
// or does not exist. It must run before the handler: the handler would check the rest of the
// request first, and its errors would show that a private board exists.
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

// resolvedBoard returns a board if checkBoards has read it for the call of ctx, and otherwise nil.
func resolvedBoard(ctx context.Context, id leaderboard.BoardID) *leaderboard.Board {
	if a := admissionFrom(ctx); a != nil && a.board != nil && a.board.ID == id {
		return a.board
	}
	return nil
}

// board returns a board that the request names.
func (s *Server) board(ctx context.Context, id leaderboard.BoardID) (leaderboard.Board, error) {
	if b := resolvedBoard(ctx, id); b != nil {
		return *b, nil
	}
	return s.service.Board(ctx, id)
}

// allows reports whether the caller's key may be used for a board.
func allows(ctx context.Context, id leaderboard.BoardID) bool {
	a := admissionFrom(ctx)
	return a == nil || a.caller.Bound.Allows(id)
}

// sees reports whether the caller may see a board.
func (s *Server) sees(ctx context.Context, b *leaderboard.Board) bool {
	a := admissionFrom(ctx)
	return allows(ctx, b.ID) && (!b.Private || a == nil || s.seesAll(a))
}

// boardRegistrar registers services. It wraps their streams, so that checkBoards checks
// each message that a stream receives. For unary calls, an interceptor calls checkBoards.
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

// boardStream is a stream that checks the board of each message that it receives.
type boardStream struct {
	grpc.ServerStream
	api    *Server
	method string
}

// RecvMsg receives a message, and returns an error if checkBoards refuses it.
func (s boardStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return s.api.checkBoards(s.Context(), s.method, m)
}
