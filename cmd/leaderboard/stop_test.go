package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

// While draining, the server answers, but is not ready. After drain_time, it ends streams and
// closes its listeners.
func TestSIGTERMDrains(t *testing.T) {
	needs.Race(t)
	c := startChildWith(t, filepath.Join(t.TempDir(), "data"), "--drain-time", "3s", "--admin", "127.0.0.1:0")
	base := "http://" + c.http
	events, err := http.Get(base + "/v1/boards/default/watch")
	if err != nil {
		t.Fatal(err)
	}
	defer events.Body.Close()
	conn, err := grpc.NewClient("passthrough:///"+c.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := pb.NewLeaderboardServiceClient(conn).WatchScores(t.Context(), &pb.WatchScoresRequest{Board: "default"})
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}

	start := time.Now()
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the process is not ready", func() bool {
		code, _ := get(t, http.DefaultClient, "http://"+c.admin+"/readyz")
		return code == http.StatusServiceUnavailable
	})
	if res, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil || res.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("gRPC health while draining: %v, %v; want NOT_SERVING", res, err)
	}
	res, err := http.Post(base+"/v1/scores", "application/json", strings.NewReader(`{"user_id":"late","points":1}`))
	if err != nil {
		t.Fatalf("a submit while draining: %v", err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusOK || !res.Close {
		t.Errorf("submit while draining: status %s, connection closed: %t; want 200 and true", res.Status, res.Close)
	}

	text := readEvents(t, events.Body)
	if !strings.Contains(text, "\nevent: reconnect\nretry: ") || strings.Contains(text, "event: error") {
		t.Errorf("the events end with %.300q, want the event reconnect and no event error", text[max(0, len(text)-300):])
	}
	for {
		if _, err = stream.Recv(); err != nil {
			break
		}
	}
	var info *errdetails.ErrorInfo
	var retry *errdetails.RetryInfo
	for _, d := range status.Convert(err).Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			info = d
		case *errdetails.RetryInfo:
			retry = d
		}
	}
	if status.Code(err) != codes.Unavailable || info.GetReason() != "SERVER_STOPPING" || retry.GetRetryDelay().AsDuration() <= 0 {
		t.Errorf("the gRPC stream ends with %v, %v, %v; want UNAVAILABLE, SERVER_STOPPING and a delay", err, info, retry)
	}
	if err := c.cmd.Wait(); err != nil {
		t.Errorf("serve ended with the error %v, want nil: %s", err, c.stderr)
	}
	if took := time.Since(start); took < 3*time.Second {
		t.Errorf("the process stopped %v after SIGTERM, want at least 3 s", took)
	}
}

func readEvents(t *testing.T, r io.Reader) string {
	t.Helper()
	text, err := io.ReadAll(bufio.NewReader(r))
	if err != nil {
		t.Errorf("the stream of events ends with %v, want io.EOF", err)
	}
	return string(text)
}

func TestSecondSignalEndsTheDrain(t *testing.T) {
	c := startChildWith(t, filepath.Join(t.TempDir(), "data"), "--drain-time", "1h")
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the process drains", func() bool {
		code, _ := get(t, http.DefaultClient, "http://"+c.http+"/readyz")
		return code == http.StatusServiceUnavailable
	})
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Wait(); err == nil {
		t.Error("the process ended with success after the second signal, want it killed by the signal")
	}
}

func TestCallsAreCanceledAfterShutdownGrace(t *testing.T) {
	needs.Race(t)
	c := startChildWith(t, filepath.Join(t.TempDir(), "data"), "--shutdown-grace", "100ms", "--receive-timeout", "1h")
	conn, err := net.Dial("tcp", c.http)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v1/scores HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n")
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, "100") {
		t.Fatalf("the server answers %q, %v; want 100 Continue, because the server waits for the body", line, err)
	}
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Wait(); err == nil {
		t.Error("the process ended with success, want an error because it canceled a call")
	}
	checkContains(t, c.stderr.String(), "canceled the calls that still ran 100ms after", "shutdown_grace")
}

// hangUp sends SIGHUP, waits until the server logs the reload, and returns the number of failed
// reloads so far.
func (c *child) hangUp(t *testing.T) int {
	t.Helper()
	failed := func() int { return strings.Count(c.stderr.String(), `"msg":"settings not reloaded"`) }
	handled := func() int { return strings.Count(c.stderr.String(), `"msg":"settings reloaded"`) + failed() }
	count := handled()
	if err := c.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server handles SIGHUP", func() bool { return handled() > count })
	return failed()
}

func TestSIGHUPReloadsTheClientAuthority(t *testing.T) {
	first, second := newAuthority(t), newAuthority(t)
	first.issue("server", first)
	authorities := filepath.Join(t.TempDir(), "client-ca.pem")
	install := func(a *authority) {
		text, err := os.ReadFile(a.file("ca.pem"))
		if err == nil {
			err = os.WriteFile(authorities, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	install(first)
	c := startChildWith(t, filepath.Join(t.TempDir(), "data"), "--log-format", "json",
		"--tls-cert", first.file("server.pem"), "--tls-key", first.file("server-key.pem"), "--tls-client-ca", authorities)
	admits := func(a *authority) bool {
		a.issue("client", a)
		r := command(t, "", []string{"LEADERBOARD_SERVER=" + c.grpc}, "top", "--ca", first.file("ca.pem"), "--cert", a.file("client.pem"), "--cert-key", a.file("client-key.pem"))
		return r.code == exitOK
	}
	if !admits(first) || admits(second) {
		t.Fatal("before SIGHUP, want the server to admit only clients of the first authority")
	}
	install(second)
	if failed := c.hangUp(t); failed != 0 {
		t.Errorf("after SIGHUP, the log says that the settings were not reloaded: %s", c.stderr)
	}
	if admits(first) || !admits(second) {
		t.Error("after SIGHUP, want the server to admit only clients of the second authority")
	}
}

func TestSIGHUPReloads(t *testing.T) {
	needs.Race(t)
	first, second := newAuthority(t), newAuthority(t)
	dir := t.TempDir()
	cert, key, file := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "c.yaml")
	install := func(a *authority) {
		for from, to := range map[string]string{"server.pem": cert, "server-key.pem": key} {
			text, err := os.ReadFile(a.file(from))
			if err == nil {
				err = os.WriteFile(to, text, 0o600)
			}
			// On a mounted volume, all versions of a file can have the same modification time.
			if err == nil {
				err = os.Chtimes(to, time.Unix(1e9, 0), time.Unix(1e9, 0))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	settings := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, a := range []*authority{first, second} {
		a.issue("server", a)
	}
	install(first)
	settings("log: {level: info, format: json}\n")
	c := startChildWith(t, filepath.Join(t.TempDir(), "data"), "--config", file, "--tls-cert", cert, "--tls-key", key)
	trusts := func(a *authority) bool {
		r := command(t, "", []string{"LEADERBOARD_SERVER=" + c.grpc}, "top", "--ca", a.file("ca.pem"))
		return r.code == exitOK
	}
	if !trusts(first) || trusts(second) {
		t.Fatal("before SIGHUP, want the server to use only the first certificate")
	}
	debug := func() bool { return strings.Contains(c.stderr.String(), `"level":"DEBUG"`) }
	if debug() {
		t.Fatal("the log has lines of level debug, want level info")
	}
	install(second)
	settings("log: {level: debug, format: json}\nlimits: {key_rate: 7}\n")
	if failed := c.hangUp(t); failed != 0 {
		t.Errorf("after SIGHUP with valid settings, the log says that the settings were not reloaded: %s", c.stderr)
	}
	if trusts(first) || !trusts(second) {
		t.Error("after SIGHUP, want the server to use only the second certificate")
	}
	if !debug() {
		t.Error("after SIGHUP, the log has no lines of level debug")
	}
	if entry, ok := findLogEntry(c.stderr.String(), "changed settings need a restart"); !ok || !strings.Contains(strings.Join(stringsIn(entry["settings"]), " "), "limits.key_rate") {
		t.Errorf("the log entry about settings that need a restart is %v, want it to name limits.key_rate", entry)
	}

	settings("log: {level: loud}\n")
	if failed := c.hangUp(t); failed != 1 {
		t.Errorf("SIGHUP with an invalid settings file: %d failed reloads, want 1: %s", failed, c.stderr)
	}
	settings("log: {level: debug, format: json}\n")
	if err := os.WriteFile(key, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if failed := c.hangUp(t); failed != 2 {
		t.Errorf("SIGHUP with an invalid key file: %d failed reloads, want 2: %s", failed, c.stderr)
	}
	if !trusts(second) {
		t.Error("after failed reloads, the server does not use the second certificate any more")
	}
}

func stringsIn(v any) (texts []string) {
	list, _ := v.([]any)
	for _, e := range list {
		text, _ := e.(string)
		texts = append(texts, text)
	}
	return texts
}
