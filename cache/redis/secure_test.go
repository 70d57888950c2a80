package redis

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	goredis "github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/cache/cachetest"
	"github.com/open-leaderboard/leaderboard/internal/certs"
	"github.com/open-leaderboard/leaderboard/test/authority"
	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

// refusingServer starts a server that answers every command with an error.
func refusingServer(t *testing.T, reply string) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
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
			go func() {
				defer conn.Close()
				for in := bufio.NewScanner(conn); in.Scan(); {
					if strings.HasPrefix(in.Text(), "*") { // one answer for each command
						if _, err := io.WriteString(conn, "-"+reply+"\r\n"); err != nil {
							return
						}
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

// If a credential is wrong, the error of Open is one line that names the server and the
// setting. Open accepts correct credentials.
func TestRejectedCredentials(t *testing.T) {
	ca, err := authority.New(t.TempDir(), "ca")
	if err != nil {
		t.Fatal(err)
	}
	other, err := authority.New(t.TempDir(), "other")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue("redis", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	config, err := ca.Server(pair)
	if err != nil {
		t.Fatal(err)
	}
	plain := miniredis.RunT(t)
	secured := miniredis.NewMiniRedis()
	if err := secured.StartTLS(config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(secured.Close)
	for _, server := range []*miniredis.Miniredis{plain, secured} {
		server.RequireUserAuth("ada", "secret")
	}
	clientFiles := &certs.Client{CA: ca.File, Cert: pair.Cert, Key: pair.Key}
	for _, tt := range []struct {
		name           string
		addr           string
		user, password string
		tls            *certs.Client
		master         string
		want           string // text in the error; empty if the credentials are correct
	}{
		{"a password", plain.Addr(), "ada", "secret", nil, "", ""},
		{"a password over TLS", secured.Addr(), "ada", "secret", clientFiles, "", ""},
		{"a wrong password", plain.Addr(), "ada", "wrong", nil, "", "correct redis.username and redis.password: WRONGPASS"},
		{"a wrong password over TLS", secured.Addr(), "ada", "wrong", clientFiles, "", "correct redis.username and redis.password: WRONGPASS"},
		{"no password", refusingServer(t, "NOAUTH Authentication required."), "", "", nil, "", "correct redis.username and redis.password: NOAUTH"},
		{"another authority", secured.Addr(), "ada", "secret", &certs.Client{CA: other.File}, "", "redis.tls.ca"},
		{"another name", secured.Addr(), "ada", "secret", &certs.Client{CA: ca.File, ServerName: "db.example"}, "", "redis.tls.server_name"},
		{"no client certificate", secured.Addr(), "ada", "secret", &certs.Client{CA: ca.File}, "", "set redis.tls.cert and redis.tls.key"},
		{"a wrong password of Sentinel", refusingServer(t, "WRONGPASS invalid username-password pair or user is disabled."), "ada", "secret", nil, "master", "correct redis.sentinel_username and redis.sentinel_password: WRONGPASS"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := Options{Redis: &goredis.UniversalOptions{Addrs: []string{tt.addr}, Username: tt.user, Password: tt.password, MasterName: tt.master, DialerRetries: 1}}
			if tt.tls != nil {
				client := *tt.tls
				client.Setting = "redis.tls"
				h, err := client.Handshake()
				if err != nil {
					t.Fatal(err)
				}
				o.Redis.Dialer = h.Dial(2 * time.Second)
			}
			x, err := Open(t.Context(), o)
			switch {
			case tt.want != "":
				if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), tt.addr) || strings.Contains(err.Error(), "\n") {
					t.Errorf("Open = %v, want one line with %q and %s", err, tt.want, tt.addr)
				}
			case err == nil || !strings.Contains(err.Error(), "'info' command"): // miniredis does not support this form of INFO
				t.Errorf("Open = %v, want only the error of the INFO command", err)
			}
			if x != nil {
				_ = x.Close()
			}
		})
	}
}

// The index keeps its contract on a Redis Cluster that requires TLS, a client certificate and a password.
// If a credential is wrong, the error of Open is one line that names the servers and the setting.
func TestSecuredCluster(t *testing.T) {
	needs.Slow(t, "secured")
	secrets, err := cluster.NewSecrets(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	other, err := authority.New(t.TempDir(), "other")
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := other.Issue("stranger")
	if err != nil {
		t.Fatal(err)
	}
	addrs := cluster.Private(t, cluster.StartRedisCluster, cluster.RedisConfig{Secrets: secrets}).Addrs()
	optionsWith := func(change func(*certs.Client, *goredis.UniversalOptions)) Options {
		t.Helper()
		o := options(addrs, 6)
		o.Redis.Username, o.Redis.Password = secrets.Username, secrets.Password
		client := &certs.Client{CA: secrets.CA, Cert: secrets.Cert, Key: secrets.Key, Setting: "redis.tls"}
		change(client, o.Redis)
		h, err := client.Handshake()
		if err != nil {
			t.Fatal(err)
		}
		o.Redis.Dialer = h.Dial(2 * time.Second)
		return o
	}
	open := func(tb testing.TB) leaderboard.Index {
		return openUnclosed(tb, optionsWith(func(*certs.Client, *goredis.UniversalOptions) {}))
	}
	cachetest.RunHistories(t, open, limitsOf(6), cachetest.Sizes{Histories: 3, Changes: 20})
	for _, tt := range []struct {
		name   string
		change func(*certs.Client, *goredis.UniversalOptions)
		want   string
	}{
		{"a wrong password", func(_ *certs.Client, o *goredis.UniversalOptions) { o.Password = "wrong" }, "correct redis.username and redis.password: WRONGPASS"},
		{"an unknown user", func(_ *certs.Client, o *goredis.UniversalOptions) { o.Username = "nobody" }, "correct redis.username and redis.password: WRONGPASS"},
		{"no password", func(_ *certs.Client, o *goredis.UniversalOptions) { o.Username, o.Password = "", "" }, "correct redis.username and redis.password: NOAUTH"},
		{"another authority", func(c *certs.Client, _ *goredis.UniversalOptions) { c.CA = other.File }, "redis.tls.ca"},
		{"another name", func(c *certs.Client, _ *goredis.UniversalOptions) { c.ServerName = "db.example" }, "redis.tls.server_name"},
		{"no client certificate", func(c *certs.Client, _ *goredis.UniversalOptions) { c.Cert, c.Key = "", "" }, "set redis.tls.cert and redis.tls.key"},
		{"another client certificate", func(c *certs.Client, _ *goredis.UniversalOptions) { c.Cert, c.Key = stranger.Cert, stranger.Key }, "the server refuses the certificate of redis.tls.cert"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x, err := Open(t.Context(), optionsWith(tt.change))
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), addrs[0]) || strings.Contains(err.Error(), "\n") {
				t.Errorf("Open = %v, want one line with %q and %s", err, tt.want, addrs[0])
			}
			if x != nil {
				_ = x.Close()
			}
		})
	}
}
