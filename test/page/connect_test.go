package page

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/packages"
)

// The clients of connect-es and grpc-web call a server of another origin, by messages that they read from
// the protos.
func TestConnectInPageOfAnotherOrigin(t *testing.T) {
	needs.Slow(t, "clients")
	const sources, tools, key = "connect", "../../tools", "admin-key-of-the-test"
	dist := t.TempDir()
	t.Setenv("NODE_PATH", packages.Node(t, sources))
	entry, err := filepath.Abs(filepath.Join(sources, "page.js"))
	if err != nil {
		t.Fatal(err)
	}
	run(t, tools, "go", "run", "github.com/evanw/esbuild/cmd/esbuild", entry, "--bundle", "--format=esm", "--target=es2022", "--outfile="+filepath.Join(dist, "page.js"))
	run(t, tools, "go", "tool", "buf", "build", "../api", "--as-file-descriptor-set", "-o", filepath.Join(dist, "api.binpb"))
	if err := os.WriteFile(filepath.Join(dist, "page.html"), []byte(`<!doctype html><pre></pre><script type="module" src="/page.js"></script>`), 0o600); err != nil {
		t.Fatal(err)
	}
	site := func() string {
		s := httptest.NewServer(http.FileServer(http.Dir(dist)))
		t.Cleanup(s.Close)
		return s.URL
	}
	allowed, other := site(), site()
	t.Setenv("LEADERBOARD_ADMIN_KEY", key)
	t.Setenv("LEADERBOARD_WEB_CORS_ORIGINS", allowed)
	query := "/page.html?" + url.Values{"server": {serve(t)}, "key": {key}}.Encode()
	var want, refused strings.Builder
	for _, protocol := range []struct{ name, user string }{{"connect", "ann"}, {"connect JSON", "bob"}, {"connect GET", "cyd"}, {"gRPC-Web", "dan"}, {"gRPC-Web JSON", "eve"}} {
		fmt.Fprintf(&want, "%[1]s submit: 30\n%[1]s read: %s 30\n%[1]s error: true NotFound ENTRY_NOT_FOUND\n%[1]s live: 35\n", protocol.name, protocol.user)
		fmt.Fprintf(&refused, "%s failed: true no answer\n", protocol.name)
	}
	want.WriteString("gRPC-Web text submit: 30\ngRPC-Web text error: true 5\ngRPC-Web text live: 30\nend")
	refused.WriteString("gRPC-Web text failed: no answer\nend")
	b := openBrowser(t, 800, 600)
	b.visit(allowed + query)
	b.waitForValue(`find("pre")?.innerText.trim()`, want.String())
	b.visit(other + query)
	b.waitForValue(`find("pre")?.innerText.trim()`, refused.String())
}
