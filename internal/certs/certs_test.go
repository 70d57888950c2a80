package certs_test

import (
	"crypto/tls"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard/internal/certs"
	"github.com/open-leaderboard/leaderboard/test/authority"
)

func newAuthority(t *testing.T, name string) *authority.Authority {
	t.Helper()
	a, err := authority.New(t.TempDir(), name)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func issue(t *testing.T, a *authority.Authority, name string, hosts ...string) authority.Pair {
	t.Helper()
	p, err := a.Issue(name, hosts...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func replaceFile(t *testing.T, src, dst string) {
	t.Helper()
	text, err := os.ReadFile(src)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dst, text, 0o600); err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(time.Minute)
	if err := os.Chtimes(dst, later, later); err != nil {
		t.Fatal(err)
	}
}

// If clientCA is set, the server requires client certificates that clientCA signed.
func serve(t *testing.T, pair authority.Pair, clientCA *authority.Authority) (addr string) {
	t.Helper()
	cert, err := tls.LoadX509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{cert}}
	if clientCA != nil {
		pool, err := certs.Pool(clientCA.File)
		if err != nil {
			t.Fatal(err)
		}
		config.ClientCAs, config.ClientAuth = pool.Current(), tls.RequireAndVerifyClientCert
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.WriteString(conn, "hello"); _ = conn.Close() }()
		}
	}()
	return l.Addr().String()
}

// greet returns the error of the TLS handshake or of reading the server's "hello".
func greet(t *testing.T, h certs.Handshake, addr, name string) error {
	t.Helper()
	plain, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(addr)
	conn, err := h(t.Context(), plain, net.JoinHostPort(name, port))
	if err != nil {
		if _, err := plain.Write(nil); err == nil {
			t.Error("the connection is open after a failed handshake, want it closed")
		}
		return err
	}
	defer conn.Close()
	text, err := io.ReadAll(conn)
	if err == nil && string(text) != "hello" {
		t.Errorf("the server wrote %q, want hello", text)
	}
	return err
}

func newHandshake(t *testing.T, c certs.Client) certs.Handshake {
	t.Helper()
	c.Setting = "redis.tls"
	h, err := c.Handshake()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestClientVerifiesTheServer(t *testing.T) {
	ca, other := newAuthority(t, "ca"), newAuthority(t, "other")
	server, client, stranger := issue(t, ca, "server", "127.0.0.1", "db.example"), issue(t, ca, "client"), issue(t, other, "stranger")
	oneWay, mutual := serve(t, server, nil), serve(t, server, ca)
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	go func() {
		for {
			conn, err := plain.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "-ERR not TLS\r\n")
			_ = conn.Close()
		}
	}()
	tests := []struct {
		name   string
		client certs.Client
		addr   string
		host   string
		want   string // part of the error
	}{
		{"an IP address in the certificate", certs.Client{CA: ca.File}, oneWay, "127.0.0.1", ""},
		{"a name in the certificate", certs.Client{CA: ca.File}, oneWay, "db.example", ""},
		{"a name that the certificate lacks", certs.Client{CA: ca.File}, oneWay, "db2.example", "redis.tls.server_name"},
		{"an address that the certificate lacks", certs.Client{CA: ca.File}, oneWay, "127.0.0.2", "redis.tls.server_name"},
		{"ServerName is in the certificate", certs.Client{CA: ca.File, ServerName: "db.example"}, oneWay, "127.0.0.2", ""},
		{"ServerName is not in the certificate", certs.Client{CA: ca.File, ServerName: "db2.example"}, oneWay, "127.0.0.1", "redis.tls.server_name"},
		{"an authority that did not sign the certificate", certs.Client{CA: other.File}, oneWay, "127.0.0.1", "redis.tls.ca"},
		{"the authorities of the system", certs.Client{}, oneWay, "127.0.0.1", "redis.tls.ca"},
		{"a client certificate", certs.Client{CA: ca.File, Cert: client.Cert, Key: client.Key}, mutual, "127.0.0.1", ""},
		{"no client certificate", certs.Client{CA: ca.File}, mutual, "127.0.0.1", "set redis.tls.cert and redis.tls.key"},
		{"a client certificate that another authority signed", certs.Client{CA: ca.File, Cert: stranger.Cert, Key: stranger.Key}, mutual, "127.0.0.1", "refuses the certificate of redis.tls.cert"},
		{"a server without TLS", certs.Client{CA: ca.File}, plain.Addr().String(), "127.0.0.1", "redis.tls.enabled"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := greet(t, newHandshake(t, tt.client), tt.addr, tt.host)
			if tt.want == "" && err != nil {
				t.Fatal(err)
			}
			if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n")) {
				t.Errorf("error %v, want one line with %q", err, tt.want)
			}
		})
	}
}

func TestFilesAreReadAgain(t *testing.T) {
	old, renewed := newAuthority(t, "old"), newAuthority(t, "renewed")
	pair := issue(t, old, "client")
	h := newHandshake(t, certs.Client{CA: old.File, Cert: pair.Cert, Key: pair.Key})
	oldAddr := serve(t, issue(t, old, "server", "127.0.0.1"), old)
	renewedAddr := serve(t, issue(t, renewed, "server", "127.0.0.1"), renewed)
	check := func(addr string, want bool) {
		t.Helper()
		if err := greet(t, h, addr, "127.0.0.1"); (err == nil) != want {
			t.Errorf("connection to %s: error %v, want success: %t", addr, err, want)
		}
	}
	check(oldAddr, true)
	check(renewedAddr, false)
	if err := os.WriteFile(old.File, []byte("half a fi"), 0o600); err != nil {
		t.Fatal(err)
	}
	check(oldAddr, true)
	replaceFile(t, renewed.File, old.File)
	renewal := issue(t, renewed, "renewal")
	replaceFile(t, renewal.Cert, pair.Cert) // pair.Key is still the old key
	check(renewedAddr, false)
	replaceFile(t, renewal.Key, pair.Key)
	check(renewedAddr, true)
	check(oldAddr, false)
	for _, path := range []string{old.File, pair.Cert, pair.Key} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	check(renewedAddr, true)
}

func TestFilesThatCannotBeRead(t *testing.T) {
	ca := newAuthority(t, "ca")
	pair := issue(t, ca, "pair")
	for name, c := range map[string]certs.Client{
		"a missing authorities file":    {CA: "missing.pem"},
		"a key in place of authorities": {CA: pair.Key},
		"a missing certificate file":    {Cert: "missing.pem", Key: pair.Key},
		"a key of another certificate":  {Cert: ca.File, Key: pair.Key},
		"a certificate without key":     {Cert: pair.Cert},
	} {
		c.Setting = "kafka.tls"
		if _, err := c.Handshake(); err == nil || !strings.HasPrefix(err.Error(), "kafka.tls.c") {
			t.Errorf("%s: error %v, want an error that names the setting", name, err)
		}
	}
}
