package canonical

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/certs"
	"github.com/open-leaderboard/leaderboard/test/authority"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

var (
	key  = Key{Board: "race", User: "ann", Match: "m1"}
	body = `{"board_id":"race","result":{"user_id":"ann","match_id":"m1","score":7,"revision":2,"achieved_at":"2026-11-20T10:00:00Z"}}`
)

func answer() *pb.GetCanonicalResultResponse {
	return &pb.GetCanonicalResultResponse{BoardId: "race", Result: &pb.Result{
		UserId: "ann", MatchId: "m1", Score: new(int64(7)), Revision: 2, AchievedAt: timestamppb.New(time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)),
	}}
}

func newClient(t *testing.T, address string, change func(*Options)) *Client {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{URL: u, Timeout: time.Minute}
	if change != nil {
		change(&o)
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func serve(t *testing.T, f http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return s.URL
}

func checkAnswer(t *testing.T, c *Client, k Key, want *pb.GetCanonicalResultResponse) {
	t.Helper()
	got, err := c.Fetch(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("Fetch (-want +got):\n%s", diff)
	}
}

func checkProblem(t *testing.T, c *Client, problem Problem, text string) (retryAfter time.Duration) {
	t.Helper()
	got, err := c.Fetch(t.Context(), key)
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Problem != problem || !strings.Contains(e.Error(), text) {
		t.Fatalf("Fetch = %v, error %v; want a problem %s with %q", got, err, problem, text)
	}
	if len(e.Detail) > 1000 {
		t.Errorf("the detail has %d bytes, want at most 1000", len(e.Detail))
	}
	return e.RetryAfter
}

func TestHTTP(t *testing.T) {
	var request *http.Request
	base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		request = r
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		fmt.Fprint(w, body)
	})
	checkAnswer(t, newClient(t, base+"/v1/", nil), key, answer())
	if request.Method != http.MethodGet || request.RequestURI != "/v1/boards/race/users/ann/matches/m1" || request.Header.Get("webhook-id") != "" {
		t.Errorf("the request is %s %s with the headers %v, want an unsigned GET of the result", request.Method, request.RequestURI, request.Header)
	}
}

// The server sees the ids of the key, whatever characters they have.
func TestHostileIDs(t *testing.T) {
	var uri string
	base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		uri = r.RequestURI
		w.WriteHeader(http.StatusNotFound)
	})
	c := newClient(t, base, nil)
	for _, id := range []string{"a/b", "..", ".", "a%2Fb", "?x=1", "#x", "a b", "日本", ";=+&$,", `\`, "%", "http://other", "'\"<>", "..."} {
		k := Key{Board: leaderboard.BoardID(id), User: leaderboard.UserID(id), Match: leaderboard.MatchID(id)}
		if _, err := c.Fetch(t.Context(), k); err == nil {
			t.Fatalf("Fetch of %q returned no error, want %s", id, NotFound)
		}
		parts := strings.Split(uri, "/")
		for i, part := range parts {
			var err error
			if parts[i], err = url.PathUnescape(part); err != nil {
				t.Error(err)
			}
		}
		if diff := gocmp.Diff([]string{"", "boards", id, "users", id, "matches", id}, parts); diff != "" {
			t.Errorf("parts of the path %s (-want +got):\n%s", uri, diff)
		}
		if strings.Contains(uri, "/./") || strings.Contains(uri, "/../") {
			t.Errorf("the path %s has parts that servers remove", uri)
		}
	}
}

func TestRetractions(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		status     int
		want       *pb.GetCanonicalResultResponse
	}{
		{"retracted", `{"board_id":"race","retracted":true,"season":"2026","result":{"user_id":"ann","match_id":"m1","revision":"3"}}`, http.StatusOK,
			&pb.GetCanonicalResultResponse{BoardId: "race", Retracted: true, Season: "2026", Result: &pb.Result{UserId: "ann", MatchId: "m1", Revision: 3}}},
		{"410", strings.Replace(body, `"score":7,`, "", 1), http.StatusGone, func() *pb.GetCanonicalResultResponse {
			a := answer()
			a.Result.Score, a.Retracted = nil, true
			return a
		}()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			base := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(tt.status)
				fmt.Fprint(w, tt.body)
			})
			checkAnswer(t, newClient(t, base, nil), key, tt.want)
		})
	}
}

func TestBadAnswers(t *testing.T) {
	asked := false
	elsewhere := serve(t, func(http.ResponseWriter, *http.Request) { asked = true })
	change := func(old, text string) string { return strings.Replace(body, old, text, 1) }
	for _, tt := range []struct {
		name, body, kind string
		status           int
		problem          Problem
		text             string
	}{
		{"missing", "no", "text/plain", 404, NotFound, "does not have the result"},
		{"bad request", "no such board", "text/plain", 400, Invalid, `status 400: "no such board"`},
		{"conflict", "", "", 409, Invalid, "status 409"},
		{"unprocessable", "", "", 422, Invalid, "status 422"},
		{"wrong key", "", "", 401, Unavailable, "status 401"},
		{"forbidden", "", "", 403, Unavailable, "status 403"},
		{"overloaded", "", "", 429, Unavailable, "status 429"},
		{"failing", strings.Repeat("x", 1<<20), "", 500, Unavailable, "status 500"},
		{"redirect", "", "", 302, Unavailable, "status 302"},
		{"no content", "", "", 204, Unavailable, "status 204"},
		{"HTML", "<html>", "text/html; charset=utf-8", 200, Unavailable, `content type "text/html; charset=utf-8"`},
		{"no type", body, "nonsense;;", 200, Unavailable, "content type"},
		{"gone without a body", "", "application/json", 410, Invalid, "not a result"},
		{"gone without a revision", `{"board_id":"race","season":"all","result":{"user_id":"ann","match_id":"m1"}}`, "application/json", 410, Invalid, "result.revision"},
		{"oversized", `{"x":"` + strings.Repeat("x", MaxAnswerBytes) + `"}`, "application/json", 200, Invalid, "more than 262144 bytes"},
		{"not JSON", "{", "application/json", 200, Invalid, "not a result"},
		{"empty object", "{}", "application/json", 200, Invalid, "no result"},
		{"a list", "[" + body + "]", "application/json", 200, Invalid, "not a result"},
		{"two documents", body + body, "application/json", 200, Invalid, "not a result"},
		{"NaN", change(`"score":7`, `"score":NaN`), "application/json", 200, Invalid, "not a result"},
		{"a fraction", change(`"score":7`, `"score":7.5`), "application/json", 200, Invalid, "not a result"},
		{"beyond 64 bits", change(`"score":7`, `"score":9223372036854775808`), "application/json", 200, Invalid, "not a result"},
		{"a text", change(`"score":7`, `"score":"many"`), "application/json", 200, Invalid, "not a result"},
		{"inexact metadata", change(`"score":7`, `"score":7,"metadata":{"seed":9007199254740993}`), "application/json", 200, Invalid, "result.metadata"},
		{"unknown field", change(`"score":7`, `"scores":7`), "application/json", 200, Invalid, "not a result"},
		{"a field twice", change(`"score":7`, `"score":7,"score":8`), "application/json", 200, Invalid, "not a result"},
		{"other user", change("ann", "bob"), "application/json", 200, Invalid, `result.user_id of the answer is "bob", want "ann"`},
		{"other match", change("m1", "m2"), "application/json", 200, Invalid, "result.match_id"},
		{"other board", change("race", "cup"), "application/json", 200, Invalid, "board_id"},
		{"no board", change(`"board_id":"race",`, ""), "application/json", 200, Invalid, "board_id"},
		{"no time", change(`,"achieved_at":"2026-11-20T10:00:00Z"`, ""), "application/json", 200, Invalid, "achieved_at of the answer is missing"},
		{"a season", change(`{"board_id"`, `{"season":"all","board_id"`), "application/json", 200, Invalid, "retractions only"},
		{"a retraction without a season", `{"board_id":"race","retracted":true,"result":{"user_id":"ann","match_id":"m1","revision":1}}`, "application/json", 200, Invalid, "a retraction needs one of them"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			base := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", tt.kind)
				w.Header().Set("Location", elsewhere)
				w.Header().Set("Retry-After", "17")
				w.WriteHeader(tt.status)
				if tt.status != http.StatusNoContent {
					fmt.Fprint(w, tt.body)
				}
			})
			if wait := checkProblem(t, newClient(t, base, nil), tt.problem, tt.text); (wait == 17*time.Second) != (tt.problem == Unavailable && tt.status != 200) {
				t.Errorf("RetryAfter = %v, want 17s exactly if the store is unavailable", wait)
			}
		})
	}
	if asked {
		t.Error("the client followed a redirect")
	}
}

func TestStoresThatFail(t *testing.T) {
	soon := func(o *Options) { o.Timeout = 100 * time.Millisecond }
	t.Run("refuses", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		checkProblem(t, newClient(t, "http://"+l.Addr().String(), nil), Unavailable, "refused")
		checkProblem(t, newClient(t, "grpc://"+l.Addr().String(), nil), Unavailable, "refused")
	})
	t.Run("accepts and is silent", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		checkProblem(t, newClient(t, "http://"+l.Addr().String(), soon), Unavailable, "deadline")
		checkProblem(t, newClient(t, "grpc://"+l.Addr().String(), soon), Unavailable, "DeadlineExceeded")
	})
	for name, f := range map[string]func(w http.ResponseWriter, r *http.Request){
		"hangs before the answer": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"hangs in the answer": func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, body[:20])
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			base := serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				f(w, r)
			})
			checkProblem(t, newClient(t, base, soon), Unavailable, "deadline")
		})
	}
	t.Run("ends in the answer", func(t *testing.T) {
		base := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, body)
		})
		checkProblem(t, newClient(t, base, nil), Unavailable, "does not end")
	})
}

type store struct {
	pb.UnimplementedCanonicalResultServiceServer
	answer  *pb.GetCanonicalResultResponse
	err     error
	request *pb.GetCanonicalResultRequest
	headers metadata.MD
}

func (s *store) GetCanonicalResult(ctx context.Context, req *pb.GetCanonicalResultRequest) (*pb.GetCanonicalResultResponse, error) {
	s.request = req
	s.headers, _ = metadata.FromIncomingContext(ctx)
	return s.answer, s.err
}

func (s *store) start(t *testing.T, o ...grpc.ServerOption) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(o...)
	pb.RegisterCanonicalResultServiceServer(server, s)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	return l.Addr().String()
}

func TestGRPC(t *testing.T) {
	s := &store{answer: answer()}
	checkAnswer(t, newClient(t, "grpc://"+s.start(t), func(o *Options) { o.Keys = [][]byte{[]byte("key")} }), key, answer())
	if want := (&pb.GetCanonicalResultRequest{BoardId: "race", UserId: "ann", MatchId: "m1"}); !proto.Equal(s.request, want) {
		t.Errorf("the request is %v, want %v", s.request, want)
	}
	if got := s.headers["webhook-signature"]; len(got) != 1 || !strings.HasPrefix(got[0], "v1,") {
		t.Errorf("the signature is %q, want one", got)
	}
}

func TestBadAnswersOverGRPC(t *testing.T) {
	s := &store{}
	c := newClient(t, "grpc://"+s.start(t), nil)
	retry, err := status.New(codes.ResourceExhausted, "busy").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(17 * time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	other := answer()
	other.Result.UserId = "bob"
	large := answer()
	large.Result.Attributes = map[string]string{"a": strings.Repeat("x", MaxAnswerBytes)}
	for _, tt := range []struct {
		name    string
		answer  *pb.GetCanonicalResultResponse
		err     error
		problem Problem
		text    string
	}{
		{"missing", nil, status.Error(codes.NotFound, ""), NotFound, "does not have"},
		{"refused", nil, status.Error(codes.InvalidArgument, "bad"), Invalid, `InvalidArgument: "bad"`},
		{"failing", nil, status.Error(codes.Internal, "bad"), Unavailable, "Internal: bad"},
		{"unknown method", nil, status.Error(codes.Unimplemented, ""), Unavailable, "Unimplemented"},
		{"wrong key", nil, status.Error(codes.Unauthenticated, ""), Unavailable, "Unauthenticated"},
		{"overloaded", nil, retry.Err(), Unavailable, "busy"},
		{"other user", other, nil, Invalid, "result.user_id"},
		{"empty", &pb.GetCanonicalResultResponse{}, nil, Invalid, "board_id"},
		{"oversized", large, nil, Invalid, "at most 262144"},
	} {
		s.answer, s.err = tt.answer, tt.err
		if wait := checkProblem(t, c, tt.problem, tt.text); (wait == 17*time.Second) != (tt.name == "overloaded") {
			t.Errorf("%s: RetryAfter = %v, want 17s for the overloaded store only", tt.name, wait)
		}
	}
}

func TestTLS(t *testing.T) {
	dir := t.TempDir()
	ca, err := authority.New(dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue("both", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	config, err := ca.Server(pair) // requires the certificate of a client
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, body)
	}))
	h.TLS = config.Clone()
	h.Config.ErrorLog = nil
	h.StartTLS()
	t.Cleanup(h.Close)
	s := &store{answer: answer()}
	for _, address := range []string{h.URL, "grpcs://" + s.start(t, grpc.Creds(credentials.NewTLS(config.Clone())))} {
		good := certs.Client{Setting: "canonical.tls", Enabled: "canonical.url", CA: ca.File, Cert: pair.Cert, Key: pair.Key}
		checkAnswer(t, newClient(t, address, func(o *Options) { o.TLS = good }), key, answer())
		stranger := good
		stranger.CA = ""
		checkProblem(t, newClient(t, address, func(o *Options) { o.TLS = stranger }), Unavailable, "set canonical.tls.ca")
		bare := good
		bare.Cert, bare.Key = "", ""
		checkProblem(t, newClient(t, address, func(o *Options) { o.TLS = bare }), Unavailable, "")
	}
	plain := serve(t, func(http.ResponseWriter, *http.Request) {})
	secure := "https" + strings.TrimPrefix(plain, "http")
	checkProblem(t, newClient(t, secure, func(o *Options) { o.TLS = certs.Client{Setting: "canonical.tls", Enabled: "canonical.url"} }), Unavailable, "see canonical.url")
	u, err := url.Parse("https://h")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(Options{URL: u, TLS: certs.Client{Setting: "canonical.tls", CA: dir + "/none"}}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("New with a missing file: error %v", err)
	}
}

// The first vector is of the tests of Standard Webhooks: the key, id, time and content have this signature.
func TestSignature(t *testing.T) {
	first, err := base64.StdEncoding.DecodeString("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	got := sign([][]byte{first, []byte("other")}, "msg_p5jXN8AQM9LWM0D4loKWxJek", `{"test": 2432232314}`, time.Unix(1614265330, 0))
	signature, other, _ := strings.Cut(got["webhook-signature"], " ")
	if signature != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" || !strings.HasPrefix(other, "v1,") || other == signature ||
		got["webhook-id"] != "msg_p5jXN8AQM9LWM0D4loKWxJek" || got["webhook-timestamp"] != "1614265330" {
		t.Errorf("sign = %v, want the signature of the vector, and a second one", got)
	}
}

// The signature is of the path below the address of the store.
func TestRequestsAreSigned(t *testing.T) {
	var header http.Header
	var path string
	base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		header, path = r.Header, strings.TrimPrefix(r.RequestURI, "/v1")
		w.WriteHeader(http.StatusNotFound)
	})
	secret := []byte("a key of 24 bytes at least")
	checkProblem(t, newClient(t, base+"/v1", func(o *Options) { o.Keys = [][]byte{secret} }), NotFound, "")
	var at int64
	if _, err := fmt.Sscan(header.Get("webhook-timestamp"), &at); err != nil || time.Since(time.Unix(at, 0)).Abs() > time.Hour {
		t.Fatalf("webhook-timestamp is %q, want the present time: %v", header.Get("webhook-timestamp"), err)
	}
	id, signature := header.Get("webhook-id"), header.Get("webhook-signature")
	if id == "" || signature != sign([][]byte{secret}, id, path, time.Unix(at, 0))["webhook-signature"] {
		t.Errorf("the request of %s has the headers %v, want a signature of the path", path, header)
	}
}

// Requests one after another share a connection, whatever the answers.
func TestConnectionsAreReused(t *testing.T) {
	var connections atomic.Int32
	statuses := []int{404, 500, 200, 429, 400, 302, 410, 404, 404}
	i := 0
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(statuses[i])
		fmt.Fprint(w, strings.Repeat("x", 3000))
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	c := newClient(t, s.URL, nil)
	for i = range statuses {
		if _, err := c.Fetch(t.Context(), key); err == nil {
			t.Fatalf("an answer with the status %d has no error", statuses[i])
		}
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("%d requests have opened %d connections, want one", len(statuses), n)
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "5": 5 * time.Second, "-5": 0, "soon": 0, "1e3": 0, "99999999": time.Hour, "99999999999999999999": 0,
		"Fri, 20 Nov 2026 10:00:30 GMT": 30 * time.Second, "Fri, 20 Nov 2026 09:00:00 GMT": 0, "Fri, 20 Nov 2099 10:00:30 GMT": time.Hour,
	} {
		if got := retryAfter(text, now); got != want {
			t.Errorf("retryAfter(%q) = %v, want %v", text, got, want)
		}
	}
}

// Arbitrary bytes are refused, or decoded to an answer about the key that was asked for.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte(body))
	f.Add([]byte(`{"board_id":"race","retracted":true,"season":"2026","result":{"user_id":"ann","match_id":"m1","revision":"3"}}`))
	f.Add([]byte(`{"result":{"metadata":{"a":[1e400,{"b":null}]}}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		a, err := decode(body)
		if err != nil || check(key, a) != nil {
			return
		}
		r := a.GetResult()
		if a.GetBoardId() != "race" || r.GetUserId() != "ann" || r.GetMatchId() != "m1" || r.GetAchievedAt() == nil && (!a.GetRetracted() || a.GetSeason() == "") {
			t.Errorf("accepted %v", a)
		}
	})
}

// The answer in the guide for operators is valid.
func TestDocumentedAnswer(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations/game-store.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "```json\n")
	text, _, _ = strings.Cut(text, "```")
	a, err := decode([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := check(Key{Board: "race", User: "ada", Match: "m1"}, a); err != nil {
		t.Error(err)
	}
}

// The function in the guide for operators accepts a signature, and no other.
func TestDocumentedVerification(t *testing.T) {
	needs.Slow(t, "clients")
	needs.Programs(t, "python3")
	page, err := os.ReadFile("../../docs/operations/game-store.md")
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := strings.Cut(string(page), "```python\n")
	program, _, _ = strings.Cut(program, "```")
	verify := func(path string, headers map[string]string) string {
		t.Helper()
		data, err := json.Marshal(headers)
		if err != nil {
			t.Fatal(err)
		}
		call := program + "\nimport json, sys\nprint(verify(sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]))\n"
		out, err := exec.CommandContext(t.Context(), "python3", "-c", call, "whsec_"+base64.StdEncoding.EncodeToString(make([]byte, 24)), string(data), path).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return strings.TrimSpace(string(out))
	}
	keys := [][]byte{[]byte("another"), make([]byte, 24)}
	k := Key{Board: "race", User: "a/b", Match: "m1"}
	for _, tt := range []struct {
		name, path string
		headers    map[string]string
		want       string
	}{
		{"signed", k.path(), sign(keys, "id", k.path(), time.Now()), "True"},
		{"another path", k.path() + "2", sign(keys, "id", k.path(), time.Now()), "False"},
		{"another key", k.path(), sign(keys[:1], "id", k.path(), time.Now()), "False"},
		{"an hour ago", k.path(), sign(keys, "id", k.path(), time.Now().Add(-time.Hour)), "False"},
	} {
		if got := verify(tt.path, tt.headers); got != tt.want {
			t.Errorf("%s: verify returns %s, want %s", tt.name, got, tt.want)
		}
	}
}
