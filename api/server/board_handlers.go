package server

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/api/auth"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/api/protoconv"
	"github.com/open-leaderboard/leaderboard/api/restjson"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

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
	b, err := s.board(ctx, leaderboard.BoardID(req.GetBoard()))
	if err != nil {
		return nil, err
	}
	return &pb.GetBoardResponse{Board: s.fromBoard(ctx, &b)}, nil
}

// fromBoard omits the source and the linked boards that the caller may not see.
func (s *Server) fromBoard(ctx context.Context, b *leaderboard.Board) *pb.Board {
	board := protoconv.FromBoard(b)
	hidden := func(id string) bool {
		other, err := s.service.Board(ctx, leaderboard.BoardID(id))
		return err != nil || !s.sees(ctx, &other)
	}
	board.LinkedBoards = slices.DeleteFunc(board.LinkedBoards, hidden)
	if board.Source != nil && hidden(board.Source.BoardId) {
		board.Source = nil
	}
	return board
}

// boardObject returns a board as JSON for the audit log.
func boardObject(b *leaderboard.Board) string { return messageJSON(protoconv.FromBoard(b)) }

// visibleObject removes the source and the linked boards that the caller may not see from an object
// of the audit log.
func (s *Server) visibleObject(ctx context.Context, object *structpb.Struct) *structpb.Struct {
	fields := object.GetFields()
	hidden := func(id *structpb.Value) bool { return !s.seesID(ctx, leaderboard.BoardID(id.GetStringValue())) }
	if source := fields["source"].GetStructValue(); source != nil && hidden(source.GetFields()["board_id"]) {
		delete(fields, "source")
	}
	if linked := fields["linked_boards"].GetListValue(); linked != nil {
		linked.Values = slices.DeleteFunc(linked.Values, hidden)
	}
	return object
}

// CreateBoard creates a board. Creating the same board again changes nothing.
func (s *Server) CreateBoard(ctx context.Context, req *pb.CreateBoardRequest) (*pb.CreateBoardResponse, error) {
	b, err := protoconv.ToBoard(req.GetBoard())
	if err == nil && b.Validate() == nil { // s.service.CreateBoard returns the error of Validate
		err = b.ValidateNew()
	}
	if err != nil {
		return nil, err
	}
	if b.Source != nil && !s.seesID(ctx, b.Source.Board) {
		return nil, &auth.BoardError{Board: b.Source.Board}
	}
	b.StrictSubmits = true
	stored, err := s.service.CheckNewBoard(ctx, b)
	if err != nil {
		return nil, err
	}
	act := leaderboard.Act{Action: "board.create", Board: b.ID, ActDetail: leaderboard.ActDetail{After: boardObject(&b)}}
	if stored != nil {
		act.Before = boardObject(stored)
	}
	if err := s.audit(ctx, act, func(outcome *leaderboard.ActDetail) (err error) {
		b, err = s.service.CreateBoard(ctx, b)
		outcome.After = boardObject(&b)
		return err
	}); err != nil {
		return nil, err
	}
	return &pb.CreateBoardResponse{Board: s.fromBoard(ctx, &b)}, nil
}

// UpdateBoard changes the mutable fields of a board.
func (s *Server) UpdateBoard(ctx context.Context, req *pb.UpdateBoardRequest) (*pb.UpdateBoardResponse, error) {
	change := func(b *leaderboard.Board) error {
		message := protoconv.FromBoard(b)
		if err := applyMask(message.ProtoReflect(), req.GetBoard().ProtoReflect(), req.GetUpdateMask().GetPaths()); err != nil {
			return err
		}
		amended, err := protoconv.ToBoard(message)
		amended.CreatedAt, amended.Links, amended.FillDue, amended.Season.Ends = b.CreatedAt, b.Links, b.FillDue, b.Season.Ends
		amended.Rolling, amended.StrictSubmits = b.Rolling, b.StrictSubmits
		amended.Unfilled, amended.RecountDue, amended.UnfilledMatches = b.Unfilled, b.RecountDue, b.UnfilledMatches
		*b = amended
		return err
	}
	id := leaderboard.BoardID(req.GetBoard().GetBoardId())
	if req.GetDryRun() {
		p, err := s.service.PreviewAmendment(ctx, id, change)
		if err != nil {
			return nil, err
		}
		return &pb.UpdateBoardResponse{Board: s.fromBoardPreview(ctx, &p)}, nil
	}
	before, b, err := s.service.CheckAmendment(ctx, id, change)
	if err != nil {
		return nil, err
	}
	act := leaderboard.Act{Action: "board.update", Board: b.ID, ActDetail: leaderboard.ActDetail{Before: boardObject(&before), After: boardObject(&b)}}
	if err := s.audit(ctx, act, func(outcome *leaderboard.ActDetail) (err error) {
		b, err = s.service.AmendBoard(ctx, act.Board, func(b *leaderboard.Board) error {
			outcome.Before = boardObject(b)
			return change(b)
		})
		outcome.After = boardObject(&b)
		return err
	}); err != nil {
		return nil, err
	}
	return &pb.UpdateBoardResponse{Board: s.fromBoard(ctx, &b)}, nil
}

func (s *Server) fromBoardPreview(ctx context.Context, p *ranking.BoardPreview) *pb.Board {
	b := s.fromBoard(ctx, &p.Board)
	b.Effect = &pb.BoardEffect{Truncated: p.Truncated, ChangedCount: int64(p.Changed), RemovedCount: int64(p.Removed), LosesDense: p.LosesDense,
		AsOf: protoconv.Timestamp(p.AsOf)}
	for i := range p.Seasons {
		e := &p.Seasons[i]
		b.Effect.Seasons = append(b.Effect.Seasons, &pb.BoardEffect_Season{
			Id: string(e.ID), Added: e.Added, ClosesBefore: protoconv.Timestamp(e.ClosesBefore), ClosesAfter: protoconv.Timestamp(e.ClosesAfter),
			RemovedBefore: protoconv.Timestamp(e.RemovedBefore), RemovedAfter: protoconv.Timestamp(e.RemovedAfter), RemovedNext: e.RemovedNext, Entrants: e.Total,
		})
	}
	return b
}

// applyMask copies the fields in paths from src to dst. Without paths, it copies all fields that
// src has.
func applyMask(dst, src protoreflect.Message, paths []string) error {
	// namesField reports whether the request names a field to change. For the body {}, the
	// gateway sends the single path "".
	namesField := len(paths) > 0 && paths[0] != ""
	if len(paths) == 0 {
		src.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			namesField = namesField || fd.Name() != "board_id"
			dst.Set(fd, v)
			return true
		})
	}
	if !namesField {
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

// DeleteBoard deletes a board and its results.
func (s *Server) DeleteBoard(ctx context.Context, req *pb.DeleteBoardRequest) (*pb.DeleteBoardResponse, error) {
	id := leaderboard.BoardID(req.GetBoard())
	if err := id.Validate(); err != nil {
		return nil, err
	}
	if id == leaderboard.DefaultBoard {
		return nil, &leaderboard.FieldError{Field: "board", Problem: "is the default board and cannot be deleted, because requests that name no board use it"}
	}
	b, err := s.service.CheckDeletion(ctx, id)
	if err != nil {
		return nil, err
	}
	act := leaderboard.Act{Action: "board.delete", Board: id, ActDetail: leaderboard.ActDetail{Before: boardObject(&b)}}
	return &pb.DeleteBoardResponse{}, s.audit(ctx, act, func(*leaderboard.ActDetail) error { return s.service.DeleteBoard(ctx, id) })
}
