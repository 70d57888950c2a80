package main

import (
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

func TestAdminListener(t *testing.T) {
	s := startServer(t, filepath.Join(t.TempDir(), "data"), nil, "--insecure", "--admin", "127.0.0.1:0")
	entry, _ := logged(s.stderr.String(), "listening")
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
