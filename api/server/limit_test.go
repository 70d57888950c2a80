package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/api/auth"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/secret"
)

func TestLimitsPerKey(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	h := newHarness(t, Options{Now: func() time.Time { return now }, Limits: auth.Limits{PerKey: auth.Rate{PerSecond: 0.5, Burst: 3}}})
	for i := range 3 {
		if a := h.do("read", "GET", "/v1/scores", nil); a.status != http.StatusOK {
			t.Fatalf("call %d: %d %s, want 200", i+1, a.status, a.raw)
		}
	}
	a := h.do("read", "GET", "/v1/scores", nil)
	if a.status != http.StatusTooManyRequests || a.body["status"] != "RESOURCE_EXHAUSTED" || a.reason() != "RATE_LIMITED" || a.header.Get("Retry-After") != "2" {
		t.Errorf("call 4: %d, Retry-After %q, %s; want 429 and 2", a.status, a.header.Get("Retry-After"), a.raw)
	}
	if _, err := h.client().ListScores(h.as("read"), &pb.ListScoresRequest{}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("call over gRPC with the same key: %v, want RESOURCE_EXHAUSTED", err)
	}
	if a := h.do("submit", "GET", "/v1/scores", nil); a.status != http.StatusOK {
		t.Errorf("call with another key: %d %s, want 200", a.status, a.raw)
	}
	now = now.Add(2 * time.Second)
	if a := h.do("read", "GET", "/v1/scores?bogus=1", nil); a.status != http.StatusBadRequest {
		t.Errorf("an invalid request after 2 s: %d %s, want 400", a.status, a.raw)
	}
	if a := h.do("read", "GET", "/v1/scores", nil); a.status != http.StatusTooManyRequests {
		t.Errorf("the request after the invalid one: %d %s, want 429", a.status, a.raw)
	}
	retry, _ := strconv.Atoi(a.header.Get("Retry-After"))
	now = now.Add(time.Duration(retry) * time.Second)
	if a := h.do("read", "GET", "/v1/scores", nil); a.status != http.StatusOK {
		t.Errorf("the request after the time in Retry-After: %d %s, want 200", a.status, a.raw)
	}
}

// The server refuses a call because of its rate or scope without reading the message.
func TestLimitedCallsAreNotRead(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	h := newHarness(t, Options{Now: func() time.Time { return now }, Limits: auth.Limits{PerKey: auth.Rate{PerSecond: 1, Burst: 1}}})
	const garbage = "\xff\xff" // neither JSON nor an encoded message
	rest := func(scope string, read *bool) int {
		req := httptest.NewRequest(http.MethodPost, "/v1/scores:batch", readerFunc(func(p []byte) (int, error) {
			*read = true
			return copy(p, garbage), io.EOF
		}))
		req.Header.Set("Authorization", "Bearer "+h.keys[scope])
		w := httptest.NewRecorder()
		h.Handler().ServeHTTP(w, req)
		return w.Code
	}
	overGRPC := func(scope string) codes.Code {
		return status.Code(h.conn.Invoke(h.as(scope), pb.LeaderboardService_BatchSubmitScores_FullMethodName, []byte(garbage), &pb.BatchSubmitScoresResponse{}, grpc.ForceCodec(bytesCodec{})))
	}
	var read bool
	if got := rest("submit", &read); got != http.StatusBadRequest || !read {
		t.Errorf("the first call over REST: %d, body read: %t; want 400 and true", got, read)
	}
	if got := overGRPC("admin"); got != codes.InvalidArgument {
		t.Errorf("the first call over gRPC: %v, want INVALID_ARGUMENT", got)
	}
	h.keys["invalid"] = "lbk_invalid"
	for _, tt := range []struct {
		scope string
		code  int
		grpc  codes.Code
	}{
		{"submit", http.StatusTooManyRequests, codes.ResourceExhausted},
		{"read", http.StatusForbidden, codes.ResourceExhausted}, // the REST call took the only token of the key's bucket
		{"invalid", http.StatusUnauthorized, codes.Unauthenticated},
	} {
		read = false
		if got := rest(tt.scope, &read); got != tt.code || read {
			t.Errorf("REST call with the key %s: %d, body read: %t; want %d and false", tt.scope, got, read, tt.code)
		}
		if got := overGRPC(tt.scope); got != tt.grpc {
			t.Errorf("gRPC call with the key %s: %v, want %v", tt.scope, got, tt.grpc)
		}
	}
}

type bytesCodec struct{}

func (bytesCodec) Name() string                    { return "proto" }
func (bytesCodec) Marshal(v any) ([]byte, error)   { return v.([]byte), nil }
func (bytesCodec) Unmarshal(b []byte, v any) error { return proto.Unmarshal(b, v.(proto.Message)) }

func TestLimitsPerUser(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	h := newHarness(t, Options{Now: func() time.Time { return now }, Limits: auth.Limits{PerUser: auth.Rate{PerSecond: 1, Burst: 2}}})
	submit := func(user string) int {
		return h.do("submit", "POST", "/v1/scores", fmt.Sprintf(`{"user_id":%q,"points":1}`, user)).status
	}
	for i, want := range []int{200, 200, 429} {
		if got := submit("u"); got != want {
			t.Errorf("submit %d: %d, want %d", i+1, got, want)
		}
	}
	if got := submit("v"); got != http.StatusOK {
		t.Errorf("submit for another user: %d, want 200", got)
	}
	// Each result of a batch takes a token from its user's bucket. If a user has more results than
	// a bucket can hold tokens, a full bucket is enough.
	now = now.Add(10 * time.Second)
	three := `{"results":[{"user_id":"u","points":1},{"user_id":"w","points":1},{"user_id":"u","points":1},{"user_id":"u","points":1}]}`
	if a := h.do("admin", "POST", "/v1/scores:batch", three); a.status != http.StatusOK {
		t.Errorf("batch with 3 results of u: %d %s, want 200", a.status, a.raw)
	}
	if got := submit("u"); got != http.StatusTooManyRequests {
		t.Errorf("submit after the batch: %d, want 429", got)
	}
	if a := h.do("submit", "POST", "/v1/boards/default/results/u/m:retract", `{}`); a.status != http.StatusTooManyRequests {
		t.Errorf("retraction after the batch: %d %s, want 429", a.status, a.raw)
	}
	if a := h.do("read", "GET", "/v1/scores/u", nil); a.status != http.StatusOK {
		t.Errorf("read after the batch: %d %s, want 200", a.status, a.raw)
	}
}

// A refused batch takes no tokens from any user.
func TestLimitsPerUserAreTakenTogether(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	h := newHarness(t, Options{Now: func() time.Time { return now }, Limits: auth.Limits{PerUser: auth.Rate{PerSecond: 0.5, Burst: 2}}})
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
	a := h.do("submit", "POST", "/v1/scores:batch", results(slices.Clone(users)...))
	if a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") != "4" || !strings.Contains(a.raw, "busier") {
		t.Errorf("batch with busy users: %d, Retry-After %q, %s; want 429, 4 and the user busier", a.status, a.header.Get("Retry-After"), a.raw)
	}
	var all []string
	for _, user := range users[4:] {
		all = append(all, user, user)
	}
	if a := h.do("submit", "POST", "/v1/scores:batch", results(append(all, "busy")...)); a.status != http.StatusOK {
		t.Errorf("batch that needs the full buckets of the other users: %d %.300s, want 200", a.status, a.raw)
	}
}

func TestLimitsPerPeer(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	h := newHarness(t, Options{Now: func() time.Time { return now }, PublicRead: true, Limits: auth.Limits{PerPeer: auth.Rate{PerSecond: 1, Burst: 2}}})
	h.keys["invalid"] = "lbk_invalid"
	for i, want := range []int{200, 401, 429} { // the second call has an invalid key, the others no key
		scope := ""
		if i == 1 {
			scope = "invalid"
		}
		if a := h.do(scope, "GET", "/v1/scores", nil); a.status != want {
			t.Errorf("call %d: %d %s, want %d", i+1, a.status, a.raw, want)
		}
	}
	if a := h.do("read", "GET", "/v1/scores", nil); a.status != http.StatusOK {
		t.Errorf("call with a valid key: %d %s, want 200", a.status, a.raw)
	}
}

// A batch larger than the bucket makes the number of tokens negative.
func TestBatchesCountEveryResult(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	h := newHarness(t, Options{Now: func() time.Time { return now }, Limits: auth.Limits{PerUser: auth.Rate{PerSecond: 1, Burst: 2}}})
	batch := `{"results":[` + strings.Repeat(`{"user_id":"u","points":1},`, 99) + `{"user_id":"u","points":1}]}`
	h.must("submit", "POST", "/v1/scores:batch", batch)
	for _, tt := range []struct {
		after time.Duration
		want  int
	}{{2 * time.Second, 429}, {97 * time.Second, 429}, {99 * time.Second, 200}, {99 * time.Second, 429}} {
		later := now.Add(tt.after)
		now = later
		if a := h.do("submit", "POST", "/v1/scores", `{"user_id":"u","points":1}`); a.status != tt.want {
			t.Errorf("submit %v after a batch of 100: %d %s, want %d", tt.after, a.status, a.raw, tt.want)
		} else if a.status == 429 && a.header.Get("Retry-After") == "" {
			t.Errorf("submit %v after a batch of 100: the answer has no Retry-After", tt.after)
		}
		now = later.Add(-tt.after)
	}
}

type countingStore struct {
	leaderboard.Store
	lookups, lists atomic.Int64
}

func (c *countingStore) APIKey(ctx context.Context, hash [32]byte) (leaderboard.APIKey, error) {
	c.lookups.Add(1)
	return c.Store.APIKey(ctx, hash)
}

func (c *countingStore) APIKeys(ctx context.Context) ([]leaderboard.APIKey, error) {
	c.lists.Add(1)
	return c.Store.APIKeys(ctx)
}

func (h *harness) getFrom(client, key, path string) answer {
	h.t.Helper()
	req, err := http.NewRequestWithContext(h.t.Context(), http.MethodGet, h.http.URL+path, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set(forwardedFor, client)
	return h.send(req)
}

// Many clients may share the address of a NAT or a proxy. After five invalid keys from an address, further
// ones are refused with 429, and cost the store a few lists of all keys. Valid keys, cached or not, are
// accepted.
func TestInvalidKeysDoNotLimitValidOnes(t *testing.T) {
	base := newHarness(t, Options{})
	keys := &countingStore{Store: base.store}
	h := serve(t, base.service, keys, Options{
		Limits:         auth.Limits{PerPeer: auth.Rate{PerSecond: 0.001, Burst: 5}},
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
	})
	const address = "192.0.2.1"
	valid := func(scope string) {
		t.Helper()
		if a := h.getFrom(address, h.keys[scope], "/v1/scores"); a.status != http.StatusOK {
			t.Errorf("call with the valid key %s: %d %s, want 200", scope, a.status, a.raw)
		}
	}
	valid("read")
	for i := range 5 {
		if a := h.getFrom(address, fmt.Sprintf("invalid-%d", i), "/v1/scores"); a.status != http.StatusUnauthorized {
			t.Fatalf("invalid key %d: %d %s, want 401", i+1, a.status, a.raw)
		}
	}
	var group errgroup.Group
	for i := range 100 {
		group.Go(func() error {
			if a := h.getFrom(address, fmt.Sprintf("invalid-%d", i), "/v1/scores"); a.status != http.StatusTooManyRequests {
				return fmt.Errorf("invalid key %d after 5 others: %d %s, want 429", i+1, a.status, a.raw)
			}
			return nil
		})
	}
	valid("read")
	valid("submit")
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
	if lookups, lists := keys.lookups.Load(), keys.lists.Load(); lookups != 6 || lists == 0 || lists > 50 {
		t.Errorf("the store was read %d times for one key and %d times for all; want 6 (a valid key and 5 invalid keys) and 1 to 50", lookups, lists)
	}
	valid("admin")
	secret, key := auth.NewKey("new", []string{"read"}, time.Now())
	if err := h.store.PutAPIKey(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	h.keys["new"] = string(secret)
	valid("new")
	expired, key := auth.NewKey("expired", []string{"read"}, time.Now())
	key.ExpiresAt = time.Now().Add(-time.Second)
	if err := h.store.PutAPIKey(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if a := h.getFrom(address, string(expired), "/v1/scores"); a.status != http.StatusTooManyRequests {
		t.Errorf("call with an expired key: %d %s, want 429", a.status, a.raw)
	}
}

// While the store is down, a neighbor's invalid keys do not change the answer.
func TestKeysAreNotLimitedWhileTheStoreIsDown(t *testing.T) {
	base := newHarness(t, Options{})
	keys := &brokenKeys{Store: base.store}
	h := serve(t, base.service, keys, Options{Limits: auth.Limits{PerPeer: auth.Rate{PerSecond: 1, Burst: 2}}})
	h.keys["invalid"] = "lbk_invalid"
	h.do("invalid", "GET", "/v1/scores", nil)
	h.do("invalid", "GET", "/v1/scores", nil)
	keys.broken.Store(true)
	if a := h.do("read", "GET", "/v1/scores", nil); a.status != http.StatusServiceUnavailable {
		t.Errorf("call with a valid key while the store is down: %d %s, want 503", a.status, a.raw)
	}
	keys.broken.Store(false)
	h.must("read", "GET", "/v1/scores", nil)
}

type brokenKeys struct {
	leaderboard.Store
	broken atomic.Bool
}

func (b *brokenKeys) APIKeys(ctx context.Context) ([]leaderboard.APIKey, error) {
	if b.broken.Load() {
		return nil, fmt.Errorf("test: %w", leaderboard.ErrUnavailable)
	}
	return b.Store.APIKeys(ctx)
}

func TestInvalidTokensDoNotLimitValidOnes(t *testing.T) {
	key := []byte(strings.Repeat("s", 32))
	h := newHarness(t, Options{
		JWT:            auth.JWT{Algorithm: "HS256", Secret: secret.Text(key), Issuer: "https://id.example", Audience: "leaderboard"},
		Now:            func() time.Time { return tokenNow },
		Limits:         auth.Limits{PerPeer: auth.Rate{PerSecond: 0.001, Burst: 5}},
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
	})
	const address = "192.0.2.1"
	valid, invalid := sign(t, key, nil), sign(t, []byte(strings.Repeat("x", 32)), nil)
	for i, want := range []int{401, 401, 401, 401, 401, 429, 429} {
		if a := h.getFrom(address, invalid, "/v1/scores"); a.status != want {
			t.Errorf("invalid token %d: %d %s, want %d", i+1, a.status, a.raw, want)
		}
		if a := h.getFrom(address, valid, "/v1/scores"); a.status != http.StatusOK {
			t.Errorf("a valid token after %d invalid tokens: %d %s, want 200", i+1, a.status, a.raw)
		}
	}
}

func TestWatchersAreLimitedPerCaller(t *testing.T) {
	h := newHarness(t, Options{MaxWatchers: 10, MaxCallerWatchers: 2, PublicRead: true})
	first, second := h.watch("/v1/boards/default/watch"), h.watch("/v1/boards/default/watch")
	first.next()
	second.next()
	a := h.do("read", "GET", "/v1/boards/default/watch", nil)
	if a.status != http.StatusTooManyRequests || a.reason() != "TOO_MANY_WATCHERS" || a.header.Get("Retry-After") == "" {
		t.Errorf("third watch with one key: %d %s, want 429 with TOO_MANY_WATCHERS", a.status, a.raw)
	}
	for _, scope := range []string{"submit", ""} {
		ctx := h.as(scope)
		stream, err := h.client().WatchScores(ctx, &pb.WatchScoresRequest{Board: "default"})
		if err == nil {
			_, err = stream.Recv()
		}
		if err != nil {
			t.Errorf("watch with the key %q: %v, want nil", scope, err)
		}
	}
	first.body.Close()
	waitFor(t, "the handler to end", func() bool { return h.watches.len() == 2 })
	h.watch("/v1/boards/default/watch").next()
}

func (h *harness) reflect(ctx context.Context) reflectionpb.ServerReflection_ServerReflectionInfoClient {
	h.t.Helper()
	stream, err := reflectionpb.NewServerReflectionClient(h.conn).ServerReflectionInfo(ctx)
	if err != nil {
		h.t.Fatal(err)
	}
	return stream
}

func listServices(stream reflectionpb.ServerReflection_ServerReflectionInfoClient) error {
	_ = stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}) // Recv returns the error
	_, err := stream.Recv()
	return err
}

// A stream counts as one call for each message. Its first message is the call itself.
func TestStreamMessagesCount(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	limit := auth.Rate{PerSecond: 1, Burst: 3}
	h := newHarness(t, Options{Now: func() time.Time { return now }, Limits: auth.Limits{PerPeer: limit, PerKey: limit}})
	for _, scope := range []string{"", "read"} {
		stream := h.reflect(h.as(scope))
		for i, want := range []codes.Code{codes.OK, codes.OK, codes.OK, codes.ResourceExhausted} {
			err := listServices(stream)
			if status.Code(err) != want || err != nil && reasonOf(err) != "RATE_LIMITED" {
				t.Errorf("message %d with the key %q: %v, want %v", i+1, scope, err, want)
			}
		}
		if err := listServices(h.reflect(h.as(scope))); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("another stream with the key %q: %v, want RESOURCE_EXHAUSTED", scope, err)
		}
	}
	if _, err := h.client().ListScores(h.as("submit"), &pb.ListScoresRequest{}); err != nil {
		t.Errorf("call with another key: %v, want nil", err)
	}
}

// Streams without keys have a pool of their own. They take no places of callers with keys, whose health
// watches take no places of their watches either.
func TestAnonymousStreamsHaveTheirOwnPool(t *testing.T) {
	h := newHarness(t, Options{PublicRead: true, MaxWatchers: 1, MaxCallerWatchers: 1, MaxAnonymousStreams: 3, MaxPeerStreams: 2,
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	from := func(client string) context.Context {
		return metadata.AppendToOutgoingContext(t.Context(), "x-forwarded-for", client)
	}
	kinds := map[string]func(context.Context) error{
		"reflection": func(ctx context.Context) error { return listServices(h.reflect(ctx)) },
		"health": func(ctx context.Context) error {
			stream, err := healthpb.NewHealthClient(h.conn).Watch(ctx, &healthpb.HealthCheckRequest{})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		},
		"scores": func(ctx context.Context) error {
			stream, err := h.client().WatchScores(ctx, &pb.WatchScoresRequest{Board: "default"})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		},
	}
	check := func(kind string, ctx context.Context, want codes.Code) {
		t.Helper()
		if err := kinds[kind](ctx); status.Code(err) != want {
			t.Errorf("%s: %v, want %v", kind, err, want)
		}
	}
	check("health", from("192.0.2.1"), codes.OK)
	check("scores", from("192.0.2.1"), codes.OK)
	check("reflection", from("192.0.2.1"), codes.ResourceExhausted) // the third of this address
	check("health", from("192.0.2.2"), codes.OK)
	check("health", from("192.0.2.3"), codes.ResourceExhausted) // the fourth of all
	check("health", h.as("read"), codes.OK)
	check("scores", h.as("read"), codes.OK)
	check("scores", h.as("submit"), codes.ResourceExhausted) // MaxWatchers
	check("health", h.as("submit"), codes.ResourceExhausted)
}

// A client that keeps sending, and one that reads nothing, cannot keep a stream without a key.
func TestAnonymousStreamsExpire(t *testing.T) {
	h := newHarness(t, Options{PublicRead: true})
	if h.anonymousLifetime != time.Hour {
		t.Errorf("anonymousLifetime is %v, want 1 h", h.anonymousLifetime)
	}
	h.anonymousLifetime = 100 * time.Millisecond
	expired := func(what string, err error) {
		t.Helper()
		if status.Code(err) != codes.Unavailable || reasonOf(err) != "STREAM_EXPIRED" {
			t.Errorf("%s: %v, want UNAVAILABLE with STREAM_EXPIRED", what, err)
		}
	}
	stream := h.reflect(t.Context())
	var err error
	for err == nil {
		err = listServices(stream)
	}
	expired("reflection with traffic", err)
	stream = h.reflect(t.Context())
	request := &reflectionpb.ServerReflectionRequest_FileByFilename{FileByFilename: "leaderboard/v1/leaderboard_service.proto"}
	go func() { // the answers fill the window of the stream, which nobody reads, so a Send may wait
		for stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: request}) == nil {
		}
	}()
	_, err = stream.Recv() // so the stream has begun
	waitFor(t, "the handler of a stream that is not read to end", func() bool { return h.anonymousStreams.len() == 0 })
	for err == nil { // the end follows the answers
		_, err = stream.Recv()
	}
	expired("reflection that is not read", err)
	health, err := healthpb.NewHealthClient(h.conn).Watch(t.Context(), &healthpb.HealthCheckRequest{})
	for err == nil {
		_, err = health.Recv()
	}
	expired("health watch", err)
	scores, err := h.client().WatchScores(t.Context(), &pb.WatchScoresRequest{Board: "default"})
	for err == nil {
		_, err = scores.Recv()
	}
	expired("watch", err)
	if a := h.do("", "GET", "/v1/boards/default/watch", nil); !strings.Contains(a.raw, "event: reconnect\nretry: ") {
		t.Errorf("the events of a watch without a key are %q, want the event reconnect at the end", a.raw)
	}
	keyed, err := h.client().WatchScores(h.as("read"), &pb.WatchScoresRequest{Board: "default"})
	if err == nil {
		_, err = keyed.Recv()
	}
	if err != nil {
		t.Fatalf("watch with a key: %v, want nil", err)
	}
	waitFor(t, "the streams without keys to end", func() bool { return h.anonymousStreams.len() == 0 })
	if n := h.watches.len(); n != 1 {
		t.Errorf("the server has %d watches with keys, want 1", n)
	}
}
