package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"

	"google.golang.org/grpc/codes"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/api/auth"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/api/protoconv"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

// CreateKey creates an API key and returns its secret, which the server does not store.
func (s *Server) CreateKey(ctx context.Context, req *pb.CreateKeyRequest) (*pb.CreateKeyResponse, error) {
	expires, err := protoconv.ToTime("expires_at", req.GetExpiresAt())
	if err == nil && !expires.IsZero() && !expires.After(s.options.Now()) {
		err = &leaderboard.FieldError{Field: "expires_at", Problem: "is in the past"}
	}
	boards := make([]leaderboard.BoardID, len(req.GetBoards()))
	for i, id := range req.GetBoards() {
		boards[i] = leaderboard.BoardID(id)
	}
	if err := errors.Join(checkKeyName(req.GetName()), auth.CheckScopes(req.GetScopes()), auth.CheckBoards(boards, req.GetBoardPrefixes()), err); err != nil {
		return nil, err
	}
	secret, key := auth.NewKey(req.GetName(), req.GetScopes(), s.options.Now())
	key.Boards, key.BoardPrefixes, key.Insecure = boards, req.GetBoardPrefixes(), s.options.Insecure
	key.ExpiresAt = leaderboard.Truncate(expires)
	act := leaderboard.Act{Action: "key.create", ActDetail: leaderboard.ActDetail{After: messageJSON(protoconv.FromAPIKey(&key))}}
	if err := s.audit(ctx, act, func(*leaderboard.ActDetail) error { return s.keys.PutAPIKey(ctx, key) }, slog.String("key", key.ID)); err != nil {
		return nil, err
	}
	return &pb.CreateKeyResponse{Secret: string(secret), Key: protoconv.FromAPIKey(&key)}, nil
}

func checkKeyName(name string) error {
	if name == "" {
		return &leaderboard.FieldError{Field: "name", Problem: fmt.Sprintf("is required; it must be 1 to %d bytes of UTF-8", leaderboard.MaxIDBytes)}
	}
	return leaderboard.CheckText("name", name, leaderboard.MaxIDBytes)
}

// ListKeys returns all API keys without their secrets.
func (s *Server) ListKeys(ctx context.Context, _ *pb.ListKeysRequest) (*pb.ListKeysResponse, error) {
	keys, err := s.keys.APIKeys(ctx)
	if err != nil {
		return nil, err
	}
	uses, err := s.keys.APIKeyUses(ctx)
	if err != nil {
		return nil, err
	}
	res := &pb.ListKeysResponse{}
	for i := range keys {
		key := protoconv.FromAPIKey(&keys[i])
		key.LastUsedAt = protoconv.Timestamp(uses[keys[i].ID])
		res.Keys = append(res.Keys, key)
	}
	return res, nil
}

// RevokeKey deletes an API key. Other servers cache the key, and accept it for a few more seconds.
func (s *Server) RevokeKey(ctx context.Context, req *pb.RevokeKeyRequest) (*pb.RevokeKeyResponse, error) {
	s.revokeMu.Lock() // two concurrent calls must not delete the last two admin keys
	defer s.revokeMu.Unlock()
	keys, err := s.keys.APIKeys(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(keys, func(k leaderboard.APIKey) bool { return k.ID == req.GetKeyId() })
	if i < 0 {
		return nil, leaderboard.ErrAPIKeyNotFound
	}
	key := keys[i]
	keepOne := !req.GetForce() && auth.IsAdmin(&key, s.options.Now())
	if keepOne && !s.hasAdmin(slices.Delete(keys, i, i+1)) {
		return nil, errLastAdminKey
	}
	defer s.guard.Forget()
	act := leaderboard.Act{Action: "key.revoke", ActDetail: leaderboard.ActDetail{Before: messageJSON(protoconv.FromAPIKey(&key))}}
	return &pb.RevokeKeyResponse{}, s.audit(ctx, act, func(*leaderboard.ActDetail) error {
		if err := s.keys.DeleteAPIKey(ctx, key.ID); err != nil || !keepOne {
			return err
		}
		return s.restoreIfLast(context.WithoutCancel(ctx), &key)
	}, slog.String("key", key.ID))
}

var errLastAdminKey = newStatus(codes.FailedPrecondition, "this is the last admin key: create another admin key first, or set force; a server that starts without an admin key creates one", errorInfo(pb.Error_LAST_ADMIN_KEY))

// restoreIfLast stores the deleted key again if no admin key is left. Two servers may have deleted
// the last two admin keys concurrently. Each server reads the keys after its own deletion, so the
// last server to read finds no admin key.
func (s *Server) restoreIfLast(ctx context.Context, deleted *leaderboard.APIKey) error {
	keys, err := s.keys.APIKeys(ctx)
	if err != nil || s.hasAdmin(keys) {
		return err
	}
	if err := s.keys.PutAPIKey(ctx, *deleted); err != nil {
		return err
	}
	return errLastAdminKey
}

func (s *Server) hasAdmin(keys []leaderboard.APIKey) bool {
	return slices.ContainsFunc(keys, func(k leaderboard.APIKey) bool { return auth.IsAdmin(&k, s.options.Now()) })
}

// selection returns the seasons that a request selects. An empty season means all seasons, and an
// empty board means all boards. Errors: [leaderboard.ErrBoardNotFound], [leaderboard.ErrSeasonNotFound].
func (s *Server) selection(ctx context.Context, board, season string) (ranking.Selection, error) {
	if season != "" && board == "" {
		return ranking.Selection{}, &leaderboard.FieldError{Field: "board", Problem: "is required with a season"}
	}
	sel := ranking.Selection{Board: leaderboard.BoardID(board), Season: leaderboard.SeasonID(season)}
	return sel, s.service.CheckSelection(ctx, sel)
}

func progress(key leaderboard.SeasonKey, done int64) *pb.Progress {
	return &pb.Progress{Board: string(key.Board), Season: string(key.Season), Done: done}
}

// Verify compares all derived data with the results, and streams the differences.
func (s *Server) Verify(req *pb.VerifyRequest, stream pb.AdminService_VerifyServer) error {
	ctx, send, stop := prepareStream(s, stream, "")
	defer stop()
	sel, err := s.selection(ctx, req.GetBoard(), req.GetSeason())
	if err != nil {
		return err
	}
	var report ranking.VerifyReport
	verify := func() (err error) {
		report, err = s.service.Verify(ctx, sel, req.GetRepair(),
			func(key leaderboard.SeasonKey, done int64) {
				// If the caller has disconnected, ctx is done, so Verify stops.
				_ = send(&pb.VerifyResponse{Progress: progress(key, done)})
			},
			func(d ranking.Difference) error {
				return send(&pb.VerifyResponse{Difference: &pb.VerifyResponse_Difference{
					Kind: string(d.Kind), Board: string(d.Ladder.Board), Season: string(d.Ladder.Season), Division: d.Ladder.Division.String(),
					UserId: string(d.User), Detail: d.Detail, Repaired: d.Repaired,
				}})
			})
		return err
	}
	if req.GetRepair() {
		act := leaderboard.Act{Action: "verify.repair", Board: sel.Board, Season: sel.Season}
		err = s.audit(ctx, act, func(outcome *leaderboard.ActDetail) error {
			err := verify()
			outcome.After = messageJSON(verifySummary(&report))
			return err
		})
	} else {
		err = verify()
	}
	if err != nil {
		return streamError(ctx, err)
	}
	return streamError(ctx, send(&pb.VerifyResponse{Summary: verifySummary(&report)}))
}

func verifySummary(r *ranking.VerifyReport) *pb.VerifyResponse_Summary {
	return &pb.VerifyResponse_Summary{Seasons: r.Seasons, Users: r.Users, Results: r.Results, Differences: r.Differences, Repaired: r.Repaired}
}

// Rebuild computes all derived data from the results, and streams its progress.
func (s *Server) Rebuild(req *pb.RebuildRequest, stream pb.AdminService_RebuildServer) error {
	ctx, send, stop := prepareStream(s, stream, "")
	defer stop()
	sel, err := s.selection(ctx, req.GetBoard(), req.GetSeason())
	if err != nil {
		return err
	}
	var users int64
	act := leaderboard.Act{Action: "rebuild", Board: sel.Board, Season: sel.Season}
	err = s.audit(ctx, act, func(outcome *leaderboard.ActDetail) (err error) {
		users, err = s.service.Rebuild(ctx, sel, func(key leaderboard.SeasonKey, done int64) {
			_ = send(&pb.RebuildResponse{Progress: progress(key, done)})
		})
		outcome.After = messageJSON(&pb.RebuildResponse_Summary{Users: users})
		return err
	})
	if err != nil {
		return streamError(ctx, err)
	}
	return streamError(ctx, send(&pb.RebuildResponse{Summary: &pb.RebuildResponse_Summary{Users: users}}))
}

var backupName = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127}$`)

// Backup copies the store to the backup directory.
func (s *Server) Backup(ctx context.Context, req *pb.BackupRequest) (*pb.BackupResponse, error) {
	name := req.GetName()
	if name == "" {
		name = s.options.Now().UTC().Format("20060102T150405Z")
	}
	switch {
	case !backupName.MatchString(name):
		return nil, &leaderboard.FieldError{Field: "name", Problem: "must be 1 to 128 letters, digits, dots, dashes and underscores, and must not begin with a dot"}
	case s.options.Backup == nil:
		return nil, fmt.Errorf("the distributed engine cannot make backups; take snapshots of Cassandra instead: %w", errors.ErrUnsupported)
	}
	if s.options.CheckBackup != nil {
		if err := s.options.CheckBackup(name); err != nil {
			return nil, err
		}
	}
	after := messageJSON(&pb.BackupResponse{Name: name})
	act := leaderboard.Act{Action: "backup", ActDetail: leaderboard.ActDetail{Reason: name, After: after}}
	return &pb.BackupResponse{Name: name}, s.audit(ctx, act, func(*leaderboard.ActDetail) error { return s.options.Backup(ctx, name) }, slog.String("backup", name))
}

// ExportResults streams the results of a board and, on request, its void matches, its bans, the
// seasons that ended early and the final standings.
func (s *Server) ExportResults(req *pb.ExportResultsRequest, stream pb.AdminService_ExportResultsServer) error {
	ctx, send, stop := prepareStream(s, stream, "")
	defer stop()
	b, err := s.board(ctx, leaderboard.BoardID(req.GetBoard()))
	if err != nil {
		return err
	}
	sel := ranking.Selection{Board: b.ID, Season: leaderboard.SeasonID(req.GetSeason())}
	err = s.service.Export(ctx, sel, req.GetIncludeEnds(), func(r leaderboard.MatchResult) error {
		return send(&pb.ExportResultsResponse{Season: string(r.Season), Result: protoconv.FromResult(&b, &r), Retracted: r.Retracted})
	})
	if err == nil && req.GetIncludeProfiles() {
		err = s.service.ExportProfiles(ctx, sel, func(p *leaderboard.Profile) error {
			return send(&pb.ExportResultsResponse{Profile: protoconv.FromProfile(p)})
		})
	}
	if err == nil && req.GetIncludeVoids() {
		err = s.service.ExportVoids(ctx, sel, func(m leaderboard.MatchState) error {
			return send(&pb.ExportResultsResponse{Void: &pb.ExportResultsResponse_Void{Season: string(m.Season), MatchId: string(m.Match), Reason: m.Reason}})
		})
	}
	if err == nil && req.GetIncludeEnds() {
		err = s.service.ExportEnds(ctx, b.ID, sel.Season, func(e leaderboard.EarlyEnd) error {
			return send(&pb.ExportResultsResponse{End: &pb.ExportResultsResponse_End{
				Season: string(e.ID), At: protoconv.Timestamp(e.At), DecidedAt: protoconv.Timestamp(e.DecidedAt),
			}})
		})
	}
	if err == nil && req.GetIncludeBans() {
		err = s.service.ExportBans(ctx, b.ID, func(ban leaderboard.Ban) error {
			return send(&pb.ExportResultsResponse{Ban: protoconv.FromBan(&ban)})
		})
	}
	if err == nil && req.GetIncludeStandings() {
		err = s.service.ExportStandings(ctx, sel, func(l *ranking.FinalLine) error { return send(fromFinalLine(l)) })
	}
	return streamError(ctx, err)
}

func fromFinalLine(l *ranking.FinalLine) *pb.ExportResultsResponse {
	st := &pb.ExportResultsResponse_Standing{
		Season: string(l.Season), Division: l.Division.String(), Entry: fromLine(&l.Line), Position: l.Ranks.Ordinal,
	}
	if l.Finish == leaderboard.Ranked {
		st.DenseRank = &l.Ranks.Dense
	}
	return &pb.ExportResultsResponse{Standing: st}
}
