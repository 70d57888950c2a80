package api

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"unicode"
	"unicode/utf8"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/internal/wire"
)

func (s *Server) CreateKey(ctx context.Context, req *pb.CreateKeyRequest) (*pb.CreateKeyResponse, error) {
	expires, err := wire.ToTime("expires_at", req.GetExpiresAt())
	if err := errors.Join(checkKeyName(req.GetName()), checkScopes(req.GetScopes()), err); err != nil {
		return nil, err
	}
	secret, key := NewKey(req.GetName(), req.GetScopes(), s.options.Now())
	key.ExpiresAt = leaderboard.Truncate(expires)
	if expires.IsZero() {
		key.ExpiresAt = expires
	}
	if err := s.keys.PutAPIKey(ctx, key); err != nil {
		return nil, err
	}
	return &pb.CreateKeyResponse{Secret: string(secret), Key: fromKey(&key)}, nil
}

func checkKeyName(name string) error {
	printable := utf8.ValidString(name)
	for _, r := range name {
		printable = printable && unicode.IsPrint(r)
	}
	if !printable || name == "" || len(name) > leaderboard.MaxIDBytes {
		return &leaderboard.FieldError{Field: "name", Problem: fmt.Sprintf("is not 1 to %d bytes of printable UTF-8", leaderboard.MaxIDBytes)}
	}
	return nil
}

func fromKey(k *leaderboard.APIKey) *pb.Key {
	return &pb.Key{KeyId: k.ID, Name: k.Name, Scopes: k.Scopes, CreatedAt: wire.Timestamp(k.CreatedAt), ExpiresAt: wire.Timestamp(k.ExpiresAt)}
}

func (s *Server) ListKeys(ctx context.Context, _ *pb.ListKeysRequest) (*pb.ListKeysResponse, error) {
	keys, err := s.keys.APIKeys(ctx)
	if err != nil {
		return nil, err
	}
	res := &pb.ListKeysResponse{}
	for i := range keys {
		res.Keys = append(res.Keys, fromKey(&keys[i]))
	}
	return res, nil
}

func (s *Server) RevokeKey(ctx context.Context, req *pb.RevokeKeyRequest) (*pb.RevokeKeyResponse, error) {
	defer s.guard.forget()
	return &pb.RevokeKeyResponse{}, s.keys.DeleteAPIKey(ctx, req.GetKeyId())
}

// selection checks that a season is of a board.
func selection(board, season string) (ranking.Selection, error) {
	if season != "" && board == "" {
		return ranking.Selection{}, &leaderboard.FieldError{Field: "board", Problem: "is required with a season"}
	}
	return ranking.Selection{Board: leaderboard.BoardID(board), Season: leaderboard.SeasonID(season)}, nil
}

func progress(scope leaderboard.Scope, done int64) *pb.Progress {
	return &pb.Progress{Board: string(scope.Board), Season: string(scope.Season), Done: done}
}

func (s *Server) Verify(req *pb.VerifyRequest, stream pb.AdminService_VerifyServer) error {
	sel, err := selection(req.GetBoard(), req.GetSeason())
	if err != nil {
		return err
	}
	ctx, cancel := s.streaming(stream.Context())
	defer cancel()
	report, err := s.service.Verify(ctx, sel, req.GetRepair(),
		func(scope leaderboard.Scope, done int64) {
			_ = stream.Send(&pb.VerifyResponse{Progress: progress(scope, done)}) // a caller who is gone ends ctx
		},
		func(d ranking.Difference) error {
			return stream.Send(&pb.VerifyResponse{Difference: &pb.VerifyResponse_Difference{
				Kind: string(d.Kind), Board: string(d.Ladder.Board), Season: string(d.Ladder.Season), Division: d.Ladder.Division.String(),
				UserId: string(d.User), Detail: d.Detail, Repaired: d.Repaired,
			}})
		})
	if err != nil {
		return ended(ctx, err)
	}
	return stream.Send(&pb.VerifyResponse{Summary: &pb.VerifyResponse_Summary{
		Seasons: report.Scopes, Users: report.Users, Results: report.Results, Differences: report.Differences, Repaired: report.Repaired,
	}})
}

func (s *Server) Rebuild(req *pb.RebuildRequest, stream pb.AdminService_RebuildServer) error {
	sel, err := selection(req.GetBoard(), req.GetSeason())
	if err != nil {
		return err
	}
	ctx, cancel := s.streaming(stream.Context())
	defer cancel()
	users, err := s.service.Rebuild(ctx, sel, func(scope leaderboard.Scope, done int64) {
		_ = stream.Send(&pb.RebuildResponse{Progress: progress(scope, done)}) // a caller who is gone ends ctx
	})
	if err != nil {
		return ended(ctx, err)
	}
	return stream.Send(&pb.RebuildResponse{Summary: &pb.RebuildResponse_Summary{Users: users}})
}

// backupName is a plain file name that cannot lead out of a directory.
var backupName = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127}$`)

func (s *Server) Backup(ctx context.Context, req *pb.BackupRequest) (*pb.BackupResponse, error) {
	name := req.GetName()
	if name == "" {
		name = s.options.Now().UTC().Format("20060102T150405Z")
	}
	switch {
	case !backupName.MatchString(name):
		return nil, &leaderboard.FieldError{Field: "name", Problem: "is not 1 to 128 letters, digits, dots, dashes and underscores, the first no dot"}
	case s.options.Backup == nil:
		return nil, fmt.Errorf("this server's store is backed up by its own means: %w", errors.ErrUnsupported)
	}
	return &pb.BackupResponse{Name: name}, s.options.Backup(ctx, name)
}

func (s *Server) ExportResults(req *pb.ExportResultsRequest, stream pb.AdminService_ExportResultsServer) error {
	ctx, cancel := s.streaming(stream.Context())
	defer cancel()
	b, err := s.service.Board(ctx, boardID(req.GetBoard()))
	if err != nil {
		return err
	}
	err = s.service.Export(ctx, ranking.Selection{Board: b.ID, Season: leaderboard.SeasonID(req.GetSeason())}, func(r leaderboard.MatchResult) error {
		return stream.Send(&pb.ExportResultsResponse{Season: string(r.Season), Result: wire.FromResult(&b, &r), Retracted: r.Retracted})
	})
	return ended(ctx, err)
}
