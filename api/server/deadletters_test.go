package server

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

// deadLetterBox has dead letters in memory.
type deadLetterBox struct {
	list     []*pb.DeadLetter // the newest first
	replayed []string
	since    time.Time
	fail     error
}

func newDeadLetterBox() *deadLetterBox {
	deadLetter := func(id, cause, user, board string, minute int) *pb.DeadLetter {
		d := &pb.DeadLetter{
			DeadLetterId: id, Cause: cause, UserId: user, Board: board, MatchId: "m", Detail: "board not found", Cure: "create the board, then replay", OriginTopic: "match-results",
			OriginPartition: 3, OriginOffset: 1815, Replayable: cause != "form", At: timestamppb.New(time.Date(2026, 11, 20, 9, minute, 0, 0, time.UTC)),
		}
		d.OriginAt = d.At
		if d.Message = (&pb.MatchResultRecord{BoardId: board, Result: &pb.Result{UserId: user, MatchId: "m", Points: proto.Int64(5)}}); !d.Replayable {
			d.Message, d.MessageBytes, d.MatchId = nil, proto.String("/w=="), ""
		}
		return d
	}
	return &deadLetterBox{list: []*pb.DeadLetter{
		deadLetter("3:18", "board", "bob", "winter-cup", 30), deadLetter("0:2", "form", "eve", "", 20), deadLetter("3:17", "board", "ada", "winter-cup", 10), deadLetter("1:0", "board", "u\x01", strings.Repeat("b", 200), 5),
	}}
}

func (b *deadLetterBox) List(_ context.Context, req *pb.ListDeadLettersRequest, limit int, since time.Time) (*pb.ListDeadLettersResponse, error) {
	b.since = since
	res := &pb.ListDeadLettersResponse{}
	for _, d := range b.list {
		if (req.GetCause() == "" || d.GetCause() == req.GetCause()) && (req.GetUserId() == "" || d.GetUserId() == req.GetUserId()) && len(res.GetDeadLetters()) < limit {
			d = proto.CloneOf(d)
			d.Message, d.MessageBytes = nil, nil
			res.DeadLetters = append(res.DeadLetters, d)
		}
	}
	return res, b.fail
}

func (b *deadLetterBox) Get(_ context.Context, ids []string) (list []*pb.DeadLetter, err error) {
	for _, id := range ids {
		i := slices.IndexFunc(b.list, func(d *pb.DeadLetter) bool { return d.GetDeadLetterId() == id })
		if i < 0 {
			return nil, fmt.Errorf("consumer: dead letter %s: %w", id, leaderboard.ErrDeadLetterNotFound)
		}
		list = append(list, proto.CloneOf(b.list[i]))
	}
	return list, b.fail
}

func (b *deadLetterBox) Replay(_ context.Context, ids []string) error {
	b.replayed = append(b.replayed, ids...)
	return b.fail
}

func TestDeadLetters(t *testing.T) {
	box := newDeadLetterBox()
	h := newHarness(t, Options{DeadLetters: box})
	ids := func(list any) (ids []string) {
		all, _ := list.([]any)
		for _, d := range all {
			ids = append(ids, fmt.Sprint(get(d, "dead_letter_id")))
		}
		return ids
	}
	list := h.must("admin", "GET", "/v1/dead-letters?cause=board&limit=2&since=2026-11-19T10:00:00%2B01:00", nil)
	if got := ids(get(list, "dead_letters")); !slices.Equal(got, []string{"3:18", "3:17"}) || !box.since.Equal(time.Date(2026, 11, 19, 9, 0, 0, 0, time.UTC)) {
		t.Errorf("the list has %q since %v, want 3:18 and 3:17, and the time of the query", got, box.since)
	}
	for _, path := range []string{"3:17", "3%3A17"} {
		if d := h.must("admin", "GET", "/v1/dead-letters/"+path, nil); get(d, "message", "result", "user_id") != "ada" || get(d, "message_bytes") != nil {
			t.Errorf("the dead letter %s is %v, want the message of ada", path, d)
		}
	}
	if d := h.must("admin", "GET", "/v1/dead-letters/0:2", nil); get(d, "message_bytes") != "/w==" || get(d, "message") != nil {
		t.Errorf("the dead letter of a broken message is %v, want its bytes", d)
	}
	const all = `"dead_letter_ids":["3:18","0:2","3:17","1:0","3:17"],"reason":"the board exists now"`
	check := func(what string, answer map[string]any, replayed ...string) {
		t.Helper()
		if got, skipped := ids(get(answer, "replayed")), ids(get(answer, "skipped")); !slices.Equal(got, []string{"1:0", "3:17", "3:18"}) || !slices.Equal(skipped, []string{"0:2"}) || !slices.Equal(box.replayed, replayed) {
			t.Errorf("%s: replayed %q, skipped %q, sent %q; want 1:0, 3:17 and 3:18, then 0:2, and %q", what, got, skipped, box.replayed, replayed)
		}
	}
	check("a dry run", h.must("admin", "POST", "/v1/dead-letters:replay", `{"dry_run":true,`+all+`}`))
	check("a dry run by the query", h.must("admin", "POST", "/v1/dead-letters:replay?dry_run=true", `{`+all+`}`))
	if acts := h.acts("?action=dead_letter"); len(acts) != 0 {
		t.Errorf("dry runs have the records %v, want none", acts)
	}
	check("a replay", h.must("admin", "POST", "/v1/dead-letters:replay", `{`+all+`}`), "1:0", "3:17", "3:18")
	of := map[string]int{}
	for _, act := range h.acts("?action=dead_letter.replay") {
		if act["completed_at"] == nil || act["reason"] != "the board exists now" || get(act, "after", "cause") != "board" || get(act, "after", "message") != nil || act["failed"] == true {
			continue
		}
		of[fmt.Sprint(act["board"], " ", act["user_id"], " ", act["match_id"], " ", get(act, "after", "dead_letter_id"))]++
	}
	if want := map[string]int{"winter-cup bob m 3:18": 1, "winter-cup ada m 3:17": 1, "  m 1:0": 1}; fmt.Sprint(of) != fmt.Sprint(want) {
		t.Errorf("the records of the replay are %v, want %v", of, want)
	}
	if got := h.acts("?action=dead_letter&user_id=ada"); len(got) != 1 {
		t.Errorf("ada has %d records, want one", len(got))
	}
	if a := h.must("admin", "POST", "/v1/dead-letters:replay", `{"dead_letter_ids":["0:2"]}`); len(ids(get(a, "skipped"))) != 1 || len(h.acts("?action=dead_letter")) != 3 {
		t.Errorf("a replay of a broken message: %v, want it skipped without a record", a)
	}
	if _, err := pb.NewAdminServiceClient(h.conn).GetDeadLetter(h.as("submit"), &pb.GetDeadLetterRequest{DeadLetterId: "3:17"}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("with the scope submit: %v, want PERMISSION_DENIED", err)
	}
	if d, err := pb.NewAdminServiceClient(h.conn).GetDeadLetter(h.as("admin"), &pb.GetDeadLetterRequest{DeadLetterId: "3:17"}); err != nil || d.GetDeadLetter().GetMessage().GetResult().GetPoints() != 5 {
		t.Errorf("over gRPC: %v, %v; want 5 points", d, err)
	}
	box.fail = fmt.Errorf("consumer: Kafka: %w", leaderboard.ErrUnavailable)
	if a := h.do("admin", "GET", "/v1/dead-letters", nil); a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
		t.Errorf("without Kafka: %d %s, want 503", a.status, a.raw)
	}
}

func TestFailedReplaysAreRecorded(t *testing.T) {
	box := &failingBox{newDeadLetterBox()}
	h := newHarness(t, Options{DeadLetters: box})
	if a := h.do("admin", "POST", "/v1/dead-letters:replay", `{"dead_letter_ids":["3:17"]}`); a.status != http.StatusServiceUnavailable {
		t.Errorf("a replay that Kafka refuses: %d %s, want 503", a.status, a.raw)
	}
	if acts := h.acts("?action=dead_letter.replay"); len(acts) != 1 || acts[0]["failed"] != true {
		t.Errorf("the records are %v, want a failed outcome", acts)
	}
}

type failingBox struct{ *deadLetterBox }

func (b *failingBox) Replay(context.Context, []string) error { return leaderboard.ErrUnavailable }

func TestBadRequestsForDeadLetters(t *testing.T) {
	h := newHarness(t, Options{DeadLetters: newDeadLetterBox()})
	for _, tt := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/v1/dead-letters?limit=0", "", 400, "limit"},
		{"GET", "/v1/dead-letters?limit=1001", "", 400, "limit"},
		{"GET", "/v1/dead-letters?limit=-1", "", 400, "limit"},
		{"GET", "/v1/dead-letters?limit=NaN", "", 400, "limit"},
		{"GET", "/v1/dead-letters?since=yesterday", "", 400, "since"},
		{"GET", "/v1/dead-letters?board=cup", "", 400, "board"},
		{"GET", "/v1/dead-letters?cause=" + strings.Repeat("c", 129), "", 400, "cause"},
		{"GET", "/v1/dead-letters?user_id=" + strings.Repeat("u", 129), "", 400, "user_id"},
		{"GET", "/v1/dead-letters/9:9", "", 404, "DEAD_LETTER_NOT_FOUND"},
		{"GET", "/v1/dead-letters/3", "", 400, "dead_letter_id"},
		{"GET", "/v1/dead-letters/-3:17", "", 400, "dead_letter_id"},
		{"GET", "/v1/dead-letters/3:" + strings.Repeat("7", 20), "", 400, "dead_letter_id"},
		{"POST", "/v1/dead-letters:replay", `{"dead_letter_ids":["3:17","NaN:1"]}`, 400, "dead_letter_ids[1]"},
		{"GET", "/v1/dead-letters/", "", 404, "EMPTY_ID"},
		{"POST", "/v1/dead-letters:replay", `{}`, 400, "dead_letter_ids"},
		{"POST", "/v1/dead-letters:replay", `{"dead_letter_ids":"3:17"}`, 400, "dead_letter_ids"},
		{"POST", "/v1/dead-letters:replay", `{"dead_letter_ids":[` + strings.Repeat(`"3:17",`, 100) + `"3:17"]}`, 400, "dead_letter_ids"},
		{"POST", "/v1/dead-letters:replay", `{"dead_letter_ids":["3:17","9:9"]}`, 404, "DEAD_LETTER_NOT_FOUND"},
		{"POST", "/v1/dead-letters:replay", `{"dead_letter_ids":["3:17"],"reason":"` + strings.Repeat("r", 257) + `"}`, 400, "reason"},
		{"POST", "/v1/dead-letters:replay", `{"dead_letter_ids":["3:17"],"all":true}`, 400, "all"},
	} {
		var body any
		if tt.body != "" {
			body = tt.body
		}
		if a := h.do("admin", tt.method, tt.path, body); a.status != tt.status || !slices.Contains(append(a.violations(), a.reason()), tt.want) && !strings.Contains(a.raw, tt.want) {
			t.Errorf("%s %s %.60s: %d %.300s, want %d with %s", tt.method, tt.path, tt.body, a.status, a.raw, tt.status, tt.want)
		}
	}
	if acts := h.acts("?action=dead_letter"); len(acts) != 0 {
		t.Errorf("refused requests have the records %v, want none", acts)
	}
	embedded := newHarness(t, Options{})
	for _, call := range [][3]string{{"GET", "/v1/dead-letters"}, {"GET", "/v1/dead-letters/3:17"}, {"POST", "/v1/dead-letters:replay", `{"dead_letter_ids":["3:17"]}`}} {
		a := embedded.do("admin", call[0], call[1], map[bool]any{true: call[2]}[call[2] != ""])
		if a.status != http.StatusNotImplemented || a.reason() != "UNSUPPORTED" || !strings.Contains(a.raw, "the embedded engine has no dead letters") {
			t.Errorf("%s %s without Kafka: %d %s, want 501 with the reason", call[0], call[1], a.status, a.raw)
		}
	}
}
