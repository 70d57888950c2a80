package server

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"flag"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/api/auth"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/embedded"
)

func TestMain(m *testing.M) {
	// Parallel tests mostly wait, so 16 may run at once.
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// harness is a server whose store is in memory, with a key for each scope.
type harness struct {
	*Server
	t       testing.TB
	store   leaderboard.Store
	service *ranking.Service
	http    *httptest.Server
	conn    *grpc.ClientConn
	log     *lockedBuffer
	keys    map[string]string // credentials by scope, or by a name that the test chose
}

func newHarness(t testing.TB, o Options) *harness {
	t.Helper()
	store, index := embedded.Open(t)
	svc := ranking.New(store, index, ranking.Options{Now: o.Now})
	if err := svc.EnsureDefaultBoard(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := svc.Load(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return serve(t, svc, store, o)
}

func serve(t testing.TB, svc service, store leaderboard.Store, o Options) *harness {
	t.Helper()
	h := &harness{t: t, store: store, log: &lockedBuffer{}, keys: map[string]string{}}
	h.service, _ = svc.(*ranking.Service)
	for _, scope := range []string{"read", "submit", "admin"} {
		secret, key := auth.NewKey(scope, []string{scope}, time.Now())
		if err := store.PutAPIKey(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		h.keys[scope] = string(secret)
	}
	o.Log = slog.New(slog.NewJSONHandler(h.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var err error
	if h.Server, err = New(t.Context(), svc, store, o); err != nil {
		t.Fatal(err)
	}
	h.http = httptest.NewServer(h.Handler())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go h.grpc.Serve(listener)
	h.conn, err = grpc.NewClient("passthrough:///"+listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h.Server.stop()
		if h.service != nil {
			defer h.service.Close()
		}
		h.conn.Close()
		h.grpc.Stop()
		h.http.Close()
	})
	return h
}

func (h *harness) withT(t testing.TB) *harness {
	part := *h
	part.t = t
	return &part
}

func (h *harness) client() pb.LeaderboardServiceClient { return pb.NewLeaderboardServiceClient(h.conn) }

func (h *harness) as(scope string) context.Context {
	if scope == "" {
		return h.t.Context()
	}
	return metadata.AppendToOutgoingContext(h.t.Context(), "authorization", "Bearer "+h.keys[scope])
}

type answer struct {
	status int
	header http.Header
	raw    string
	body   map[string]any // nil unless raw is a JSON object
}

// do sends a REST request with the key h.keys[scope], if any. body is nil, a string, or a value to
// encode as JSON.
func (h *harness) do(scope, method, path string, body any) answer {
	h.t.Helper()
	var data []byte
	switch body := body.(type) {
	case nil:
	case string:
		data = []byte(body)
	default:
		data, _ = json.Marshal(body)
	}
	req, err := http.NewRequestWithContext(h.t.Context(), method, h.http.URL+path, bytes.NewReader(data))
	if err != nil {
		h.t.Fatal(err)
	}
	if key := h.keys[scope]; key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	return h.send(req)
}

func (h *harness) send(req *http.Request) answer {
	h.t.Helper()
	res, err := h.http.Client().Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	a := answer{status: res.StatusCode, header: res.Header, raw: string(raw)}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	_ = dec.Decode(&a.body)
	if a.status == http.StatusTooManyRequests && a.header.Get("Retry-After") == "" {
		h.t.Errorf("%s %s: 429 without Retry-After: %s", req.Method, req.URL, a.raw)
	}
	h.checkDescribed(req, a)
	return a
}

func (h *harness) must(scope, method, path string, body any) map[string]any {
	h.t.Helper()
	a := h.do(scope, method, path, body)
	if a.status != http.StatusOK {
		h.t.Fatalf("%s %s: %d %s, want 200", method, path, a.status, a.raw)
	}
	return a.body
}

func get(v any, path ...any) any {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[p]
		case int:
			l, _ := v.([]any)
			if p >= len(l) {
				return nil
			}
			v = l[p]
		}
	}
	return v
}

func (a answer) violations() []string {
	var fields []string
	details, _ := a.body["details"].([]any)
	for _, d := range details {
		list, _ := get(d, "field_violations").([]any)
		for _, v := range list {
			fields = append(fields, get(v, "field").(string))
		}
	}
	return fields
}

func (a answer) reason() string {
	details, _ := a.body["details"].([]any)
	for _, d := range details {
		if r, ok := get(d, "reason").(string); ok && strings.HasSuffix(get(d, "@type").(string), "ErrorInfo") {
			return r
		}
	}
	return ""
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (h *harness) createBoard(body string) {
	h.t.Helper()
	h.must("admin", "POST", "/v1/boards", body)
}

func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("timed out after a minute of waiting for %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func mustEC(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func writeFile(t testing.TB, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
