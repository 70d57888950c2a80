package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard/test/needs"
)

var _ = needs.PackageWithoutRace("the servers are processes of their own")

func listen(t *testing.T, addr string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func TestTokensDivideTheRingEvenly(t *testing.T) {
	first := fmt.Sprint(int64(math.MinInt64))
	for _, tt := range []struct {
		dcs  []string
		want []string
	}{
		{OneDC(1), []string{first}},
		{OneDC(2), []string{first, "0"}},
		{OneDC(3), []string{first, "-3074457345618258603", "3074457345618258602"}},
		{[]string{"dc1", "dc1", "dc2"}, []string{first, "0", new(big.Int).Add(big.NewInt(math.MinInt64), big.NewInt(100)).String()}},
	} {
		if diff := cmp.Diff(tt.want, ringTokens(tt.dcs)); diff != "" {
			t.Errorf("ringTokens(%v): (-want +got)\n%s", tt.dcs, diff)
		}
	}
}

func TestPortBlocksDoNotOverlap(t *testing.T) {
	a, err := reservePorts("127.0.0.1", "127.0.0.2")
	if err != nil {
		t.Fatal(err)
	}
	defer a.release()
	b, err := reservePorts("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	defer b.release()
	if a.base == b.base {
		t.Errorf("both blocks start at port %d, want different blocks", a.base)
	}
	listen(t, a.addr("127.0.0.2", 5))
	if a.isFree([]string{"127.0.0.2"}) {
		t.Error("isFree = true for a block with a listener, want false")
	}
	if !a.isFree([]string{"127.0.0.1"}) {
		t.Error("isFree = false because of a listener on another address, want true")
	}
}

func TestVerifyJarsFindsEachDifference(t *testing.T) {
	const pins = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824  a.jar\n" + // hello
		"486ea46224d1bb4fb680f34f7c9ad96a8f24ec88be73ea8e5a6c65260e9cb8a7  b.jar\n" // world
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"files as pinned", map[string]string{"a.jar": "hello", "b.jar": "world"}, ""},
		{"changed content", map[string]string{"a.jar": "hello", "b.jar": "World"}, "b.jar has sha256"},
		{"missing file", map[string]string{"a.jar": "hello"}, "b.jar is missing"},
		{"extra file", map[string]string{"a.jar": "hello", "b.jar": "world", "c.jar": ""}, "c.jar is not pinned"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, content := range tt.files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			err := verifyJars(dir, []byte(pins))
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("verifyJars = %v, want an error that contains %q (empty: no error)", err, tt.want)
			}
		})
	}
}

func TestFoldersOfEndedProcessesAreRemoved(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dead, lock, err := newRunDir()
	if err != nil {
		t.Fatal(err)
	}
	removeDeadRunDirs()
	if _, err := os.Stat(dead); err != nil {
		t.Fatalf("removeDeadRunDirs removed the folder of a running process: %v", err)
	}
	unlock(lock)
	removeDeadRunDirs()
	if _, err := os.Stat(dead); !os.IsNotExist(err) {
		t.Errorf("Stat of the folder of an ended process = %v, want not found", err)
	}
}

func TestCloseEndsServersAndRemovesData(t *testing.T) {
	c := shell(t, "exec sleep 1000")
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	pids := pidsOf(t, c)
	for range 2 {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	waitGone(t, pids)
	if _, err := os.Stat(c.dir); !os.IsNotExist(err) {
		t.Errorf("Stat of the data folder after Close = %v, want not found", err)
	}
}

// endRecorder records how its test ended: skip, fatal or passed.
type endRecorder struct {
	testing.TB
	end string
}

func (g *endRecorder) Helper()               {}
func (g *endRecorder) Logf(string, ...any)   {}
func (g *endRecorder) Skip(...any)           { g.stop("skip") }
func (g *endRecorder) Skipf(string, ...any)  { g.stop("skip") }
func (g *endRecorder) Fatal(...any)          { g.stop("fatal") }
func (g *endRecorder) Fatalf(string, ...any) { g.stop("fatal") }
func (g *endRecorder) stop(end string)       { g.end = end; panic(g) }

func endOf(t *testing.T, f func(testing.TB)) string {
	g := &endRecorder{TB: t, end: "passed"}
	func() {
		defer func() {
			if r := recover(); r != nil && r != any(g) {
				panic(r)
			}
		}()
		f(g)
	}()
	return g.end
}

func TestSharedServersSkipOrFailWithoutServers(t *testing.T) {
	const env = "LEADERBOARD_TEST_GATE"
	down := errors.New("down")
	for _, tt := range []struct {
		name           string
		named, require string
		check, start   error
		servers        int
		want           string
		wantAddrs      []string
	}{
		{name: "servers are not named and not required", servers: 1, want: "skip"},
		{name: "servers are required and start", require: "1", servers: 1, want: "passed", wantAddrs: []string{"started:1"}},
		{name: "servers are required and the start fails", require: "1", start: down, servers: 1, want: "fatal"},
		{name: "servers are named", named: "a:1,b:2", servers: 2, want: "passed", wantAddrs: []string{"a:1", "b:2"}},
		{name: "named servers are used, not started", named: "a:1", require: "1", start: down, servers: 1, want: "passed", wantAddrs: []string{"a:1"}},
		{name: "too few servers are named", named: "a:1", servers: 3, want: "skip"},
		{name: "too few servers are named, and servers are required", named: "a:1", require: "1", servers: 3, want: "fatal"},
		{name: "a named server never answers", named: "a:1", check: fmt.Errorf("%w: %w", errFatal, down), servers: 1, want: "fatal"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(env, tt.named)
			t.Setenv(needs.EnvServers, tt.require)
			t.Setenv(needs.Variable, "") // the check does not start the servers of this test
			k := &kind{
				env:   env,
				check: func(context.Context, []string) error { return tt.check },
				start: func(context.Context, int, func(string, ...any)) (*Cluster, error) {
					if tt.start != nil {
						return nil, tt.start
					}
					return &Cluster{Servers: []*Server{{Addr: "started:1"}}}, nil
				},
			}
			for range 2 { // The second call reuses the servers of the first call.
				var got []string
				if end := endOf(t, func(t testing.TB) { got = k.share(t, tt.servers) }); end != tt.want {
					t.Errorf("share ends the test as %q, want %q", end, tt.want)
				}
				if diff := cmp.Diff(tt.wantAddrs, got); diff != "" {
					t.Errorf("addresses: (-want +got)\n%s", diff)
				}
			}
			if len(k.started) > 1 {
				t.Errorf("started servers %d times, want at most once", len(k.started))
			}
		})
	}
}

func TestPrivateServersSkipOrFailWithoutServers(t *testing.T) {
	t.Setenv(needs.EnvServers, "")
	start := func(context.Context, RedisConfig) (*Cluster, error) { return nil, errors.New("no") }
	private := func(t testing.TB) { Private(t, start, RedisConfig{}) }
	if got := endOf(t, private); got != "skip" {
		t.Errorf("not required: Private ends the test as %q, want skip", got)
	}
	t.Setenv(needs.EnvServers, "1")
	if got := endOf(t, private); got != "fatal" {
		t.Errorf("required and the start fails: Private ends the test as %q, want fatal", got)
	}
}

func TestSecretsFitEachOther(t *testing.T) {
	s, err := NewSecrets(t.TempDir())
	must(t, err)
	client, err := s.TLS()
	must(t, err)
	pair, err := tls.LoadX509KeyPair(s.ServerPEM(), s.ServerPEM())
	must(t, err)
	server := &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: client.RootCAs, ClientAuth: tls.RequireAndVerifyClientCert}
	greet := func(host string, c *tls.Config) error {
		l, err := tls.Listen("tcp", net.JoinHostPort(host, "0"), server)
		must(t, err)
		defer l.Close()
		go func() {
			if conn, err := l.Accept(); err == nil {
				_, _ = io.WriteString(conn, "hello")
				_ = conn.Close()
			}
		}()
		conn, err := tls.Dial("tcp", l.Addr().String(), c)
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = io.ReadAll(conn)
		return err
	}
	for _, host := range []string{"127.0.0.1", "127.0.0.3"} {
		if err := greet(host, client); err != nil {
			t.Errorf("connect to %s: error %v, want none", host, err)
		}
	}
	if err := greet("127.0.0.1", &tls.Config{RootCAs: client.RootCAs}); err == nil {
		t.Error("the server accepted a client without a certificate, want an error")
	}
}
