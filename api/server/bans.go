package server

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/api/auth"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/api/protoconv"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

const reasonBanned = "USER_BANNED"

func actor(ctx context.Context) string {
	if a := admissionFrom(ctx); a != nil {
		return a.caller.ID
	}
	return ""
}

func isAdmin(ctx context.Context) bool {
	a := admissionFrom(ctx)
	return a != nil && a.caller.Scope >= auth.Admin
}

// BanUser hides a user on a board, or on every board.
func (s *Server) BanUser(ctx context.Context, req *pb.BanUserRequest) (*pb.BanUserResponse, error) {
	until, err := protoconv.ToTime("until", req.GetUntil())
	if err != nil {
		return nil, err
	}
	ban, effect, err := s.setBan(ctx, req.GetDryRun(), leaderboard.Ban{
		User: leaderboard.UserID(req.GetUserId()), Board: leaderboard.BoardID(req.GetBoard()), Banned: true,
		Reason: req.GetReason(), Actor: actor(ctx), Until: until,
	})
	if err != nil {
		return nil, err
	}
	return &pb.BanUserResponse{UserId: req.GetUserId(), Banned: ban.Banned, Ban: protoconv.FromBan(&ban), Effect: effect}, nil
}

// UnbanUser lifts a ban.
func (s *Server) UnbanUser(ctx context.Context, req *pb.UnbanUserRequest) (*pb.UnbanUserResponse, error) {
	ban, effect, err := s.setBan(ctx, req.GetDryRun(), leaderboard.Ban{
		User: leaderboard.UserID(req.GetUserId()), Board: leaderboard.BoardID(req.GetBoard()), Reason: req.GetReason(), Actor: actor(ctx),
	})
	if err != nil {
		return nil, err
	}
	res := &pb.UnbanUserResponse{UserId: req.GetUserId(), Banned: ban.Banned, Effect: effect}
	if ban.Revision != 0 { // 0 means that the store has no state of this ban
		res.Ban = protoconv.FromBan(&ban)
	}
	return res, nil
}

// setBan writes a ban with a record in the audit log, and returns the stored state. A dry run
// writes nothing, and also returns the effect.
func (s *Server) setBan(ctx context.Context, dryRun bool, ban leaderboard.Ban) (leaderboard.Ban, *pb.BanEffect, error) {
	if dryRun {
		preview, err := s.service.PreviewBan(ctx, ban)
		return preview.Ban, s.fromBanPreview(ctx, &preview), err
	}
	before, err := s.service.CheckBan(ctx, &ban)
	if err != nil {
		return leaderboard.Ban{}, nil, err
	}
	act := leaderboard.Act{Action: "unban", Board: ban.Board, ActDetail: leaderboard.ActDetail{User: ban.User, Reason: ban.Reason}}
	if ban.Banned {
		act.Action = "ban"
	}
	act.Before = banObject(&before)
	act.After = messageJSON(&pb.Ban{
		UserId: string(ban.User), Board: string(ban.Board), Banned: ban.Banned, Reason: ban.Reason, Actor: ban.Actor, Until: protoconv.Timestamp(ban.Until),
	})
	err = s.audit(ctx, act, func(outcome *leaderboard.ActDetail) error {
		ban, err = s.service.SetBan(ctx, ban)
		outcome.After = banObject(&ban)
		return err
	})
	return ban, nil, err
}

// banObject returns a ban as JSON for the audit log, or "" if the store has no state of the ban.
func banObject(b *leaderboard.Ban) string {
	if b.Revision == 0 {
		return ""
	}
	return messageJSON(protoconv.FromBan(b))
}

// fromBanPreview omits the boards that the caller may not see.
func (s *Server) fromBanPreview(ctx context.Context, p *ranking.BanPreview) *pb.BanEffect {
	effect := &pb.BanEffect{Degraded: p.Degraded, Method: leaderboard.Competition.String(), AsOf: protoconv.Timestamp(p.AsOf)}
	for board, seasons := range p.Seasons {
		if s.seesID(ctx, board) {
			effect.BoardCount++
			effect.SeasonCount += int64(seasons)
		}
	}
	for i := range p.Entries {
		e := &p.Entries[i]
		if !s.seesID(ctx, e.Board) {
			continue
		}
		effect.Entries = append(effect.Entries, &pb.BanEffect_Entry{
			Board: string(e.Board), Season: string(e.Season), Score: int64(e.Score), RankBefore: rankOrNil(e.RankBefore), RankAfter: rankOrNil(e.RankAfter),
		})
	}
	effect.Truncated = int(effect.GetSeasonCount()) > len(effect.GetEntries())
	return effect
}

// addBans adds the user's bans in force to data, except bans on boards that the caller may not see.
// data.Banned reports whether a ban on every board is in force.
// addBans adds the user's bans on boards, or on all boards if the list is empty.
func (s *Server) addBans(ctx context.Context, user leaderboard.UserID, boards []leaderboard.BoardID, data *pb.ListUserScoresResponse_UserScores) error {
	bans, err := s.service.UserBans(ctx, user)
	if err != nil {
		return err
	}
	data.Banned = new(bool)
	for i := range bans {
		b := &bans[i]
		named := len(boards) == 0 || slices.Contains(boards, b.Board)
		if b.InForce(s.options.Now()) && (b.Board == "" || named && s.seesID(ctx, b.Board)) {
			data.Bans = append(data.Bans, protoconv.FromBan(b))
			*data.Banned = *data.Banned || b.Board == ""
		}
	}
	return nil
}

const defaultBans = 100

// ListBans returns a page of bans.
func (s *Server) ListBans(ctx context.Context, req *pb.ListBansRequest) (*pb.ListBansResponse, error) {
	after, err := parseBanToken(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	page, err := s.service.Bans(ctx, ranking.BanQuery{
		Board: leaderboard.BoardID(req.GetBoard()), User: req.GetUser(), Reason: req.GetReason(), Actor: req.GetActor(),
		Lifted: req.GetIncludeLifted(), After: after, Limit: orDefault(req.Limit, defaultBans),
	})
	if err != nil {
		return nil, err
	}
	res := &pb.ListBansResponse{NextPageToken: banToken(page.Next)}
	for i := range page.Bans {
		res.Bans = append(res.Bans, protoconv.FromBan(&page.Bans[i]))
	}
	return res, nil
}

func banToken(k leaderboard.BanKey) string {
	if k.User == "" {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString([]byte(string(k.User) + "\n" + string(k.Board)))
}

func parseBanToken(token string) (leaderboard.BanKey, error) {
	if token == "" {
		return leaderboard.BanKey{}, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(token)
	user, board, ok := strings.Cut(string(text), "\n")
	if err != nil || !ok || leaderboard.UserID(user).Validate() != nil {
		return leaderboard.BanKey{}, &leaderboard.FieldError{Field: "page_token", Problem: "must be the next_page_token of an earlier answer"}
	}
	return leaderboard.BanKey{User: leaderboard.UserID(user), Board: leaderboard.BoardID(board)}, nil
}

// ImportBans merges bans from an export into the stored bans.
func (s *Server) ImportBans(ctx context.Context, req *pb.ImportBansRequest) (*pb.ImportBansResponse, error) {
	if n := len(req.GetBans()); n < 1 || n > ranking.MaxBans {
		return nil, &leaderboard.FieldError{Field: "bans", Problem: fmt.Sprintf("must have 1 to %d bans, not %d", ranking.MaxBans, n)}
	}
	bans := make([]leaderboard.Ban, len(req.GetBans()))
	for i, b := range req.GetBans() {
		var err error
		if bans[i], err = protoconv.ToBan(b); err != nil {
			return nil, fmt.Errorf("bans[%d]: %w", i, err)
		}
	}
	if err := s.service.CheckImport(bans); err != nil {
		return nil, err
	}
	for i := range bans {
		b := &bans[i]
		before, err := s.service.StoredBan(ctx, b.Key())
		if err != nil {
			return nil, err
		}
		act := leaderboard.Act{Action: "ban.import", Board: b.Board, ActDetail: leaderboard.ActDetail{User: b.User, Reason: b.Reason, Before: banObject(&before), After: banObject(b)}}
		if err := s.audit(ctx, act, func(outcome *leaderboard.ActDetail) error {
			if err := s.service.ImportBans(ctx, bans[i:i+1]); err != nil {
				return err
			}
			after, err := s.service.StoredBan(ctx, b.Key())
			outcome.After = banObject(&after)
			return err
		}); err != nil {
			return nil, err
		}
	}
	return &pb.ImportBansResponse{}, nil
}
