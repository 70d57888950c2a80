package page

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/packages"
)

// clientPage is a page of another origin than the server's.
const clientPage = `<!doctype html><pre></pre><script type="module">
import { Client, ConnectionError, LeaderboardError } from "/client.js";
const show = (...values) => document.querySelector("pre").append(values.join(" "), "\n");
const client = new Client("SERVER", { key: "KEY", retryFor: -1 }), board = client.board("default");
try {
	const submitted = await board.submit({ user_id: "ann/1", points: 30 });
	show(submitted.status, submitted.new_score);
	const [bob] = await board.submitBatch([{ user_id: "bob", points: 20 }]);
	show(bob.status, bob.rank);
	for await (const entry of board.entries({ limit: 1 })) show("top:", entry.rank, entry.user_id, entry.score);
	for (const entry of (await board.user("ann/1", { neighbors: 1 })).neighbors) show("neighbor:", entry.user_id);
	await board.user("cyd").catch(e => show(e instanceof LeaderboardError, e.status, e.reason, typeof e.requestId));
	for await (const top of board.watch({ limit: 1 })) {
		show("live:", top.leaderboard[0].user_id, top.leaderboard[0].score);
		if (top.leaderboard[0].user_id === "bob") break;
		await board.submit({ user_id: "bob", points: 11 });
	}
} catch (e) {
	show(e instanceof ConnectionError, e.name);
}
show("end");
</script>`

func TestClientInPageOfAnotherOrigin(t *testing.T) {
	needs.Slow(t, "clients")
	const client, key = "../../sdk/typescript", "admin-key-of-the-test"
	dist := t.TempDir()
	run(t, client, filepath.Join(packages.Node(t, client), ".bin", "tsc"), "--project", ".", "--outDir", dist)
	site := func() string {
		s := httptest.NewServer(http.FileServer(http.Dir(dist)))
		t.Cleanup(s.Close)
		return s.URL
	}
	allowed, other := site(), site()
	t.Setenv("LEADERBOARD_ADMIN_KEY", key)
	t.Setenv("LEADERBOARD_WEB_CORS_ORIGINS", allowed)
	page := strings.NewReplacer("SERVER", serve(t), "KEY", key).Replace(clientPage)
	if err := os.WriteFile(filepath.Join(dist, "page.html"), []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	b := openBrowser(t, 800, 600)
	b.visit(allowed + "/page.html")
	b.waitForValue(`find("pre")?.innerText.trim()`, `APPLIED 30
APPLIED 2
top: 1 ann/1 30
top: 2 bob 20
neighbor: ann/1
neighbor: bob
true 404 ENTRY_NOT_FOUND string
live: ann/1 30
live: bob 31
end`)
	b.visit(other + "/page.html")
	b.waitForValue(`find("pre")?.innerText.trim()`, "true ConnectionError\nend")
}
