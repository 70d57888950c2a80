package main

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/open-leaderboard/leaderboard/internal/config"
)

func TestAdminListener(t *testing.T) {
	s := startServer(t, filepath.Join(t.TempDir(), "data"), nil, "--insecure", "--admin", "127.0.0.1:0")
	entry, _ := findLogEntry(s.stderr.String(), "listening")
	admin := "http://" + entry["admin"].(string)
	for _, path := range []string{"/metrics", "/healthz", "/readyz", "/debug/pprof/", "/debug/pprof/goroutine?debug=1", "/debug/pprof/symbol"} {
		if status, body := get(t, http.DefaultClient, "http://"+s.http+path); status != http.StatusNotFound {
			t.Errorf("the public port answers %s with %d: %.100s; want 404", path, status, body)
		}
		if status, body := get(t, http.DefaultClient, admin+path); status != http.StatusOK {
			t.Errorf("the admin port answers %s with %d: %.100s; want 200", path, status, body)
		}
	}
	if status, _ := get(t, http.DefaultClient, admin+"/v1/scores"); status != http.StatusNotFound {
		t.Errorf("the admin port answers /v1/scores with %d, want 404", status)
	}
	for _, path := range []string{"/v1/scores", "/v1/boards", "/metrics", "/healthz"} {
		res, err := http.Post(admin+path, "application/json", strings.NewReader(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusNotFound && res.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("the admin port answers POST %s with %d, want 404 or 405", path, res.StatusCode)
		}
	}
	if r := command(t, "", nil, "health", "--ready", "--admin", strings.TrimPrefix(admin, "http://"), "--http", "127.0.0.1:1"); r.code != exitOK {
		t.Errorf("health with the setting admin: %s, want success", r.stderr)
	}
	if code := s.stop(); code != exitOK {
		t.Errorf("the server exited with %d, want 0", code)
	}
	if conn, err := net.Dial("tcp", strings.TrimPrefix(admin, "http://")); err == nil {
		conn.Close()
		t.Error("the admin port is open after the server has stopped, want it closed")
	}
	r := command(t, "", nil, "serve", "--insecure", "--data", t.TempDir(), "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--admin", "0.0.0.0:0")
	r.mustFail(t, exitUsage, []string{"loopback"}, []string{"--admin"})
}

func TestAdminListenerOfAConsumer(t *testing.T) {
	c := config.Default()
	c.Roles, c.Admin, c.HTTP, c.GRPC = []string{config.RoleConsumer}, "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	s := &server{config: &c, log: slog.New(slog.DiscardHandler), metrics: prometheus.NewRegistry()}
	s.draining.Store(true) // so /readyz answers 503
	if c.Cassandra.Hosts = []string{"c"}; !c.Distributed() {
		t.Fatal("Distributed returns false with a Cassandra host, want true")
	}
	if err := s.listen(); err != nil || s.rest != nil || s.grpc != nil {
		t.Fatalf("listen: %v, http %v, grpc %v; want the admin listener only", err, s.rest, s.grpc)
	}
	admin := s.admin.Addr().String()
	stop := s.serveProbes(func(err error) { t.Error(err) })
	for path, want := range map[string]int{"/metrics": 200, "/healthz": 200, "/debug/pprof/cmdline": 200, "/readyz": 503, "/v1/scores": 404} {
		if status, body := get(t, http.DefaultClient, "http://"+admin+path); status != want {
			t.Errorf("the admin port answers %s with %d: %.100s; want %d", path, status, body, want)
		}
	}
	conn, err := net.Dial("tcp", admin)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(waitLimit))
	if _, err := io.WriteString(conn, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 200") {
		t.Errorf("a request whose body does not arrive: %.60q, %v; want 200 and a closed connection", got, err)
	}
	stop()
	if conn, err := net.Dial("tcp", admin); err == nil {
		conn.Close()
		t.Error("the admin port is open after the server has stopped, want it closed")
	}
}
