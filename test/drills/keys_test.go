package drills

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard/test/authority"
	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/deployment"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

const page = "drills.md"

// idOf returns the id of a key in the output of "leaderboard key list".
func idOf(t *testing.T, list, name string) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^\W*([0-9a-z-]+)\W+` + name + `\s`).FindStringSubmatch(list)
	if m == nil {
		t.Fatalf("the list has no key %s:\n%s", name, list)
	}
	return m[1]
}

func TestDrillAPIKey(t *testing.T) {
	n := deployment.Embedded(t, filepath.Join(t.TempDir(), "data"))
	d := newDrill(t, page, "Rotate an API key", 2)
	d.at(n)
	old := strings.TrimSpace(d.again("leaderboard key create --name arena-eu --scope submit --jq .secret"))
	list := d.next()
	fresh := d.file("arena-eu-2.key")
	checkKey(t, n, "the old key", old, http.StatusOK)
	checkKey(t, n, "the new key", fresh, http.StatusOK)
	d.env["OLD_KEY_ID"] = idOf(t, list, "arena-eu")
	d.next()
	checkKey(t, n, "the revoked key", old, http.StatusUnauthorized)
	checkKey(t, n, "the new key", fresh, http.StatusOK)
}

func TestDrillAdminKey(t *testing.T) {
	n := deployment.Embedded(t, filepath.Join(t.TempDir(), "data"))
	d := newDrill(t, page, "Rotate the admin key", 3)
	d.at(n)
	d.next()
	old, fresh := n.Key, "the new admin key of the drill"
	n.Key = fresh
	must(t, n.Restart(t.Context()))
	d.env["LEADERBOARD_KEY"] = "wrong"
	contains(t, d.next(), "operators")
	checkKey(t, n, "the old admin key", old, http.StatusUnauthorized)
	checkKey(t, n, "the new admin key", fresh, http.StatusOK)
	d.env["LEADERBOARD_KEY"] = fresh
	list := d.again("leaderboard key list")
	d.env["SECOND_KEY_ID"] = idOf(t, list, "operators")
	d.next()
	checkKey(t, n, "the second admin key", d.file("operators.key"), http.StatusUnauthorized)
}

// signer signs tokens, and has a set with its public key.
type signer struct {
	id  string
	key ed25519.PrivateKey
}

func newSigner(t *testing.T, id string) signer {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	return signer{id, key}
}

var encode = base64.RawURLEncoding.EncodeToString

func (s signer) write(t *testing.T, file string) {
	t.Helper()
	public := s.key.Public().(ed25519.PublicKey)
	set := map[string]any{"keys": []any{map[string]any{"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig", "kid": s.id, "x": encode(public)}}}
	text, err := json.Marshal(set)
	must(t, err)
	must(t, os.WriteFile(file, text, 0o600))
}

func (s signer) token() string {
	head := fmt.Sprintf(`{"alg":"EdDSA","typ":"JWT","kid":%q}`, s.id)
	claims := fmt.Sprintf(`{"iss":"drill","aud":"leaderboard","sub":"ada","scope":"read","exp":%d}`, time.Now().Add(time.Hour).Unix())
	text := encode([]byte(head)) + "." + encode([]byte(claims))
	return text + "." + encode(ed25519.Sign(s.key, []byte(text)))
}

func TestDrillTokenKey(t *testing.T) {
	needs.Programs(t, "jq")
	needs.NoRace(t, "the test waits for the refresh of keys in another process")
	d := newDrill(t, page, "Rotate the key of tokens", 2)
	old, fresh := newSigner(t, "old"), newSigner(t, "new")
	old.write(t, filepath.Join(d.dir, "jwks.json"))
	fresh.write(t, filepath.Join(d.dir, "new-jwks.json"))
	n := deployment.Embedded(t, filepath.Join(t.TempDir(), "data"), "--jwt-algorithm=EdDSA", "--jwt-issuer=drill", "--jwt-audience=leaderboard",
		"--jwt-jwks="+filepath.Join(d.dir, "jwks.json"), "--jwt-refresh=10s")
	wait := func(what string, s signer, want int) {
		t.Helper()
		deployment.Eventually(t, func(ctx context.Context) error {
			got, err := status(ctx, n, s.token())
			if err == nil && got != want {
				err = fmt.Errorf("a read with a token of the %s key: status %d, want %d: %w", what, got, want, errNotYet)
			}
			return err
		})
	}
	checkKey(t, n, "a token of the old key", old.token(), http.StatusOK)
	checkKey(t, n, "a token of the new key", fresh.token(), http.StatusUnauthorized)
	d.next()
	wait("new", fresh, http.StatusOK)
	checkKey(t, n, "a token of the old key", old.token(), http.StatusOK)
	d.next()
	wait("old", old, http.StatusUnauthorized)
	checkKey(t, n, "a token of the new key", fresh.token(), http.StatusOK)
}

func TestDrillCertificate(t *testing.T) {
	d := newDrill(t, page, "Rotate a certificate", 1)
	folder := t.TempDir()
	ca, err := authority.New(folder, "ca")
	must(t, err)
	issue := func(name, cert, key string) {
		t.Helper()
		pair, err := ca.Issue(name, "127.0.0.1")
		must(t, err)
		must(t, os.Rename(pair.Cert, cert))
		must(t, os.Rename(pair.Key, key))
	}
	issue("first", filepath.Join(folder, "cert.pem"), filepath.Join(folder, "key.pem"))
	issue("second", filepath.Join(d.dir, "new.pem"), filepath.Join(d.dir, "new-key.pem"))
	text, err := os.ReadFile(ca.File)
	must(t, err)
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(text)
	http.DefaultTransport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: authorities}
	n := deployment.Embedded(t, filepath.Join(t.TempDir(), "data"), "--tls-cert="+filepath.Join(folder, "cert.pem"), "--tls-key="+filepath.Join(folder, "key.pem"))
	serial := func() string {
		conn, err := tls.Dial("tcp", strings.TrimPrefix(n.URL, "https://"), &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // the test compares certificates
		must(t, err)
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	before := serial()
	d.env["FOLDER"] = folder
	d.program("systemctl", "sh", "-c", `[ "$*" = "reload leaderboard" ] && kill -HUP `+fmt.Sprint(n.PID()), "systemctl")
	d.next()
	deployment.Eventually(t, func(context.Context) error {
		if serial() == before {
			return fmt.Errorf("the certificate is the old one: %w", errNotYet)
		}
		return nil
	})
	if err := syscall.Kill(n.PID(), 0); err != nil {
		t.Errorf("the process has ended: %v", err)
	}
}

func TestDrillRedisPassword(t *testing.T) {
	needs.Programs(t, "redis-cli")
	server := cluster.Private(t, cluster.StartRedis, cluster.RedisConfig{})
	d := newDrill(t, page, "Rotate the password of Redis", 2)
	d.env["REDIS_HOST"], d.env["REDIS_PORT"], _ = strings.Cut(server.Servers[0].Addr, ":")
	d.env["OLD_PASSWORD"], d.env["NEW_PASSWORD"] = "old secret", "new secret"
	d.again(`redis-cli -h "$REDIS_HOST" -p "$REDIS_PORT" acl setuser leaderboard on ">$OLD_PASSWORD" "~*" "+@all"`)
	check := func(password string, want bool) {
		t.Helper()
		c := goredis.NewClient(&goredis.Options{Addr: server.Servers[0].Addr, Username: "leaderboard", Password: password})
		defer c.Close()
		if err := c.Ping(t.Context()).Err(); (err == nil) != want {
			t.Errorf("the password %q: error %v, want accepted: %v", password, err, want)
		}
	}
	check("new secret", false)
	d.next()
	check("old secret", true)
	check("new secret", true)
	d.next()
	check("old secret", false)
	check("new secret", true)
}
