package api

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

func TestLimitsPerKey(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	h := newHarness(t, Options{Now: func() time.Time { return now }, Limits: Limits{PerKey: Rate{PerSecond: 0.5, Burst: 3}}})
	for i := range 3 {
		if a := h.do("read", "GET", "/v1/scores", nil); a.status != http.StatusOK {
			t.Fatalf("call %d: %d %s", i, a.status, a.raw)
		}
	}
	a := h.do("read", "GET", "/v1/scores", nil)
	if a.status != http.StatusTooManyRequests || a.body["status"] != "RESOURCE_EXHAUSTED" || a.reason() != "RATE_LIMITED" || a.header.Get("Retry-After") != "2" {
		t.Errorf("call 4: %d, Retry-After %q, %s; want 429 and 2", a.status, a.header.Get("Retry-After"), a.raw)
	}
	if _, err := h.client().ListScores(h.as("read"), &pb.ListScoresRequest{}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("gRPC with the same key: %v", err)
	}
	// Bad requests count too, other keys do not, and waiting helps.
	if a := h.do("submit", "GET", "/v1/scores", nil); a.status != http.StatusOK {
		t.Errorf("another key: %d %s", a.status, a.raw)
	}
	now = now.Add(2 * time.Second)
	if a := h.do("read", "GET", "/v1/scores?bogus=1", nil); a.status != http.StatusBadRequest {
		t.Errorf("after 2 s: %d %s", a.status, a.raw)
	}
	if a := h.do("read", "GET", "/v1/scores", nil); a.status != http.StatusTooManyRequests {
		t.Errorf("after a bad request: %d %s", a.status, a.raw)
	}
	retry, _ := strconv.Atoi(a.header.Get("Retry-After"))
	now = now.Add(time.Duration(retry) * time.Second)
	if a := h.do("read", "GET", "/v1/scores", nil); a.status != http.StatusOK {
		t.Errorf("after Retry-After: %d %s", a.status, a.raw)
	}
}

// Of a call that its key's rate or scope refuses no body is read, and no
// message received.
func TestLimitedCallsAreNotRead(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	h := newHarness(t, Options{Now: func() time.Time { return now }, Limits: Limits{PerKey: Rate{PerSecond: 1, Burst: 1}}})
	const garbage = "\xff\xff" // no message, so that who decodes it says so
	rest := func(scope string, read *bool) int {
		req := httptest.NewRequest("POST", "/v1/scores:batch", readerFunc(func(p []byte) (int, error) {
			*read = true
			return copy(p, garbage), io.EOF
		}))
		req.Header.Set("Authorization", "Bearer "+string(h.keys[scope]))
		w := httptest.NewRecorder()
		h.Handler().ServeHTTP(w, req)
		return w.Code
	}
	overGRPC := func(scope string) codes.Code {
		return status.Code(h.conn.Invoke(h.as(scope), pb.LeaderboardService_BatchSubmitScores_FullMethodName, []byte(garbage), &pb.BatchSubmitScoresResponse{}, grpc.ForceCodec(bytesCodec{})))
	}
	var read bool
	if got := rest("submit", &read); got != http.StatusBadRequest || !read {
		t.Errorf("the first call: %d, read %t, want 400 and true", got, read)
	}
	if got := overGRPC("admin"); got != codes.InvalidArgument {
		t.Errorf("the first call over gRPC: %v", got)
	}
	h.keys["guess"] = "lbk_guess"
	for _, tt := range []struct {
		scope string
		code  int
		grpc  codes.Code
	}{
		{"submit", http.StatusTooManyRequests, codes.ResourceExhausted},
		{"read", http.StatusForbidden, codes.ResourceExhausted}, // being refused took its token
		{"guess", http.StatusUnauthorized, codes.Unauthenticated},
	} {
		read = false
		if got := rest(tt.scope, &read); got != tt.code || read {
			t.Errorf("%s: %d, read %t, want %d and false", tt.scope, got, read, tt.code)
		}
		if got := overGRPC(tt.scope); got != tt.grpc {
			t.Errorf("%s over gRPC: %v, want %v", tt.scope, got, tt.grpc)
		}
	}
}

// bytesCodec sends bytes as they are.
type bytesCodec struct{}

func (bytesCodec) Name() string                    { return "proto" }
func (bytesCodec) Marshal(v any) ([]byte, error)   { return v.([]byte), nil }
func (bytesCodec) Unmarshal(b []byte, v any) error { return proto.Unmarshal(b, v.(proto.Message)) }

func TestLimitsPerUser(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	h := newHarness(t, Options{Now: func() time.Time { return now }, Limits: Limits{PerUser: Rate{PerSecond: 1, Burst: 2}}})
	submit := func(user string) int {
		return h.do("submit", "POST", "/v1/scores", fmt.Sprintf(`{"user_id":%q,"points":1}`, user)).status
	}
	for i, want := range []int{200, 200, 429} {
		if got := submit("u"); got != want {
			t.Errorf("result %d: %d, want %d", i, got, want)
		}
	}
	if got := submit("v"); got != http.StatusOK {
		t.Errorf("another user: %d", got)
	}
	// A batch takes as many as it has results of the user; one that is larger
	// than the bucket takes all of it, so that it can be sent at all.
	now = now.Add(10 * time.Second)
	three := `{"results":[{"user_id":"u","points":1},{"user_id":"w","points":1},{"user_id":"u","points":1},{"user_id":"u","points":1}]}`
	if a := h.do("admin", "POST", "/v1/scores:batch", three); a.status != http.StatusOK {
		t.Errorf("a batch: %d %s", a.status, a.raw)
	}
	if got := submit("u"); got != http.StatusTooManyRequests {
		t.Errorf("after the batch: %d", got)
	}
	if a := h.do("submit", "POST", "/v1/boards/default/results/u/m:retract", `{}`); a.status != http.StatusTooManyRequests {
		t.Errorf("a retraction after the batch: %d %s", a.status, a.raw)
	}
	if a := h.do("read", "GET", "/v1/scores/u", nil); a.status != http.StatusOK {
		t.Errorf("reading: %d %s", a.status, a.raw)
	}
}

// A batch takes tokens of all of its users or of none.
func TestLimitsPerUserAreTakenTogether(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	h := newHarness(t, Options{Now: func() time.Time { return now }, Limits: Limits{PerUser: Rate{PerSecond: 0.5, Burst: 2}}})
	results := func(users ...string) string {
		for i, user := range users {
			users[i] = fmt.Sprintf(`{"user_id":%q,"points":1}`, user)
		}
		return `{"results":[` + strings.Join(users, ",") + `]}`
	}
	h.must("submit", "POST", "/v1/scores:batch", results("busy", "busier", "busier"))
	users := []string{"busy", "busy", "busier", "busier"}
	for i := range 50 {
		users = append(users, fmt.Sprintf("u%d", i))
	}
	// The answer names the longest wait.
	a := h.do("submit", "POST", "/v1/scores:batch", results(slices.Clone(users)...))
	if a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") != "4" || !strings.Contains(a.raw, "busier") {
		t.Errorf("a batch with busy users: %d, Retry-After %q, %s", a.status, a.header.Get("Retry-After"), a.raw)
	}
	var all []string
	for _, user := range users[4:] {
		all = append(all, user, user)
	}
	if a := h.do("submit", "POST", "/v1/scores:batch", results(append(all, "busy")...)); a.status != http.StatusOK {
		t.Errorf("the others' batch: %d %.300s", a.status, a.raw)
	}
}

func TestLimitsPerPeer(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	h := newHarness(t, Options{Now: func() time.Time { return now }, PublicRead: true, Limits: Limits{PerPeer: Rate{PerSecond: 1, Burst: 2}}})
	h.keys["guess"] = "lbk_guess"
	for i, want := range []int{200, 401, 429} { // guesses count like calls without a key
		scope := ""
		if i == 1 {
			scope = "guess"
		}
		if a := h.do(scope, "GET", "/v1/scores", nil); a.status != want {
			t.Errorf("call %d: %d %s, want %d", i, a.status, a.raw, want)
		}
	}
	if a := h.do("read", "GET", "/v1/scores", nil); a.status != http.StatusOK {
		t.Errorf("with a key: %d %s", a.status, a.raw)
	}
}

type testAddr string

func (testAddr) Network() string  { return "tcp" }
func (a testAddr) String() string { return string(a) }

func TestPeerKeys(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.7:1234":            "192.0.2.7",
		"[::ffff:192.0.2.7]:1":      "192.0.2.7",
		"[2001:db8:1:2:3:4:5:6]:80": "2001:db8:1:2::/64",
		"[2001:db8:1:2::9%eth0]:80": "2001:db8:1:2::/64",
		"bufconn":                   "bufconn",
	} {
		if got := peerKey(testAddr(addr)); got != want {
			t.Errorf("%s is %s, want %s", addr, got, want)
		}
	}
}

func TestBuckets(t *testing.T) {
	if newBuckets(Rate{}) != nil || newBuckets(Rate{PerSecond: -1}) != nil {
		t.Error("no limit has buckets")
	}
	now := time.Now()
	b := newBuckets(Rate{PerSecond: 2.5}) // a burst of 3
	for i := range 3 {
		if wait := b.take("k", now); wait != 0 {
			t.Errorf("token %d: wait %v", i, wait)
		}
	}
	if wait := b.take("k", now); wait != 400*time.Millisecond {
		t.Errorf("an empty bucket: wait %v, want 400ms", wait)
	}
	// What was refused took nothing.
	if wait := b.take("k", now.Add(400*time.Millisecond)); wait != 0 {
		t.Errorf("400 ms later: wait %v", wait)
	}
	// Memory is bounded.
	for i := range maxBuckets + 10 {
		b.take("k"+strings.Repeat("x", i%3)+strconv.Itoa(i), now)
	}
	if n := b.byKey.Len(); n != maxBuckets {
		t.Errorf("%d buckets are kept, want %d", n, maxBuckets)
	}
}
