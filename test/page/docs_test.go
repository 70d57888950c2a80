package page

import (
	"testing"

	"github.com/open-leaderboard/leaderboard/test/needs"
)

// The browser fails the test if the content security policy blocks a part of the page.
func TestDocsShowTheAPI(t *testing.T) {
	needs.Slow(t, "page")
	server := serve(t, "--insecure")
	b := openBrowser(t, 1200, 900)
	b.visit(server + "/docs")
	b.waitForText("#viewer", "Leaderboard", "OAS 3.1", "Submit results, and read rankings.")
	b.eval(`document.querySelector("#operations-tag-Scores").click()`)
	b.waitForText("#viewer", "Submits one result", "/v1/boards/{board}/scores")
	b.eval(`document.querySelector("#operations-Scores-submitScore button").click()`)
	b.waitForText("#viewer", "POST /v1/boards/marathon/scores", "include_previous_rank", "FLOOR")
	const hosts = `[...new Set(performance.getEntriesByType("resource").map(e => new URL(e.name).origin))].join()`
	if got := b.eval(hosts); got != server {
		t.Errorf("the page loaded from %s, want only %s", got, server)
	}
}
