package page

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/open-leaderboard/leaderboard/test/needs"
)

var link = regexp.MustCompile(`http://[^\s']+`)

func TestEveryLinkOfTheDemoWorks(t *testing.T) {
	needs.Slow(t, "page")
	b := openBrowser(t, 1200, 900)
	out := startProgram(t, "Press Ctrl-C", "demo", "--speed", "400")
	links := link.FindAllString(out, -1)
	if len(links) != 4 {
		t.Fatalf("the demo names %d links, want 4: %q", len(links), links)
	}
	for _, l := range links {
		if strings.Contains(l, "/v1/") {
			call(t.Context(), t, http.MethodGet, l, "")
			continue
		}
		b.visit(l)
		b.waitForText("#state", "live")
		b.waitForValue(`document.querySelectorAll("#top tr").length`, "10")
		b.waitForText("#caption", "entrants")
		b.checkFits()
	}
	// A link without a season shows the newest season, which the demo changes.
	b.visit(links[0] + "#board=football-yearly")
	b.waitForText("#state", "live")
	b.waitForValue(`document.getElementById("season").value`, "latest")
	b.waitForValue(`document.querySelectorAll("#top tr").length`, "10")
	const top = `document.getElementById("top").innerText`
	before := b.eval(top)
	b.waitFor("the top changes", func() (string, bool) { current := b.eval(top); return current, current != before && current != "" })
}

// race is a board with every property that the page can show.
const race = `{"board_id":"race","title":"Harbor race","policy":"BEST","order":"LOWER_FIRST","unit":"s",
	"tie_breakers":[{"name":"late_starts","order":"LOWER_FIRST"},{"name":"wins","order":"HIGHER_FIRST"}],"divisions":["gender","age"],
	"season":{"schedule":"EXPLICIT","grace":"315360000s","windows":[
		{"id":"2024","start":"2024-01-01T00:00:00Z","end":"2025-01-01T00:00:00Z"},{"id":"2025","start":"2025-01-01T00:00:00Z","end":"2026-01-01T00:00:00Z"}]}}`

const runners = `{"results":[
	{"user_id":"ada","match_id":"m","score":7717,"tie_breakers":[0,3],"attributes":{"gender":"F","age":"30-34"},"achieved_at":"2025-05-01T00:00:00Z"},
	{"user_id":"bob","match_id":"m","score":7717,"tie_breakers":[0,1],"attributes":{"gender":"M","age":"9-10"},"achieved_at":"2025-05-01T00:00:00Z"},
	{"user_id":"cyd","match_id":"m","score":61,"tie_breakers":[2,2],"attributes":{"gender":"F","age":"30-34"},"achieved_at":"2025-05-01T00:00:00Z"},
	{"user_id":"dan","match_id":"m","score":59,"tie_breakers":[2,2],"attributes":{"gender":"M","age":"30-34"},"achieved_at":"2025-05-01T00:00:00Z"},
	{"user_id":"eve","match_id":"m","score":8000,"tie_breakers":[1,1],"attributes":{"gender":"F","age":"30-34"},"achieved_at":"2025-05-01T00:00:00Z"},
	{"user_id":"flo","match_id":"m","score":8000,"tie_breakers":[1,1],"attributes":{"gender":"F","age":"30-34"},"achieved_at":"2025-05-02T00:00:00Z"},
	{"user_id":"old","match_id":"m","score":9000,"tie_breakers":[0,0],"attributes":{"gender":"F","age":"80+"},"achieved_at":"2024-05-01T00:00:00Z"}]}`

func startRace(t *testing.T) string {
	t.Helper()
	server := serve(t, "--insecure")
	call(t.Context(), t, http.MethodPost, server+"/v1/boards", race)
	call(t.Context(), t, http.MethodPost, server+"/v1/boards", `{"board_id":"empty","policy":"SUM","order":"HIGHER_FIRST"}`)
	if answer := call(t.Context(), t, http.MethodPost, server+"/v1/boards/race/scores:batch", runners); strings.Count(answer, `"APPLIED"`) != 7 {
		t.Fatalf("the answer to the batch is %s, want 7 results with the status APPLIED", answer)
	}
	return server
}

func TestPageShowsARanking(t *testing.T) {
	server := startRace(t)
	b := openBrowser(t, 1200, 900)
	b.visit(server + "/#board=race")
	b.waitForText("h1", "Harbor race")
	b.waitForText("#caption", "season 2025", "6 entrants")
	b.waitForText("thead", "Time")
	// A row shows the tie-breakers that decide between it and an adjacent row with the same score:
	// both for ada and bob, and none for eve and flo.
	b.waitForText("#top", "1 dan 59 2 cyd 1:01 3 ada late starts 0 · wins 3 2:08:37 4 bob late starts 0 · wins 1 2:08:37 5 eve 2:13:20 5 flo 2:13:20")

	// The list sorts divisions by their numbers: 9-10 before 30-34.
	b.waitForValue(`[...document.getElementById("division").options].map(o => o.value)`, ",gender:F,gender:M,age:9-10,age:30-34,other")
	b.choose("division", "gender:F")
	b.waitForText("#top", "1 cyd 1:01 2 ada 2:08:37 3 eve 2:13:20 3 flo 2:13:20")
	b.choose("method", "ordinal")
	b.waitForText("#top", "3 eve 2:13:20 4 flo 2:13:20")
	b.choose("season", "2025")
	b.submit("user", "eve")
	b.waitForText("#found", "Rank 3", "Score 2:13:20", "2 ada", "3 eve", "4 flo")

	// The address has all these choices, so another browser that opens it shows the same ranking.
	const want = "#board=race&season=2025&division=gender%3AF&method=ordinal&user=eve"
	b.waitForValue("location.hash", want)
	other := openBrowser(t, 1200, 900)
	other.visit(server + "/" + want)
	other.waitForText("#top", "1 cyd 1:01 2 ada 2:08:37 3 eve 2:13:20 4 flo 2:13:20")
	other.waitForText("#found", "Rank 3")
	other.waitForValue(`["season", "division", "method"].map(id => document.getElementById(id).value)`, "2025,gender:F,ordinal")
	// A link that is pasted into the address bar changes the open page.
	other.eval(`location.hash = "#board=race&season=2024"`)
	other.waitForText("#top", "1 old 2:30:00")
	other.choose("division", "other")
	other.submit("other", "age:80+")
	other.waitForValue("location.hash", "#board=race&season=2024&division="+url.QueryEscape("age:80+"))
	other.waitForText("#caption", "age:80+", "1 entrant")

	b.visit(server + "/#board=race&season=2023")
	b.waitForText("#caption", `no season "2023"`, `"2024" and "2025"`)
	b.waitForText("#state", "stopped")
}

func TestPageFollowsChanges(t *testing.T) {
	needs.Slow(t, "page")
	server := startRace(t)
	b := openBrowser(t, 1200, 900)
	b.visit(server + "/#board=race&user=bob")
	b.waitForText("#found", "Rank 4", "Score 2:08:37")
	b.waitForText("#top", "4 bob")
	call(t.Context(), t, http.MethodPost, server+"/v1/boards/race/scores", `{"user_id":"bob","match_id":"m2","score":60,"tie_breakers":[0,1],"achieved_at":"2025-06-01T00:00:00Z"}`)
	b.waitForValue(`[...document.querySelectorAll("#top tr")].map(tr => tr.dataset.user)`, "dan,bob,cyd,ada,eve,flo")
	b.waitForText("#top", "2▲2 bob") // the row has moved up by two places
	b.waitForText("#found", "Rank 2", "Score 1:00", "3 cyd")
	b.waitForText("#top tr.mine", "bob")

	b.submit("user", "nobody")
	b.waitForText("#problem", "nobody has no entry in this ranking")
	call(t.Context(), t, http.MethodPost, server+"/v1/boards/race/scores", `{"user_id":"nobody","match_id":"m","score":1,"tie_breakers":[0,1],"achieved_at":"2025-06-01T00:00:00Z"}`)
	b.waitForText("#found", "Rank 1")
	b.waitForValue(`document.getElementById("problem").innerText`, "")
}

func TestPageOfAnEmptyBoard(t *testing.T) {
	needs.Slow(t, "page")
	server := startRace(t)
	b := openBrowser(t, 1200, 900)
	b.visit(server + "/#board=empty")
	b.waitForText("#empty", "This ranking has no entries yet.")
	b.waitForText("#state", "live")
	call(t.Context(), t, http.MethodPost, server+"/v1/boards/empty/scores", `{"user_id":"ada","points":1}`)
	b.waitForText("#top", "1 ada 1")
	b.waitForValue(`document.getElementById("empty").hidden`, "true")
}

func TestPageAsksForAKey(t *testing.T) {
	needs.Slow(t, "page")
	file := filepath.Join(t.TempDir(), "key")
	server := serve(t, "--first-key-file", file)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	key := strings.TrimSpace(string(text))
	b := openBrowser(t, 1200, 900)
	b.visit(server + "/")
	b.waitForText("#state", "a key is needed")
	b.waitForText("#key", "API key")
	b.waitForValue(`document.getElementById("refused").hidden`, "true")
	b.submit("secret", "wrong")
	b.waitForText("#refused", "does not accept this key")
	b.submit("secret", key)
	b.waitForText("#state", "live")
	b.waitForValue(`document.getElementById("key").hidden`, "true")
	b.waitForText("#empty", "no entries yet")
}

func TestPageFitsAPhone(t *testing.T) {
	needs.Slow(t, "page")
	server := startRace(t)
	long := strings.Repeat("W", 128)
	call(t.Context(), t, http.MethodPost, server+"/v1/boards/race/scores", `{"user_id":"`+long+`","match_id":"m","score":360000,"tie_breakers":[0,1],"achieved_at":"2025-06-01T00:00:00Z"}`)
	call(t.Context(), t, http.MethodPost, server+"/v1/boards/empty/scores", `{"user_id":"United Arab Emirates","points":9007199254740991}`)
	b := openBrowser(t, 360, 740)
	b.visit(server + "/#board=race&user=ada")
	b.waitForText("#found", "Rank 3")
	b.waitForText("#top", long, "100:00:00")
	b.checkFits()
	b.visit(server + "/#board=empty&user=United+Arab+Emirates")
	b.waitForText("#found", "Rank 1")
	if b.eval("document.documentElement.scrollWidth <= innerWidth") != "true" {
		t.Error("the page with the largest score is wider than a phone, want it to fit")
	}
}
