package server

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"log/slog"
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

// audit appends act to the audit log before it calls perform. If perform fails, audit appends a
// second record with Failed set. The server also logs act, with the attributes in object.
func (s *Server) audit(ctx context.Context, act leaderboard.Act, perform func() error, object ...slog.Attr) error {
	act.ID, act.At, act.Actor = rand.Text(), leaderboard.Truncate(s.options.Now()), actor(ctx)
	if a := admissionFrom(ctx); a != nil {
		act.RequestID = a.request
	}
	if err := s.service.AppendAct(ctx, act); err != nil {
		return err
	}
	err := perform()
	s.logAct(ctx, &act, err, object)
	if err != nil {
		act.ID, act.At, act.Failed, act.ActDetail = rand.Text(), leaderboard.Truncate(s.options.Now()), true, leaderboard.ActDetail{}
		_ = s.service.AppendAct(context.WithoutCancel(ctx), act)
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

func fieldJSON(name string, value any) string {
	message, err := structpb.NewStruct(map[string]any{name: value})
	if err != nil {
		panic(err) // structpb does not support the type of value
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
		res.Acts = append(res.Acts, fromAct(&page.Acts[i]))
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

func fromAct(a *leaderboard.Act) *pb.Act {
	return &pb.Act{
		Id: a.ID, At: protoconv.Timestamp(a.At), Actor: a.Actor, RequestId: a.RequestID, Action: a.Action,
		Board: string(a.Board), Season: string(a.Season), UserId: string(a.User), Reason: a.Reason,
		Before: protoconv.FromMetadata(a.Before), After: protoconv.FromMetadata(a.After), Failed: a.Failed, Erased: a.Erased,
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
