package page

import (
	"net/http"
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
	if len(links) != 5 {
		t.Fatalf("the demo names %d links, want 5: %q", len(links), links)
	}
	for _, l := range links {
		if strings.Contains(l, "/v1/") {
			call(t.Context(), t, http.MethodGet, l, "")
			continue
		}
		b.visit(l)
		if strings.HasSuffix(l, "/gallery") {
			b.waitForValue(`document.querySelectorAll("leader-board").length`, "5")
			continue
		}
		b.waitForValue(`all(".podium .step, .rows li").length > 9 || all(".podium .step, .rows .row[data-user]").length > 9`, "true")
		b.checkFits()
	}
	b.visit(links[0]) // the best board
	b.waitForText("h1", "International football")
	b.waitForText(".status", "Live")
	// A link without a season shows the newest season, which the demo changes.
	b.visit(links[0] + "#board=football-yearly")
	b.waitForText(".status", "Ended")
	b.waitForText(".notice", "Late results count until")
	b.waitForText(".podium", "1", "2", "3")
	const top = `find(".podium")?.innerText`
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
	b.waitForText(".status", "Ended")
	b.waitForText(".figures", "Players 6", "Season 2025", "Ended Dec 31, 2025")
	b.waitForText(".title", "Best time of each player", "Least first")
	// A row shows the tie-breakers that decide between it and an adjacent row with the same score:
	// both for ada and bob, and none for eve and flo.
	b.rows("1 dan 59 sec, 2 cyd 1:01, 3 ada 2:08:37, 4 bob late starts 0 · wins 1 2:08:37, 5 eve 2:13:20, 5 flo 2:13:20")

	// The menu sorts divisions by their numbers: 9-10 before 30-34.
	b.eval(`find("#division").dispatchEvent(new Event("focus"))`)
	b.waitForValue(`[...find("#division").options].map(o => o.value)`, ",gender:F,gender:M,age:9-10,age:30-34,other")
	b.choose("division", "gender:F")
	b.rows("1 cyd 1:01, 2 ada 2:08:37, 3 eve 2:13:20, 3 flo 2:13:20")
	b.choose("method", "ordinal")
	b.rows("1 cyd 1:01, 2 ada 2:08:37, 3 eve 2:13:20, 4 flo 2:13:20")
	b.search("user", "eve")
	b.waitForText(".card", "eve", "Rank 3 of 4", "Time 2:13:20", "2 AD ada", "4 FL flo", "Personal best")

	// The address has all these choices, so another browser that opens it shows the same ranking.
	const want = "#board=race&season=latest&division=gender%3AF&method=ordinal&user=eve"
	b.waitForValue("location.hash", strings.Replace(want, "season=latest&", "", 1))
	other := openBrowser(t, 1200, 900)
	other.visit(server + "/" + want)
	other.rows("1 cyd 1:01, 2 ada 2:08:37, 3 eve 2:13:20, 4 flo 2:13:20")
	other.waitForText(".card", "Rank 3 of 4")
	// A link that is pasted into the address bar changes the open page, and Back returns.
	other.eval(`location.hash = "#board=race&season=2024"`)
	other.rows("1 old 2:30:00")
	other.eval(`history.back()`)
	other.rows("1 cyd 1:01, 2 ada 2:08:37, 3 eve 2:13:20, 4 flo 2:13:20")

	// What the address names and the server lacks is said, and never replaced by something else.
	b.visit(server + "/#board=race&season=2023")
	b.waitForText(".problem", "There is no season “2023”", "2025", "2024")
	b.visit(server + "/#board=nope")
	b.waitForText(".problem", "There is no board “nope”", "Harbor race")
	b.visit(server + "/#board=default&season=209912")
	b.waitForText(".status", "Upcoming")
	b.waitForText(".empty", "This season has not begun", "It begins on Dec 1, 2099")
}

func TestPageFollowsChanges(t *testing.T) {
	needs.Slow(t, "page")
	server := startRace(t)
	b := openBrowser(t, 1200, 900)
	b.visit(server + "/#board=race&user=bob")
	b.waitForText(".card", "Rank 4", "Time 2:08:37")
	b.click(".card .actions button") // "This is me"
	call(t.Context(), t, http.MethodPost, server+"/v1/boards/race/scores", `{"user_id":"bob","match_id":"m2","score":60,"tie_breakers":[0,1],"achieved_at":"2025-06-01T00:00:00Z"}`)
	b.waitForText(".card", "Rank 2", "Time 1:00", "3 CY cyd")
	b.rows("1 dan 59 sec, 2 bob 1:00, 3 cyd 1:01, 4 ada 2:08:37, 5 eve 2:13:20, 5 flo 2:13:20")
	b.waitForText(".place2 .move", "▲2") // bob moved up by two places
	b.waitForText(".me", "2", "bob", "1:00", "1 sec to rank 1")
	// The arrow stays when something else changes.
	call(t.Context(), t, http.MethodPost, server+"/v1/boards/race/scores", `{"user_id":"gus","match_id":"m","score":9000,"tie_breakers":[0,1],"achieved_at":"2025-06-01T00:00:00Z"}`)
	b.waitForText(".figures", "Players 7")
	b.waitForText(".place2 .move", "▲2")

	b.visit(server + "/#board=race&user=nobody")
	b.waitForText(".card", "nobody is not in this ranking")
	call(t.Context(), t, http.MethodPost, server+"/v1/boards/race/scores", `{"user_id":"nobody","match_id":"m","score":1,"tie_breakers":[0,1],"achieved_at":"2025-06-01T00:00:00Z"}`)
	b.waitForText(".card", "Rank 1")
	b.waitForValue(`find(".card .notice")`, "null")
}

func TestPageOfAnEmptyBoard(t *testing.T) {
	needs.Slow(t, "page")
	server := startRace(t)
	b := openBrowser(t, 1200, 900)
	b.visit(server + "/#board=empty")
	b.waitForText(".empty", "Nobody is here yet", "The first result appears here by itself.")
	b.waitForText(".status", "Live")
	call(t.Context(), t, http.MethodPost, server+"/v1/boards/empty/scores", `{"user_id":"ada","points":1}`)
	b.rows("1 ada 1")
	b.waitForValue(`find(".empty")`, "null")
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
	b.waitForText(".problem", "This leaderboard needs a key")
	b.waitForValue(`find("#refused").innerText`, "")
	b.submit("key", "wrong")
	b.waitForText("#refused", "The server refuses this key")
	b.submit("key", key)
	b.waitForText(".status", "Live")
	b.waitForText(".empty", "Nobody is here yet")
	// The key stays in the tab until the visitor forgets it.
	b.visit(server + "/")
	b.waitForText(".status", "Live")
	b.click("#forget")
	b.waitForText(".problem", "This leaderboard needs a key")
	b.waitForValue(`sessionStorage.length`, "0")
}

func TestPageFitsAPhone(t *testing.T) {
	needs.Slow(t, "page")
	server := startRace(t)
	long := strings.Repeat("W", 128)
	call(t.Context(), t, http.MethodPost, server+"/v1/boards/race/scores", `{"user_id":"`+long+`","match_id":"m","score":360000,"tie_breakers":[0,1],"achieved_at":"2025-06-01T00:00:00Z"}`)
	call(t.Context(), t, http.MethodPost, server+"/v1/boards/empty/scores", `{"user_id":"United Arab Emirates","points":9007199254740991}`)
	b := openBrowser(t, 320, 640)
	b.visit(server + "/#board=race&user=" + long)
	b.waitForText(".card", "Rank 7", "100:00:00")
	b.waitForText(".rows", long)
	b.checkFits()
	b.visit(server + "/#board=empty")
	b.rows("1 United Arab Emirates 9,007,199,254,740,991")
	b.checkFits()
}
