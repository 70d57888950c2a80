package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"google.golang.org/grpc"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/api/auth"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

// boardsOf returns the boards that a request concerns, each once. "" means all boards.
func boardsOf(r pb.Door_Reach, req any) []leaderboard.BoardID {
	if r != pb.Door_RESULT_BOARDS {
		return []leaderboard.BoardID{boardOf(r, req)}
	}
	var ids []leaderboard.BoardID
	if req, ok := req.(interface{ GetResults() []*pb.Result }); ok {
		for _, result := range req.GetResults() {
			if id := result.GetBoardId(); id != "" { // BatchSubmitResults rejects the other results
				ids = append(ids, leaderboard.BoardID(id))
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func boardOf(r pb.Door_Reach, req any) leaderboard.BoardID {
	name := ""
	switch req := req.(type) {
	case interface{ GetBoard() string }:
		name = req.GetBoard()
	case interface{ GetBoard() *pb.Board }:
		name = req.GetBoard().GetBoardId()
	}
	if r == pb.Door_DEFAULT_BOARD {
		return boardID(name)
	}
	return leaderboard.BoardID(name)
}

// checkBoards checks that the caller may call a method for the boards of the request. Errors: a
// [leaderboard.FieldError] if the request must name a board and does not; [auth.BoardError] if the
// caller's key is for other boards; [leaderboard.ErrBoardNotFound] if the caller may not see a board.
func (s *Server) checkBoards(ctx context.Context, d *door, req any) error {
	a := admissionFrom(ctx)
	if a == nil || d.scope == auth.Public || d.reach == pb.Door_SEEN_BOARDS {
		return nil
	}
	for _, id := range boardsOf(d.reach, req) {
		if _, creates := req.(*pb.CreateBoardRequest); creates && id == "" {
			continue // CreateBoard reports all faults of the board
		}
		if id == "" && d.reach == pb.Door_ONE_BOARD {
			return &leaderboard.FieldError{Field: boardField(req), Problem: "is required"}
		}
		if err := s.checkBoard(ctx, a, d.reach, id); err != nil {
			return err
		}
	}
	return nil
}

// checkBoard checks one board. If checkBoard reads the board, it sets a.board.
func (s *Server) checkBoard(ctx context.Context, a *admission, r pb.Door_Reach, id leaderboard.BoardID) error {
	if bound := a.caller.Bound; !bound.AllBoards() && (r == pb.Door_EVERY_BOARD || id == "" || !bound.Allows(id)) {
		if r == pb.Door_EVERY_BOARD {
			id = ""
		}
		return &auth.BoardError{Board: id}
	}
	if s.seesAll(a) || r == pb.Door_EVERY_BOARD || id == "" {
		return nil
	}
	b, err := s.publicBoard(ctx, id)
	a.board = b
	return err
}

const maxNamedBoards = 100

// namedBoards checks the boards in a list of the request, as checkBoards checks the board of a request.
func (s *Server) namedBoards(ctx context.Context, names []string) ([]leaderboard.BoardID, error) {
	if len(names) > maxNamedBoards {
		return nil, &leaderboard.FieldError{Field: "boards", Problem: fmt.Sprintf("%d given, at most %d are allowed", len(names), maxNamedBoards)}
	}
	boards := make([]leaderboard.BoardID, len(names))
	for i, name := range names {
		boards[i] = leaderboard.BoardID(name)
		if name == "" {
			return nil, &leaderboard.FieldError{Field: fmt.Sprintf("boards[%d]", i), Problem: "is empty; name a board"}
		}
		if a := admissionFrom(ctx); a != nil {
			if err := s.checkBoard(ctx, a, pb.Door_ONE_BOARD, boards[i]); err != nil {
				return nil, err
			}
		}
		if _, err := s.board(ctx, boards[i]); err != nil {
			return nil, err
		}
	}
	return boards, nil
}

func boardField(req any) string {
	if _, ok := req.(interface{ GetBoard() *pb.Board }); ok {
		return "board_id"
	}
	return "board"
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

// sees reports whether the caller may know that b exists. An answer may name a board that the request
// does not name only if sees is true.
func (s *Server) sees(ctx context.Context, b *leaderboard.Board) bool {
	a := admissionFrom(ctx)
	return a == nil || a.caller.Bound.Allows(b.ID) && (!b.Private || s.seesAll(a))
}

// seesID is sees for the board with an id.
func (s *Server) seesID(ctx context.Context, id leaderboard.BoardID) bool {
	b := leaderboard.Board{ID: id}
	if a := admissionFrom(ctx); a != nil && !s.seesAll(a) { // sees needs Private
		var err error
		if b, err = s.board(ctx, id); err != nil {
			return false
		}
	}
	return s.sees(ctx, &b)
}

// reveal adds the ids of the boards that the caller may see to the problems of the FieldErrors in err.
func (s *Server) reveal(ctx context.Context, err error) error {
	fields := fieldErrors(err)
	if !slices.ContainsFunc(fields, func(f *leaderboard.FieldError) bool { return len(f.Boards) > 0 }) {
		return err
	}
	revealed := make([]error, len(fields))
	for i, f := range fields {
		problem, separator := f.Problem, ": "
		for _, id := range f.Boards {
			if s.seesID(ctx, id) {
				problem += separator + strconv.Quote(string(id))
				separator = ", "
			}
		}
		revealed[i] = &leaderboard.FieldError{Field: f.Field, Problem: problem}
	}
	return errors.Join(revealed...)
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
		handler, d := m.Handler, doorOf("/"+desc.ServiceName+"/"+m.StreamName)
		m.Handler = func(srv any, ss grpc.ServerStream) error {
			return handler(srv, boardStream{ss, r.api, d})
		}
		wrapped.Streams = append(wrapped.Streams, m)
	}
	r.ServiceRegistrar.RegisterService(&wrapped, impl)
}

type boardStream struct {
	grpc.ServerStream
	api  *Server
	door *door
}

func (s boardStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return s.api.checkBoards(s.Context(), s.door, m)
}
