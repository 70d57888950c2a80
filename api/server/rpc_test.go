package server

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/open-leaderboard/leaderboard/api/auth"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

// rpcProtocols are options of the library's client, and whether its messages travel as base64.
var rpcProtocols = []struct {
	name    string
	options []connect.ClientOption
	text    bool
}{
	{"connect", nil, false},
	{"connect JSON", []connect.ClientOption{connect.WithProtoJSON()}, false},
	{"connect GET", []connect.ClientOption{connect.WithHTTPGet(), connect.WithProtoJSON(), connect.WithIdempotency(connect.IdempotencyNoSideEffects)}, false},
	{"gRPC-Web", []connect.ClientOption{connect.WithGRPCWeb()}, false},
	{"gRPC-Web JSON", []connect.ClientOption{connect.WithGRPCWeb(), connect.WithProtoJSON()}, false},
	{"gRPC-Web text", []connect.ClientOption{connect.WithGRPCWeb()}, true},
}

// rpcTransport adds a key to requests, and lets the library's client speak gRPC-Web as text.
type rpcTransport struct {
	key  string
	text bool
}

func (c rpcTransport) Do(r *http.Request) (*http.Response, error) {
	if c.key != "" {
		r.Header.Set("Authorization", "Bearer "+c.key)
	}
	if !c.text {
		return http.DefaultClient.Do(r)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	encoded := base64.StdEncoding.EncodeToString(body)
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(encoded)), int64(len(encoded))
	r.Header.Set("Content-Type", "application/grpc-web-text+proto")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	if got := res.Header.Get("Content-Type"); got != "application/grpc-web-text+proto" {
		return nil, fmt.Errorf("the content type of an answer as text is %q", got)
	}
	res.Header.Set("Content-Type", "application/grpc-web+proto")
	res.Body = &textBody{ReadCloser: res.Body}
	return res, nil
}

// textBody decodes groups of four characters, each of which may be padded.
type textBody struct {
	io.ReadCloser
	rest []byte
}

func (b *textBody) Read(p []byte) (int, error) {
	if len(b.rest) == 0 {
		group := make([]byte, 4)
		if _, err := io.ReadFull(b.ReadCloser, group); err != nil {
			return 0, err
		}
		var err error
		if b.rest, err = base64.StdEncoding.DecodeString(string(group)); err != nil {
			return 0, err
		}
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

func rpcClient[Req, Res any](h *harness, key, method string, protocol int) *connect.Client[Req, Res] {
	p := rpcProtocols[protocol]
	return connect.NewClient[Req, Res](rpcTransport{h.keys[key], p.text}, h.http.URL+method, p.options...)
}

func rpcCall[Req, Res any](h *harness, key, method string, protocol int, req *Req) (*Res, error) {
	res, err := rpcClient[Req, Res](h, key, method, protocol).CallUnary(h.t.Context(), connect.NewRequest(req))
	if err != nil {
		return nil, err
	}
	return res.Msg, nil
}

// rpcReason returns the reason in the details of an error, and the invalid fields.
func rpcReason(err error) (code connect.Code, reason string, fields []string) {
	var e *connect.Error
	if !errors.As(err, &e) {
		return 0, "", nil
	}
	for _, d := range e.Details() {
		v, _ := d.Value()
		switch v := v.(type) {
		case *errdetails.ErrorInfo:
			reason = v.GetReason()
		case *errdetails.BadRequest:
			for _, f := range v.GetFieldViolations() {
				fields = append(fields, f.GetField())
			}
		}
	}
	return e.Code(), reason, fields
}

// A submit, a read, errors and a stream have over each protocol what they have over gRPC.
func TestConnectAndGRPCWeb(t *testing.T) {
	t.Parallel()
	h := newHarness(t, Options{})
	for i, p := range rpcProtocols {
		t.Run(p.name, func(t *testing.T) { h.withT(t).testRPCProtocol(i) })
	}
}

func (h *harness) testRPCProtocol(p int) {
	t, user, points, post := h.t, fmt.Sprintf("ann/%d ☃", p), int64(1)<<53-1000+int64(p), p
	if rpcProtocols[p].name == "connect GET" {
		post = 0 // only reads of the API have the level of idempotency that GET needs
	}
	submit := &pb.SubmitScoreRequest{Result: &pb.Result{UserId: user, MatchId: "m", Points: &points}}
	submitted, err := rpcCall[pb.SubmitScoreRequest, pb.SubmitScoreResponse](h, "submit", pb.LeaderboardService_SubmitScore_FullMethodName, post, submit)
	if err != nil || submitted.GetNewScore() != points || submitted.GetStatus() != pb.Outcome_APPLIED {
		t.Fatalf("submit: %v, %v; want APPLIED with the score %d", submitted, err, points)
	}
	get := &pb.GetUserScoreRequest{UserId: user}
	want, err := h.client().GetUserScore(h.as("read"), get)
	if err != nil {
		t.Fatal(err)
	}
	got, err := rpcCall[pb.GetUserScoreRequest, pb.GetUserScoreResponse](h, "read", pb.LeaderboardService_GetUserScore_FullMethodName, p, get)
	if err != nil || !proto.Equal(got, want) {
		t.Errorf("a read returns %v, %v; want as gRPC %v", got, err, want)
	}
	for _, tt := range []struct {
		name, key string
		req       *pb.GetUserScoreRequest
		code      connect.Code
		reason    string
		field     string
	}{
		{"an unknown user", "read", &pb.GetUserScoreRequest{UserId: "nobody"}, connect.CodeNotFound, "ENTRY_NOT_FOUND", ""},
		{"an unknown board", "read", &pb.GetUserScoreRequest{Board: "none", UserId: "u"}, connect.CodeNotFound, "BOARD_NOT_FOUND", ""},
		{"a bad field", "read", &pb.GetUserScoreRequest{UserId: user, Neighbors: proto.Int32(-1)}, connect.CodeInvalidArgument, "INVALID_ARGUMENT", "neighbors"},
		{"no key", "", get, connect.CodeUnauthenticated, "UNAUTHENTICATED", ""},
	} {
		_, err := rpcCall[pb.GetUserScoreRequest, pb.GetUserScoreResponse](h, tt.key, pb.LeaderboardService_GetUserScore_FullMethodName, p, tt.req)
		code, reason, fields := rpcReason(err)
		if code != tt.code || reason != tt.reason || strings.Join(fields, ",") != tt.field {
			t.Errorf("%s: %v with the reason %q and the fields %q, want %v, %s and %q", tt.name, err, reason, fields, tt.code, tt.reason, tt.field)
		}
		_, grpcErr := h.client().GetUserScore(h.as(tt.key), tt.req)
		if e := (*connect.Error)(nil); errors.As(err, &e) && e.Message() != status.Convert(grpcErr).Message() {
			t.Errorf("%s: the message is %q, want as gRPC %q", tt.name, e.Message(), status.Convert(grpcErr).Message())
		}
	}
	if health, err := rpcCall[healthpb.HealthCheckRequest, healthpb.HealthCheckResponse](h, "", healthpb.Health_Check_FullMethodName, post, &healthpb.HealthCheckRequest{}); err != nil || health.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health: %v, %v; want SERVING without a key", health, err)
	}
	h.testRPCStream(p)
}

func (h *harness) testRPCStream(p int) {
	t, board := h.t, fmt.Sprintf("stream-%d", p)
	h.createBoard(fmt.Sprintf(`{"board_id":%q,"policy":"SUM"}`, board))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watch := func(key, board string) *connect.ServerStreamForClient[pb.WatchScoresResponse] {
		s, err := rpcClient[pb.WatchScoresRequest, pb.WatchScoresResponse](h, key, pb.LeaderboardService_WatchScores_FullMethodName, p).
			CallServerStream(ctx, connect.NewRequest(&pb.WatchScoresRequest{Board: board}))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := watch("read", board)
	if !s.Receive() || len(s.Msg().GetData().GetLeaderboard()) != 0 {
		t.Fatalf("the first event is %v, %v; want an empty ranking", s.Msg(), s.Err())
	}
	h.must("submit", "POST", "/v1/boards/"+board+"/scores", `{"user_id":"eve","points":5}`)
	if !s.Receive() || s.Msg().GetData().GetLeaderboard()[0].GetUserId() != "eve" || s.Msg().GetEventId() == "" {
		t.Fatalf("after a submit, the event is %v, %v; want the user eve", s.Msg(), s.Err())
	}
	cancel()
	for s.Receive() { // the client may have an event
	}
	waitFor(t, "the stream to end on the server", func() bool { return h.watches.len() == 0 })
	ctx = t.Context()
	for key, want := range map[string]string{"": "UNAUTHENTICATED", "read": "BOARD_NOT_FOUND"} {
		s := watch(key, "none")
		if s.Receive() {
			t.Errorf("a refused stream sends %v, want an error", s.Msg())
		}
		if _, reason, _ := rpcReason(s.Err()); reason != want {
			t.Errorf("the stream of a caller %q ends with %v, want the reason %s", key, s.Err(), want)
		}
	}
}

// rpcRaw sends a message over Connect as JSON, and returns the answer and the reason in its details.
func (h *harness) rpcRaw(key, method, message string) (a answer, reason string) {
	h.t.Helper()
	req, err := http.NewRequestWithContext(h.t.Context(), http.MethodPost, h.http.URL+method, strings.NewReader(message))
	if err != nil {
		h.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if h.keys[key] != "" {
		req.Header.Set("Authorization", "Bearer "+h.keys[key])
	}
	a = h.send(req)
	return a, connectReason(a.body)
}

func connectReason(body map[string]any) string {
	details, _ := body["details"].([]any)
	for _, d := range details {
		if get(d, "type") != "google.rpc.ErrorInfo" {
			continue
		}
		value, _ := get(d, "value").(string)
		data, _ := base64.RawStdEncoding.DecodeString(value)
		var info errdetails.ErrorInfo
		if proto.Unmarshal(data, &info) == nil {
			return info.GetReason()
		}
	}
	return ""
}

// Every method has the door over Connect that it has over gRPC.
func TestConnectDoors(t *testing.T) {
	t.Parallel()
	h := newHarness(t, Options{Backup: func(context.Context, string) error { return nil }})
	h.newKey("bound", map[string]any{"scopes": []string{"admin"}, "boards": []string{"other"}})
	eachMethod(func(method string, md protoreflect.MethodDescriptor) {
		door := doorOf(method)
		for scope := auth.Public; scope < door.scope; scope++ {
			a, reason := h.rpcRaw(scope.String(), method, `{}`)
			want, status := "SCOPE_REQUIRED", http.StatusForbidden
			if scope == auth.Public {
				want, status = "UNAUTHENTICATED", http.StatusUnauthorized
			}
			if door.streams { // the end of the stream has the error
				if res, body := request(t, "POST", h.http.URL+method, "\x00\x00\x00\x00\x02{}", "Content-Type", "application/connect+json", "Authorization", "Bearer "+h.keys[scope.String()]); res.StatusCode != http.StatusOK ||
					len(body) < 5 || body[0] != 2 || !strings.Contains(body, map[string]string{"SCOPE_REQUIRED": "permission_denied", "UNAUTHENTICATED": "unauthenticated"}[want]) {
					t.Errorf("%s with scope %s: %s %q, want the end of a stream with %s", method, scope, res.Status, body, want)
				}
				continue
			}
			if a.status != status || reason != want || a.header.Get("Content-Type") != "application/json" || a.header.Get("X-Request-Id") == "" {
				t.Errorf("%s with scope %s: %d %v %s, want %d with the reason %s", method, scope, a.status, a.header, a.raw, status, want)
			}
		}
		if req, hasBoard := requestFor(t, md, "default"); hasBoard && !door.streams && door.reach == pb.Door_ONE_BOARD {
			message, err := protojson.Marshal(req)
			if err != nil {
				t.Fatal(err)
			}
			if a, reason := h.rpcRaw("bound", method, string(message)); reason != "BOARD_DENIED" && reason != "INVALID_ARGUMENT" || a.status < 400 || strings.Contains(a.raw, "ann") {
				t.Errorf("%s with a key for another board: %d %s, want BOARD_DENIED", method, a.status, a.raw)
			}
		}
	})
}

func frameOf(message string) string {
	return string(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))) + message
}

const rpcList, rpcSubmit, rpcWatch = pb.LeaderboardService_ListScores_FullMethodName, pb.LeaderboardService_SubmitScore_FullMethodName, pb.LeaderboardService_WatchScores_FullMethodName

var (
	largeRPC = `{"board":"` + strings.Repeat("x", maxBodyBytes) + `"}`
	// rpcBomb decompresses to 20 MiB.
	rpcBomb = func() string {
		var bomb bytes.Buffer
		z := gzip.NewWriter(&bomb)
		_, _ = z.Write(bytes.Repeat([]byte(" "), 20<<20))
		_ = z.Close()
		return bomb.String()
	}()
)

func rpcQuery(pairs ...string) string {
	v := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		v.Set(pairs[i], pairs[i+1])
	}
	return rpcList + "?" + v.Encode()
}

var badRPCs = []struct {
	name, method, path, body, contentType string
	header                                []string
	status                                int
	want                                  string // the reason of Connect or of REST, or a part of the text
}{
	{"an unknown method", "POST", "/leaderboard.v1.LeaderboardService/Nope", `{}`, "application/json", nil, 404, "NO_SUCH_ROUTE"},
	{"reflection", "POST", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", `{}`, "application/json", nil, 404, "NO_SUCH_ROUTE"},
	{"a PUT", "PUT", rpcList, `{}`, "application/json", nil, 405, "METHOD_NOT_ALLOWED"},
	{"a GET of a submit", "GET", rpcSubmit + "?encoding=json&message={}", "", "", nil, 405, "METHOD_NOT_ALLOWED"},
	{"a GET of a stream", "GET", rpcWatch + "?encoding=json&message={}", "", "", nil, 405, "METHOD_NOT_ALLOWED"},
	{"no content type", "POST", rpcList, `{}`, "", nil, 415, "INVALID_ARGUMENT"},
	{"a form", "POST", rpcList, `{}`, "application/x-www-form-urlencoded", nil, 415, "INVALID_ARGUMENT"},
	{"gRPC", "POST", rpcList, frameOf(""), "application/grpc", nil, 415, "INVALID_ARGUMENT"},
	{"a stream's type for one answer", "POST", rpcList, frameOf(""), "application/connect+proto", nil, 415, "INVALID_ARGUMENT"},
	{"a type of one answer for a stream", "POST", rpcWatch, "", "application/proto", nil, 415, "INVALID_ARGUMENT"},
	{"a GET in an unknown encoding", "GET", rpcQuery("encoding", "xml", "message", ""), "", "", nil, 415, "INVALID_ARGUMENT"},
	{"a GET in gRPC-Web", "GET", rpcQuery("encoding", "grpc-web", "message", ""), "", "", nil, 415, "INVALID_ARGUMENT"},
	{"a GET without a message", "GET", rpcQuery("encoding", "json"), "", "", nil, 400, "INVALID_ARGUMENT"},
	{"a GET with bad base64", "GET", rpcQuery("encoding", "proto", "base64", "1", "message", "@"), "", "", nil, 400, "INVALID_ARGUMENT"},
	{"a GET with compression", "GET", rpcQuery("encoding", "proto", "compression", "gzip", "message", ""), "", "", nil, 501, "UNSUPPORTED"},
	{"JSON that is cut", "POST", rpcList, `{"board":`, "application/json", nil, 400, "INVALID_ARGUMENT"},
	{"an unknown field", "POST", rpcList, `{"nope":1}`, "application/json; charset=utf-8", nil, 400, "INVALID_ARGUMENT"},
	{"a message that is cut", "POST", rpcList, "\x0a\x05a", "application/proto", nil, 400, "INVALID_ARGUMENT"},
	{"a large message", "POST", rpcList, largeRPC, "application/json", nil, 400, "BODY_TOO_LARGE"},
	{"a large message in proto", "POST", rpcList, largeRPC, "application/proto", nil, 400, "BODY_TOO_LARGE"},
	{"a number past 2^53", "POST", rpcSubmit, `{"result":{"user_id":"u","points":"9007199254740994"}}`, "application/json", nil, 400, "INVALID_ARGUMENT"},
	{"not a number", "POST", rpcSubmit, `{"result":{"user_id":"u","points":NaN}}`, "application/json", nil, 400, "INVALID_ARGUMENT"},
	{"a bomb", "POST", rpcList, rpcBomb, "application/json", []string{"Content-Encoding", "gzip"}, 501, "UNSUPPORTED"},
	{"a bomb in a frame", "POST", rpcList, "\x01" + frameOf(rpcBomb)[1:], "application/grpc-web", []string{"Grpc-Encoding", "gzip"}, 200, "compressed messages"},
	{"a bomb in a stream", "POST", rpcWatch, "\x01" + frameOf(rpcBomb)[1:], "application/connect+json", []string{"Connect-Content-Encoding", "gzip"}, 200, "compressed messages"},
	{"a compressed frame without a name", "POST", rpcList, "\x01" + frameOf("")[1:], "application/grpc-web", nil, 200, "is not one message"},
	{"a frame that is too short", "POST", rpcList, "\x00\x00\x00", "application/grpc-web", nil, 200, "is not one message"},
	{"a frame with a wrong length", "POST", rpcList, "\x00\xff\xff\xff\xff", "application/grpc-web+json", nil, 200, "is not one message"},
	{"two frames", "POST", rpcList, frameOf("") + frameOf(""), "application/grpc-web", nil, 200, "is not one message"},
	{"no frame in a stream", "POST", rpcWatch, "", "application/connect+proto", nil, 200, "is not one message"},
	{"a text that is not base64", "POST", rpcList, "!", "application/grpc-web-text", nil, 200, "base64"},
	{"a large frame", "POST", rpcList, frameOf(largeRPC), "application/grpc-web", nil, 200, "longer than"},
	{"a large text", "POST", rpcList, base64.StdEncoding.EncodeToString([]byte(frameOf(largeRPC))), "application/grpc-web-text", nil, 200, "longer than"},
	{"a timeout that is no number", "POST", rpcList, `{}`, "application/json", []string{"Connect-Timeout-Ms", "soon"}, 400, "invalid_argument"},
	{"a timeout of gRPC-Web without a unit", "POST", rpcList, frameOf(""), "application/grpc-web", []string{"Grpc-Timeout", "5"}, 200, "timeout"},
}

// A request that is not one of the protocols has an error of the protocol, with a reason, or an HTTP error.
func TestBadRequestsOverConnect(t *testing.T) {
	t.Parallel()
	h := newHarness(t, Options{Insecure: true})
	for _, tt := range badRPCs {
		header := tt.header
		if tt.contentType != "" {
			header = append(header, "Content-Type", tt.contentType)
		}
		res, body := request(t, tt.method, h.http.URL+tt.path, tt.body, header...)
		parsed := map[string]any{}
		_ = json.Unmarshal([]byte(body), &parsed)
		text := body
		if strings.HasPrefix(res.Header.Get("Content-Type"), "application/grpc-web") { // an error without messages is in the headers
			text, _ = url.PathUnescape(res.Header.Get("Grpc-Message"))
			if code := res.Header.Get("Grpc-Status"); code == "" || code == "0" || body != "" {
				t.Errorf("%s: Grpc-Status %q and the body %q, want a code and no body", tt.name, code, body)
			}
		}
		if reason := connectReason(parsed); res.StatusCode != tt.status || reason != tt.want && (answer{body: parsed}).reason() != tt.want && !strings.Contains(text, tt.want) {
			t.Errorf("%s: %s %.300q, want %d with %s", tt.name, res.Status, body+text, tt.status, tt.want)
		}
	}
	if res, body := request(t, "HEAD", h.http.URL+rpcQuery("encoding", "json", "message", "{}"), ""); res.StatusCode != http.StatusOK || body != "" || res.Header.Get("Content-Type") != "application/json" {
		t.Errorf("HEAD: %s %v %q, want 200 without a body", res.Status, res.Header, body)
	}
	if res, _ := request(t, "PATCH", h.http.URL+rpcList, ""); res.Header.Get("Allow") != "GET, HEAD, POST" {
		t.Errorf("Allow is %q, want GET, HEAD, POST", res.Header.Get("Allow"))
	}
	if res, _ := request(t, "POST", h.http.URL+rpcList, ""); !strings.Contains(res.Header.Get("Accept-Post"), "application/json, application/proto") {
		t.Errorf("Accept-Post is %q, want it with application/json and application/proto", res.Header.Get("Accept-Post"))
	}
}

// Calls over Connect count towards the same rates and pools, are measured, and are logged.
func TestConnectIsLimitedMeasuredAndLogged(t *testing.T) {
	t.Parallel()
	h := newHarness(t, Options{PublicRead: true, LogCalls: true, MaxPeerStreams: 1, Limits: auth.Limits{PerUser: auth.Rate{PerSecond: 0.0001, Burst: 1}, PerKey: auth.Rate{PerSecond: 0.0001, Burst: 4}}})
	const submit = `{"result":{"user_id":"u","match_id":"%d","points":1}}`
	for i, want := range []string{"", "RATE_LIMITED"} {
		if a, reason := h.rpcRaw("submit", pb.LeaderboardService_SubmitScore_FullMethodName, fmt.Sprintf(submit, i)); reason != want || (want == "") != (a.status == http.StatusOK) {
			t.Errorf("submit %d of a user: %d %s, want the reason %q", i, a.status, a.raw, want)
		}
	}
	for i := range 3 {
		a := h.do("submit", "GET", "/v1/scores", nil) // over REST, with the same key
		if wantStatus := map[bool]int{true: 429, false: 200}[i == 2]; a.status != wantStatus {
			t.Errorf("call %d of a key: %d, want %d", i+3, a.status, wantStatus)
		}
	}
	a, reason := h.rpcRaw("submit", pb.LeaderboardService_ListScores_FullMethodName, `{}`)
	if a.status != http.StatusTooManyRequests || reason != "RATE_LIMITED" || a.header.Get("Retry-After") == "" {
		t.Errorf("a call of a key above its rate: %d %v %s, want 429 with Retry-After", a.status, a.header, a.raw)
	}
	watch := func() *connect.ServerStreamForClient[pb.WatchScoresResponse] {
		s, err := rpcClient[pb.WatchScoresRequest, pb.WatchScoresResponse](h, "", pb.LeaderboardService_WatchScores_FullMethodName, 5).
			CallServerStream(t.Context(), connect.NewRequest(&pb.WatchScoresRequest{Board: "default"}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	if s := watch(); !s.Receive() {
		t.Fatalf("a stream without a key: %v, want an event", s.Err())
	}
	s := watch()
	if s.Receive() {
		t.Error("a second stream of an address has an event, want an error")
	}
	if _, reason, _ := rpcReason(s.Err()); reason != "TOO_MANY_WATCHERS" {
		t.Errorf("a second stream of an address ends with %v, want TOO_MANY_WATCHERS", s.Err())
	}
	codes := map[string]int{}
	for _, line := range h.logLines("call") {
		if line["method"] == "SubmitScore" {
			codes[line["code"].(string)]++
			if line["caller"] == "" || line["request_id"] == "" || line["client"] != "127.0.0.1" {
				t.Errorf("a call is logged as %v, want its caller, client and request id", line)
			}
		}
	}
	if codes["OK"] != 1 || codes["ResourceExhausted"] != 1 {
		t.Errorf("the log has submits with the codes %v, want one OK and one ResourceExhausted", codes)
	}
	metrics := h.do("", "GET", "/metrics", nil).raw
	for _, line := range []string{`leaderboard_api_call_seconds_count{code="OK",method="SubmitScore"} 1`, `leaderboard_api_call_seconds_count{code="ResourceExhausted",method="SubmitScore"} 1`} {
		if !strings.Contains(metrics, line) {
			t.Errorf("the metrics lack %s", line)
		}
	}
}

// A message that stalls ends with the reason of REST, also in a stream.
func TestStalledMessagesOverConnect(t *testing.T) {
	t.Parallel()
	h := newHarness(t, Options{ReceiveTimeout: 200 * time.Millisecond})
	rest, _ := h.onSockets()
	for _, tt := range []struct{ method, contentType, want string }{
		{pb.LeaderboardService_ListScores_FullMethodName, "application/json", `"code":"deadline_exceeded"`},
		{pb.LeaderboardService_WatchScores_FullMethodName, "application/connect+proto", `"code":"deadline_exceeded"`},
		{pb.LeaderboardService_ListScores_FullMethodName, "application/grpc-web", "Grpc-Status: 4\r\n"},
	} {
		answer, _ := exchange(t, rest, "POST "+tt.method+" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+h.keys["read"]+"\r\nContent-Type: "+tt.contentType+"\r\nContent-Length: 100\r\n\r\n\x00")
		if !strings.Contains(answer, tt.want) {
			t.Errorf("%s as %s: %q, want %s", tt.method, tt.contentType, answer, tt.want)
		}
	}
	public := newHarness(t, Options{PublicRead: true})
	public.anonymousTimeout = 50 * time.Millisecond
	defer public.holdAnonymous()()
	if a, reason := public.rpcRaw("", pb.LeaderboardService_ListScores_FullMethodName, `{}`); a.status != http.StatusTooManyRequests || reason != "TOO_MANY_MESSAGES" {
		t.Errorf("a fifth message without a key: %d %s, want 429 and TOO_MANY_MESSAGES", a.status, a.raw)
	}
}

// Streams and lists share encoded answers. The library writes into its own buffers, never into these.
func TestSharedAnswersOverConnect(t *testing.T) {
	t.Parallel()
	h := newHarness(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	last := make([]*pb.WatchScoresResponse, 3*len(rpcProtocols))
	const final = 40
	var wg, opened sync.WaitGroup
	for i := range last {
		opened.Add(1)
		wg.Go(func() {
			s, err := rpcClient[pb.WatchScoresRequest, pb.WatchScoresResponse](h, "read", pb.LeaderboardService_WatchScores_FullMethodName, i%len(rpcProtocols)).
				CallServerStream(ctx, connect.NewRequest(&pb.WatchScoresRequest{Board: "default"}))
			first := true
			for err == nil && s.Receive() {
				if first {
					opened.Done()
					first = false
				}
				if last[i] = proto.CloneOf(s.Msg()); last[i].GetData().GetTotal() == final {
					return
				}
			}
			if first {
				opened.Done()
			}
			t.Errorf("stream %d: %v", i, errors.Join(err, s.Err()))
		})
	}
	opened.Wait()
	for i := range final {
		h.must("submit", "POST", "/v1/scores", fmt.Sprintf(`{"user_id":"user-%d","points":%d}`, i, i+1))
		if _, err := rpcCall[pb.ListScoresRequest, pb.ListScoresResponse](h, "read", pb.LeaderboardService_ListScores_FullMethodName, i%len(rpcProtocols), &pb.ListScoresRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
	want, err := h.client().ListScores(h.as("read"), &pb.ListScoresRequest{})
	if err != nil {
		t.Fatal(err)
	}
	want.Data.NextPageToken = "" // an event has none
	for i, got := range last {
		if !proto.Equal(got.GetData(), want.GetData()) {
			t.Errorf("stream %d: the last event is %.300v, want %.300v", i, got.GetData(), want.GetData())
		}
	}
}

// Clients of Connect send a 64-bit integer as a string.
func TestConnectTakesProtoJSON(t *testing.T) {
	t.Parallel()
	h := newHarness(t, Options{})
	if a, _ := h.rpcRaw("submit", pb.LeaderboardService_SubmitScore_FullMethodName, `{"result":{"user_id":"u","points":"12"}}`); a.status != http.StatusOK || get(a.body, "new_score") != json.Number("12") {
		t.Errorf("a submit with an integer as a string: %d %s, want the new_score 12", a.status, a.raw)
	}
}

func FuzzConnect(f *testing.F) {
	var types []string
	for name := range rpcForms {
		types = append(types, name)
	}
	h := newHarness(f, Options{Insecure: true})
	f.Add("application/json", []byte(`{"limit":3}`), "")
	f.Add("application/proto", []byte{0x20, 3}, "")
	f.Add("application/grpc-web", []byte("\x00\x00\x00\x00\x02\x20\x03"), "")
	f.Add("application/grpc-web-text", []byte("AAAAAAA="), "")
	f.Add("application/grpc-web+json", []byte("\x00\x00\x00\x00\x02{}"), "gzip")
	f.Add("", []byte("encoding=json&message={}&compression="), "")
	f.Add("", []byte("encoding=proto&message=IAM&base64=1"), "")
	f.Fuzz(func(t *testing.T, contentType string, body []byte, compression string) {
		r := httptest.NewRequest(http.MethodPost, pb.LeaderboardService_ListScores_FullMethodName, bytes.NewReader(body))
		if contentType == "" {
			r = httptest.NewRequest(http.MethodGet, pb.LeaderboardService_ListScores_FullMethodName, nil)
			r.URL.RawQuery = string(body)
		}
		r.Host = "localhost"
		r.Header.Set("Content-Type", contentType)
		r.Header.Set("Content-Encoding", compression)
		w := httptest.NewRecorder()
		h.Handler().ServeHTTP(w, r)
		switch w.Code {
		case 200, 400, 404, 415, 501:
		default:
			t.Fatalf("%q as %q, one of %q: %d %s, want 200 or an error of the caller", body, contentType, types, w.Code, w.Body)
		}
		if known := rpcForms[contentType]; w.Code == 200 && known.framed && (w.Header().Get("Grpc-Status") == "13" || w.Header().Get("Grpc-Status") == "2") {
			t.Fatalf("%q as %q: Grpc-Status %s %s", body, contentType, w.Header().Get("Grpc-Status"), w.Header().Get("Grpc-Message"))
		}
	})
}
