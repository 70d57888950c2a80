package server

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/api/protoconv"
	"github.com/open-leaderboard/leaderboard/api/restjson"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

const requestIDHeader = "X-Request-Id"

// requestID returns the caller's id of a request if it is 1 to MaxIDBytes of printable ASCII, and
// otherwise a new id.
func requestID(values []string) string {
	if len(values) == 1 && values[0] != "" && len(values[0]) <= leaderboard.MaxIDBytes &&
		!strings.ContainsFunc(values[0], func(r rune) bool { return r > unicode.MaxASCII || !unicode.IsPrint(r) }) {
		return values[0]
	}
	return rand.Text()
}

// audit appends the intent of act to the audit log, calls perform, and appends the outcome. The
// caller must check the request before: a request that is refused leaves no record. perform sets
// Before and After of the outcome. The server also logs act, with the attributes in object.
func (s *Server) audit(ctx context.Context, act leaderboard.Act, perform func(*leaderboard.ActDetail) error, object ...slog.Attr) error {
	return s.auditAll(ctx, []leaderboard.Act{act}, func(outcomes []leaderboard.Act) error { return perform(&outcomes[0].ActDetail) }, object...)
}

// auditAll is like audit, but with the records of several acts, or of none.
func (s *Server) auditAll(ctx context.Context, acts []leaderboard.Act, perform func(outcomes []leaderboard.Act) error, object ...slog.Attr) error {
	now := leaderboard.Truncate(s.options.Now())
	for i := range acts {
		act := &acts[i]
		act.ID, act.At = rand.Text(), now
		if a := admissionFrom(ctx); a != nil {
			act.Actor, act.ActorName, act.RequestID = a.caller.ID, a.caller.Name, a.request
		}
	}
	if err := s.service.AppendActs(ctx, acts); err != nil {
		return err
	}
	outcomes := slices.Clone(acts)
	err := perform(outcomes)
	now = leaderboard.Truncate(s.options.Now())
	for i := range outcomes {
		outcome := &outcomes[i]
		outcome.CompletedAt = now
		if outcome.Failed = outcome.Failed || err != nil; outcome.Failed {
			outcome.Before, outcome.After = acts[i].Before, ""
		}
		s.logAct(ctx, outcome, err, object)
	}
	// The act has happened, so a failure of the audit log must not turn the answer into an error.
	if logErr := s.service.AppendActs(context.WithoutCancel(ctx), outcomes); logErr != nil {
		s.options.Log.ErrorContext(ctx, "the audit log lacks the outcomes of acts", "request_id", acts[0].RequestID, "action", acts[0].Action, "err", logErr)
	}
	return err
}

// logAct logs an act and its error. The log omits the reason and the changes, which may hold
// personal data.
func (s *Server) logAct(ctx context.Context, act *leaderboard.Act, err error, object []slog.Attr) {
	attrs := []slog.Attr{slog.String("action", act.Action), slog.String("actor", act.Actor),
		slog.String("client", clientOf(ctx)), slog.String("request_id", act.RequestID)}
	for _, a := range []slog.Attr{slog.String("board", string(act.Board)), slog.String("season", string(act.Season)), slog.String("user", string(act.User))} {
		if a.Value.String() != "" {
			attrs = append(attrs, a)
		}
	}
	attrs = append(attrs, object...)
	if err != nil {
		attrs = append(attrs, slog.Any("err", err))
	}
	s.options.Log.LogAttrs(ctx, slog.LevelInfo, "administrative act", attrs...)
}

func messageJSON(m proto.Message) string {
	text, err := restjson.Append(nil, m)
	if err != nil {
		return "" // cannot happen: every message has a JSON form
	}
	return string(text)
}

func fieldsJSON(fields map[string]any) string {
	message, err := structpb.NewStruct(fields)
	if err != nil {
		panic(err) // structpb does not support the type of a field
	}
	return messageJSON(message)
}

const defaultActs = 100

// ListActs returns a page of the audit log.
func (s *Server) ListActs(ctx context.Context, req *pb.ListActsRequest) (*pb.ListActsResponse, error) {
	q := ranking.ActQuery{
		Actor: req.GetActor(), Action: req.GetAction(), Board: leaderboard.BoardID(req.GetBoard()),
		User: leaderboard.UserID(req.GetUserId()), Limit: orDefault(req.Limit, defaultActs),
	}
	var err error
	if q.Since, err = parseTime("since", req.GetSince()); err != nil {
		return nil, err
	}
	if q.Before, err = parseTime("before", req.GetBefore()); err != nil {
		return nil, err
	}
	if q.After, err = parseActToken(req.GetPageToken()); err != nil {
		return nil, err
	}
	page, err := s.service.Acts(ctx, q)
	if err != nil {
		return nil, err
	}
	res := &pb.ListActsResponse{NextPageToken: actToken(page.Next)}
	for i := range page.Acts {
		res.Acts = append(res.Acts, s.fromAct(ctx, &page.Acts[i]))
	}
	return res, nil
}

func parseTime(field, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, &leaderboard.FieldError{Field: field, Problem: "must be a time in RFC 3339, such as 2026-11-20T10:00:00Z"}
	}
	return t, nil
}

func (s *Server) fromAct(ctx context.Context, a *leaderboard.Act) *pb.Act {
	return &pb.Act{
		Id: a.ID, At: protoconv.Timestamp(a.At), CompletedAt: protoconv.Timestamp(a.CompletedAt),
		Actor: a.Actor, ActorName: a.ActorName, RequestId: a.RequestID, Action: a.Action,
		Board: string(a.Board), Season: string(a.Season), UserId: string(a.User), MatchId: string(a.Match), Reason: a.Reason,
		Before: s.visibleObject(ctx, protoconv.FromMetadata(a.Before)), After: s.visibleObject(ctx, protoconv.FromMetadata(a.After)),
		Failed: a.Failed, Erased: a.Erased, UserHash: textOrNil(a.UserHash),
	}
}

func actToken(k leaderboard.ActKey) string {
	if k.ID == "" {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(k.At.UnixMicro(), 10) + " " + k.ID))
}

func parseActToken(token string) (leaderboard.ActKey, error) {
	if token == "" {
		return leaderboard.ActKey{}, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(token)
	number, id, _ := strings.Cut(string(text), " ")
	micros, numErr := strconv.ParseInt(number, 10, 64)
	if err != nil || numErr != nil || id == "" {
		return leaderboard.ActKey{}, &leaderboard.FieldError{Field: "page_token", Problem: "must be the next_page_token of an earlier answer"}
	}
	return leaderboard.ActKey{At: time.UnixMicro(micros).UTC(), ID: id}, nil
}
