package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
)

type reply struct {
	status int
	header http.Header
	body   string
}

func (s *testServer) ask(t *testing.T, path string, headers ...string) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.http+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	r := reply{status: res.StatusCode, header: res.Header}
	if !strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		r.body = string(body)
	}
	return r
}

func (s *testServer) dialGRPC(t *testing.T) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+s.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

const settingsKey = "the-admin-key-of-this-test"

func TestSettingsReachTheServer(t *testing.T) {
	for name, tt := range map[string]struct {
		file  string
		check func(*testing.T, *testServer)
	}{
		"grpc_reflection": {"grpc_reflection: false", checkNoReflection},
		"web": {`{public_read: true, web: {cors_origins: ["https://game.example"], frame_ancestors: ["https://portal.example"], cache_control: "public, max-age=5"}}`,
			checkWeb},
		"trusted_proxies":          {`{public_read: true, trusted_proxies: ["127.0.0.1"], limits: {peer_rate: 0.001, peer_burst: 1}}`, checkProxies},
		"receive_timeout":          {"{insecure: true, receive_timeout: 1s}", checkReceiveTimeout},
		"limits.connections":       {"limits: {connections: 1}", checkConnections},
		"limits.streams":           {"limits: {streams: 2}", checkStreams},
		"limits.watchers":          {"limits: {watchers: 1}", checkWatchers("the server already has 1 streams", "Authorization", "Bearer "+settingsKey)},
		"limits.caller_watchers":   {"limits: {caller_watchers: 1}", checkWatchers("this key, or this address, already has 1 streams", "Authorization", "Bearer "+settingsKey)},
		"limits.anonymous_streams": {"{public_read: true, limits: {anonymous_streams: 1}}", checkWatchers("the server already has 1 streams")},
		"limits.peer_streams":      {"{public_read: true, limits: {peer_streams: 1}}", checkWatchers("this key, or this address, already has 1 streams")},
		"jwt.max_lifetime": {`jwt: {algorithm: HS256, secret: "` + tokenSecret + `", issuer: "https://id.example", audience: leaderboard, max_lifetime: 1h}`,
			checkMaxLifetime},
	} {
		t.Run(name, func(t *testing.T) {
			tt.check(t, startServer(t, filepath.Join(t.TempDir(), "data"), []string{"LEADERBOARD_ADMIN_KEY=" + settingsKey}, "--config", writeFile(t, "settings.yaml", tt.file+"\n")))
		})
	}
}

func checkNoReflection(t *testing.T, s *testServer) {
	stream, err := reflectionpb.NewServerReflectionClient(s.dialGRPC(t)).ServerReflectionInfo(t.Context())
	if err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("reflection: %v, want UNIMPLEMENTED", err)
	}
}

func checkWeb(t *testing.T, s *testServer) {
	res := s.ask(t, "/v1/scores", "Origin", "https://game.example")
	for header, want := range map[string]string{"Access-Control-Allow-Origin": "https://game.example", "Cache-Control": "public, max-age=5"} {
		if got := res.header.Get(header); got != want {
			t.Errorf("GET /v1/scores: %s is %q, want %q", header, got, want)
		}
	}
	res = s.ask(t, "/")
	if got := res.header.Get("Content-Security-Policy"); !strings.Contains(got, "frame-ancestors https://portal.example") {
		t.Errorf("GET /: Content-Security-Policy is %q, want the frame ancestor", got)
	}
}

func checkProxies(t *testing.T, s *testServer) {
	for i, client := range []string{"192.0.2.1", "192.0.2.1", "192.0.2.2"} {
		want := []int{http.StatusOK, http.StatusTooManyRequests, http.StatusOK}[i]
		if res := s.ask(t, "/v1/scores", "X-Forwarded-For", client); res.status != want {
			t.Errorf("call %d, for %s: %d %s, want %d", i+1, client, res.status, res.body, want)
		}
	}
}

func checkReceiveTimeout(t *testing.T, s *testServer) {
	conn := s.connect(t)
	start := time.Now()
	if _, err := io.WriteString(conn, "POST /v1/scores HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(conn)
	if took := time.Since(start); err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 408") || !strings.Contains(string(got), "MESSAGE_TIMEOUT") || took > 20*time.Second {
		t.Errorf("a request without its body: %q, %v after %v; want 408 after about 1 s", got, err, took)
	}
}

func (s *testServer) connect(t *testing.T) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", s.http)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(waitLimit))
	return conn
}

func checkConnections(t *testing.T, s *testServer) {
	answered := func(c net.Conn) bool {
		n, _ := c.Read(make([]byte, 1))
		return n > 0
	}
	var conns []net.Conn
	for range 2 {
		conn := s.connect(t)
		if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	if !answered(conns[0]) {
		t.Fatal("no answer on the first connection, want one")
	}
	_ = conns[1].SetDeadline(time.Now().Add(300 * time.Millisecond))
	if answered(conns[1]) {
		t.Error("an answer on the second connection while the first is open, want none")
	}
	_ = conns[1].SetDeadline(time.Now().Add(waitLimit))
	conns[0].Close()
	if !answered(conns[1]) {
		t.Error("no answer on the second connection after the first was closed, want one")
	}
}

// The client learns limits.streams from the server, and delays calls above this limit.
func checkStreams(t *testing.T, s *testServer) {
	client := healthpb.NewHealthClient(s.dialGRPC(t))
	watch := func(ctx context.Context) error {
		stream, err := client.Watch(ctx, &healthpb.HealthCheckRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	}
	first, end := context.WithCancel(t.Context())
	for _, ctx := range []context.Context{first, t.Context()} {
		if err := watch(ctx); err != nil {
			t.Fatal(err)
		}
	}
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := watch(short); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("a third call on the connection: %v, want DEADLINE_EXCEEDED, because the call waits", err)
	}
	end()
	if err := watch(t.Context()); err != nil {
		t.Errorf("a third call after the first has ended: %v, want nil", err)
	}
}

func checkWatchers(problem string, headers ...string) func(*testing.T, *testServer) {
	return func(t *testing.T, s *testServer) {
		if res := s.ask(t, "/v1/boards/default/watch", headers...); res.status != http.StatusOK {
			t.Fatalf("the first watch: %d %s, want 200", res.status, res.body)
		}
		res := s.ask(t, "/v1/boards/default/watch", headers...)
		if res.status != http.StatusTooManyRequests || res.header.Get("Retry-After") == "" || !strings.Contains(res.body, problem) {
			t.Errorf("the second watch: %d, Retry-After %q, %s; want 429 with %q", res.status, res.header.Get("Retry-After"), res.body, problem)
		}
	}
}

const tokenSecret = "a-secret-of-at-least-32-bytes-0123"

func checkMaxLifetime(t *testing.T, s *testServer) {
	for lifetime, want := range map[time.Duration]int{30 * time.Minute: http.StatusOK, 2 * time.Hour: http.StatusUnauthorized} {
		b64 := base64.RawURLEncoding.EncodeToString
		claims := fmt.Sprintf(`{"iss":"https://id.example","aud":"leaderboard","sub":"u","exp":%d}`, time.Now().Add(lifetime).Unix())
		token := b64([]byte(`{"alg":"HS256"}`)) + "." + b64([]byte(claims))
		mac := hmac.New(sha256.New, []byte(tokenSecret))
		mac.Write([]byte(token))
		if res := s.ask(t, "/v1/scores", "Authorization", "Bearer "+token+"."+b64(mac.Sum(nil))); res.status != want {
			t.Errorf("a token with a lifetime of %v: %d %s, want %d", lifetime, res.status, res.body, want)
		}
	}
}
