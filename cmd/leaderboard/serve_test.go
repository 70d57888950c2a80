package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/open-leaderboard/leaderboard"
	apiserver "github.com/open-leaderboard/leaderboard/api/server"
	"github.com/open-leaderboard/leaderboard/consumer"
	"github.com/open-leaderboard/leaderboard/internal/config"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/embedded"
	"github.com/open-leaderboard/leaderboard/test/faults"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

func get(t *testing.T, client *http.Client, url string) (int, string) {
	t.Helper()
	res, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

func TestServeAnswersAndStopsOnRequest(t *testing.T) {
	needs.Race(t)
	data := filepath.Join(t.TempDir(), "data")
	s := startServer(t, data, nil, "--insecure")
	s.ok(t, "submit", "ada", "--points", "3", "--match", "m1")
	for path, want := range map[string]string{
		"/readyz": "ready", "/healthz": "ok", "/": "<title>", "/openapi.json": "/v1/scores", "/v1/scores": `"user_id":"ada"`,
		"/metrics": "process_start_time_seconds",
	} {
		if code, body := get(t, http.DefaultClient, "http://"+s.http+path); code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("GET %s = %d, want 200 with %q: %.200s", path, code, want, body)
		}
	}
	health := []string{"health", "--http", s.http}
	checkContains(t, s.ok(t, health...), "ok")
	checkContains(t, s.ok(t, append(health, "--ready")...), "ready")
	if code := s.stop(); code != exitOK {
		t.Errorf("serve exited with %d, want 0: %s", code, s.stderr)
	}
	command(t, "", nil, health...).mustFail(t, exitFailure, []string{"no server answers at http://" + s.http, "leaderboard serve"}, health)
	if _, ok := findLogEntry(s.stderr.String(), "stopped"); !ok {
		t.Errorf("the log has no entry \"stopped\": %s", s.stderr)
	}
	restarted := startServer(t, data, nil, "--insecure")
	checkContains(t, restarted.ok(t, "top"), "ada")
}

func TestStoreAndIndexAreMeasured(t *testing.T) {
	s := startInsecure(t)
	s.ok(t, "submit", "ada", "--points", "3", "--match", "m1")
	s.ok(t, "top")
	_, metrics := get(t, http.DefaultClient, "http://"+s.http+"/metrics")
	for _, want := range []string{
		`leaderboard_store_call_seconds_count{method="Apply",outcome="ok"} 1`,
		`leaderboard_index_call_seconds_count{method="Update",outcome="ok"} 1`,
		`leaderboard_index_call_seconds_bucket{method="Page",outcome="ok",le="0.05"} 1`,
		`leaderboard_store_running_calls{method="Apply"} 0`,
		`leaderboard_index_running_calls{method="Page"} 0`,
	} {
		checkContains(t, metrics, want)
	}
}

func TestAddressesWithoutTLSCauseAWarning(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want int
	}{
		{nil, 0},
		{[]string{"--http", "0.0.0.0:0"}, 1},
		{[]string{"--grpc", ":0"}, 1},
		{[]string{"--http", "0.0.0.0:0", "--grpc", "0.0.0.0:0"}, 1},
	} {
		s := startServer(t, filepath.Join(t.TempDir(), "data"), nil, tt.args...)
		if got := strings.Count(s.stderr.String(), "cross the network unencrypted"); got != tt.want {
			t.Errorf("serve %v logs %d warnings about unencrypted keys, want %d: %s", tt.args, got, tt.want, s.stderr)
		}
		if entry, ok := findLogEntry(s.stderr.String(), plainWarning); ok && entry["level"] != "WARN" {
			t.Errorf("serve %v logs %v, want the level WARN", tt.args, entry)
		}
		s.stop()
	}
	a := newAuthority(t)
	a.issue("server", a)
	s := startServer(t, filepath.Join(t.TempDir(), "data"), nil, "--http", "0.0.0.0:0", "--tls-cert", a.file("server.pem"), "--tls-key", a.file("server-key.pem"))
	if strings.Contains(s.stderr.String(), "cross the network unencrypted") {
		t.Errorf("serve with TLS logs a warning about unencrypted keys, want none: %s", s.stderr)
	}
}

func TestNotReadyWhileLoading(t *testing.T) {
	needs.Race(t)
	data := filepath.Join(t.TempDir(), "data")
	first := startServer(t, data, nil, "--insecure")
	first.ok(t, "submit", "ada", "--points", "3", "--match", "m1")
	first.stop()

	app := testApp()
	root := newRoot(app)
	serve, _, err := root.Find([]string{"serve"})
	if err != nil {
		t.Fatal(err)
	}
	if err := serve.Flags().Parse([]string{"--insecure", "--data", data, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"}); err != nil {
		t.Fatal(err)
	}
	c, err := loadConfig(app, serve)
	if err != nil {
		t.Fatal(err)
	}
	s, err := openServer(t.Context(), &c.Config, newLog(app.Stderr, c.Log, c.Log.SlogLevel()), false)
	if err != nil {
		t.Fatal(err)
	}
	url := s.url()
	ctx, cancel := context.WithCancel(t.Context())
	begun, release, loaded, done := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		first := true
		done <- s.serve(ctx, func(leaderboard.SeasonKey, int64) {
			if first {
				first = false
				close(begun)
				<-release
			}
		}, func() { close(loaded) })
	}()
	<-begun
	if code, _ := get(t, http.DefaultClient, url+"/readyz"); code != http.StatusServiceUnavailable {
		t.Errorf("GET /readyz while the index is being filled = %d, want 503", code)
	}
	atURL := strings.TrimPrefix(url, "http://")
	command(t, "", nil, "health", "--ready", "--http", atURL).
		mustFail(t, exitFailure, []string{"503", "the rank index is being filled"}, []string{"health", "--ready"})
	if r := command(t, "", nil, "health", "--http", atURL); r.code != exitOK {
		t.Errorf("health while the index is being filled: %s, want success", r.stderr)
	}
	if code, _ := get(t, http.DefaultClient, url+"/healthz"); code != http.StatusOK {
		t.Errorf("GET /healthz while the index is being filled = %d, want 200", code)
	}
	close(release)
	<-loaded
	eventually(t, "/readyz says ready", func() bool { code, _ := get(t, http.DefaultClient, url+"/readyz"); return code == http.StatusOK })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
}

func TestServeErrorsSayWhatToDo(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	s := startServer(t, data, nil, "--insecure")
	serve := func(args ...string) commandResult {
		return command(t, "", nil, append([]string{"serve", "--insecure"}, args...)...)
	}
	serve("--data", t.TempDir(), "--http", s.http, "--grpc", "127.0.0.1:0").
		mustFail(t, exitFailure, []string{"http address " + s.http + " is in use", "choose another address with --http"}, []string{"serve"})
	serve("--data", t.TempDir(), "--http", "127.0.0.1:0", "--grpc", s.grpc).
		mustFail(t, exitFailure, []string{"grpc address", "is in use", "--grpc"}, []string{"serve"})
	serve("--data", data, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0").
		mustFail(t, exitFailure, []string{"another process uses the directory", "--data"}, []string{"serve"})
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	serve("--data", file, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0").mustFail(t, exitUsage, []string{"data (--data)", "is a file"}, []string{"serve"})
	cert := filepath.Join(t.TempDir(), "cert.pem")
	if err := os.WriteFile(cert, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	serve("--data", t.TempDir(), "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", cert).
		mustFail(t, exitUsage, []string{"tls.cert (--tls-cert): certificate"}, []string{"serve"})
	s.ok(t, "top")
}

func TestStoppingEndsStreams(t *testing.T) {
	needs.Race(t)
	s := startInsecure(t)
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.http+"/v1/boards/default/watch", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	start := time.Now()
	if code := s.stop(); code != exitOK {
		t.Errorf("serve exited with %d, want 0: %s", code, s.stderr)
	}
	if took := time.Since(start); took >= config.Default().ShutdownGrace {
		t.Errorf("stopping took %v while a client watched, want less than shutdown_grace", took)
	}
	_, _ = io.ReadAll(res.Body)
}

type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.issue("ca", nil)
	return a
}

// issue writes a certificate to name.pem and its key to name-key.pem. parent signs the certificate.
// If parent is nil, the certificate is a self-signed authority.
func (a *authority) issue(name string, parent *authority) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: parent == nil, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	signer, signerKey := template, key
	if parent != nil {
		signer, signerKey = parent.cert, parent.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer, &key.PublicKey, signerKey)
	if err != nil {
		a.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{name + ".pem": {Type: "CERTIFICATE", Bytes: der}, name + "-key.pem": {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(a.file(file), pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

func TestTLS(t *testing.T) {
	a := newAuthority(t)
	a.issue("server", a)
	a.issue("client", a)
	const key = "an-admin-key-of-my-own"
	start := func(more ...string) *testServer {
		return startServer(t, filepath.Join(t.TempDir(), "data"), []string{"LEADERBOARD_ADMIN_KEY=" + key},
			append([]string{"--tls-cert", a.file("server.pem"), "--tls-key", a.file("server-key.pem")}, more...)...)
	}
	top := func(s *testServer, args ...string) commandResult {
		return command(t, "", []string{"LEADERBOARD_SERVER=" + s.grpc, "LEADERBOARD_KEY=" + key}, append([]string{"top"}, args...)...)
	}
	s := start()
	if r := top(s, "--ca", a.file("ca.pem")); r.code != exitOK {
		t.Errorf("top over TLS: %s, want success", r.stderr)
	}
	top(s, "--tls").mustFail(t, exitFailure, []string{"TLS with", "--ca"}, []string{"top", "--tls"})
	top(s).mustFail(t, exitFailure, []string{"use --tls"}, []string{"top"})
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	if code, _ := get(t, web, "https://"+s.http+"/healthz"); code != http.StatusOK {
		t.Errorf("GET /healthz over TLS: %d, want 200", code)
	}
	web.CloseIdleConnections()

	mutual := start("--tls-client-ca", a.file("ca.pem"))
	if r := top(mutual, "--ca", a.file("ca.pem"), "--cert", a.file("client.pem"), "--cert-key", a.file("client-key.pem")); r.code != exitOK {
		t.Errorf("top with a client certificate: %s, want success", r.stderr)
	}
	top(mutual, "--ca", a.file("ca.pem")).mustFail(t, exitFailure, []string{"--cert"}, []string{"top"})

	for _, tt := range []struct {
		server *testServer
		args   []string
	}{{s, nil}, {mutual, []string{"--tls-client-ca", a.file("ca.pem")}}} {
		args := append([]string{"health", "--http", tt.server.http, "--tls-cert", a.file("server.pem"), "--tls-key", a.file("server-key.pem")}, tt.args...)
		if r := command(t, "", nil, args...); r.code != exitOK {
			t.Errorf("%v: %s, want success", args, r.stderr)
		}
	}

	plain := startInsecure(t)
	top(plain, "--tls").mustFail(t, exitFailure, []string{"does not use TLS", "--plaintext"}, []string{"top", "--tls"})
	command(t, "", []string{"LEADERBOARD_SERVER=" + plain.http}, "top").mustFail(t, exitFailure, []string{"gRPC's and not HTTP's"}, []string{"top"})
}

func TestReachableAddress(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1:8080": "127.0.0.1:8080", "0.0.0.0:8080": "localhost:8080", "[::]:8080": "localhost:8080", ":8080": "localhost:8080",
		"[::1]:8080": "[::1]:8080", "example.org:80": "example.org:80",
	} {
		if got := reachableAddress(address); got != want {
			t.Errorf("reachableAddress(%q) = %q, want %q", address, got, want)
		}
	}
}

// load retries while the store or the index is down. A server needs only its store to be ready.
func TestLoadingWaitsForServers(t *testing.T) {
	needs.Race(t)
	synctest.Test(t, func(t *testing.T) {
		inner, innerIndex := embedded.Open(t)
		store, index := &faults.Store{Store: inner}, &faults.Index{Index: innerIndex}
		s := &server{log: slog.New(slog.DiscardHandler), service: ranking.New(store, index, ranking.Options{})}
		defer s.service.Close()
		if err := s.service.EnsureDefaultBoard(t.Context()); err != nil {
			t.Fatal(err)
		}
		result := leaderboard.MatchResult{ResultKey: leaderboard.ResultKey{User: "ada"}, Score: 1}
		b, err := s.service.Board(t.Context(), leaderboard.DefaultBoard)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.service.Submit(t.Context(), &b, []leaderboard.MatchResult{result}); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		for _, down := range []*faults.Switch{&store.Switch, &index.Switch} {
			s.service = ranking.New(store, index, ranking.Options{})
			defer s.service.Close()
			down.Set(faults.Refuse)
			go func() { done <- s.load(t.Context(), nil) }()
			time.Sleep(time.Hour)
			if ready := s.service.Ready(); ready != (down == &index.Switch) {
				t.Errorf("Ready returns %v, want %v (true if the index is down, false if the store is down)", ready, !ready)
			}
			select {
			case err := <-done:
				t.Fatalf("load returned %v while a dependency is down, want it to retry", err)
			default:
			}
			down.Set(faults.Up)
			if err := <-done; err != nil {
				t.Errorf("load returned %v after the dependency is up again, want nil", err)
			}
		}
		if !s.service.Ready() {
			t.Error("Ready returns false after load, want true")
		}
		ctx, cancel := context.WithCancel(t.Context())
		store.Set(faults.Refuse)
		go func() { done <- s.load(ctx, nil) }()
		time.Sleep(time.Minute)
		cancel()
		if err := <-done; err == nil {
			t.Error("load returned nil after it was canceled while the store was down, want an error")
		}
	})
}

func TestReadyWithoutKafka(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close() // no server listens at this address
	store, index := embedded.Open(t)
	s := &server{service: ranking.New(store, index, ranking.Options{})}
	defer s.service.Close()
	if err := s.service.Load(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if s.consumer, err = consumer.New(consumer.Options{Brokers: []string{l.Addr().String()}}, s.service, nil); err != nil {
		t.Fatal(err)
	}
	both := &server{service: s.service, consumer: s.consumer, api: &apiserver.Server{}}
	if both.ready() == nil {
		t.Error("a server with both roles is ready before the consumer has tried to reach Kafka, want not ready")
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.consumer.Run(ctx) }()
	for deadline := time.Now().Add(time.Minute); both.ready() != nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("a server with both roles is not ready without Kafka, want it ready: %v", both.ready())
		}
	}
	if s.ready() == nil {
		t.Error("a server with only the consumer role is ready without Kafka, want not ready")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
