package page

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/open-leaderboard/leaderboard/api/web"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

// stub is a server with the real pages, and with answers that a test chooses: states that a real server has
// only after weeks or failures, and a ranking with a million entries.
type stub struct {
	mu      sync.Mutex
	board   map[string]any
	season  map[string]any
	ranking map[string]any // fields that replace those of lists
	total   int
	refuse  int // a status for every call, or 0
}

func startStub(t *testing.T) (*stub, *httptest.Server) {
	t.Helper()
	s := &stub{
		board: map[string]any{
			"board_id": "b", "title": "A board", "order": "HIGHER_FIRST", "policy": "SUM", "unit": "points", "decimals": 0, "private": false,
			"tie_breakers": []any{}, "divisions": []any{}, "season": map[string]any{"schedule": "MONTHLY", "time_zone": "UTC"},
		},
		season:  map[string]any{"id": "202611", "status": "open", "amendments": []any{}, "start": "2026-11-01T00:00:00Z", "end": "2999-12-01T00:00:00Z"},
		ranking: map[string]any{}, total: 1_000_000,
	}
	mux := http.NewServeMux()
	for pattern, handler := range web.Handlers("'self'") {
		mux.Handle("GET "+pattern, handler)
	}
	mux.HandleFunc("/v1/", s.serve)
	server := httptest.NewServer(mux)
	t.Cleanup(server.CloseClientConnections)
	t.Cleanup(server.Close)
	return s, server
}

// set changes fields of an object of the stub.
func (s *stub) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *stub) list(start, limit int) map[string]any {
	entries := []any{}
	for i := start; i < start+limit && i <= s.total; i++ {
		entries = append(entries, map[string]any{"user_id": fmt.Sprintf("user %d", i), "score": 2 * (1_000_000 - i), "rank": i})
	}
	data := map[string]any{
		"leaderboard": entries, "count": len(entries), "total": s.total, "board": s.board["board_id"], "season": s.season["id"], "division": "",
		"method": "competition", "next_page_token": "", "degraded": false, "sealed": false, "as_of": "2026-11-29T00:00:00Z",
	}
	for name, value := range s.ranking {
		if data[name] = value; value == nil {
			delete(data, name)
		}
	}
	return data
}

func (s *stub) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Access-Control-Allow-Origin", "*")
	w.Header().Set("Access-Control-Allow-Headers", "Authorization")
	path := strings.TrimPrefix(r.URL.Path, "/v1/boards/b")
	number := func(name string, standard int) int {
		if n, err := strconv.Atoi(r.URL.Query().Get(name)); err == nil {
			return n
		}
		return standard
	}
	var answer any
	switch {
	case r.Method == http.MethodOptions:
		return
	case s.refuse != 0:
		w.WriteHeader(s.refuse)
		answer = map[string]any{"message": "refused by the test"}
	case r.URL.Path == "/v1/boards":
		answer = map[string]any{"boards": []any{s.board}}
	case path == "":
		answer = s.board
	case path == "/seasons":
		answer = map[string]any{"data": map[string]any{"board": "b", "seasons": []any{s.season}, "current": s.season["id"], "next_page_token": ""}}
	case strings.HasPrefix(path, "/seasons/"):
		answer = map[string]any{"data": s.season}
	case path == "/scores":
		answer = map[string]any{"data": s.list(number("start_rank", 1), number("limit", 10))}
	case path == "/watch":
		w.Header().Set("Content-Type", "text/event-stream")
		data, _ := json.Marshal(s.list(1, number("limit", 10)))
		_, _ = fmt.Fprintf(w, "data: %s\n\n", data)
		w.(http.Flusher).Flush()
		s.mu.Unlock()
		<-r.Context().Done()
		s.mu.Lock()
		return
	default:
		w.WriteHeader(http.StatusNotFound)
		answer = map[string]any{"details": []any{map[string]any{"reason": "ENTRY_NOT_FOUND"}}}
	}
	data, _ := json.Marshal(answer)
	_, _ = w.Write(data)
}

func TestPageNamesEachState(t *testing.T) {
	needs.Slow(t, "page")
	s, server := startStub(t)
	b := openBrowser(t, 1200, 900)
	past := map[string]any{"end": "2026-11-15T00:00:00Z"}
	for _, test := range []struct {
		name            string
		season, ranking map[string]any
		status, text    string
	}{
		{"open", nil, nil, "Live", "Ends in"},
		{"grace", map[string]any{"status": "grace", "end": past["end"], "closes_at": "2026-11-16T00:00:00Z"}, nil, "Ended", "Late results count until Nov 16, 2026"},
		{"closed", map[string]any{"status": "closed", "end": past["end"]}, nil, "Ended", "Its final ranks follow soon."},
		{"sealed", map[string]any{"status": "sealed", "end": past["end"]}, map[string]any{"sealed": true}, "Final", "Ended Nov 14, 2026"},
		{"degraded", nil, map[string]any{"degraded": true, "total": nil}, "Live", "Ranks are unavailable for the moment."},
		{"filling", nil, map[string]any{"filling": true}, "Live", "Earlier results are still being added."},
	} {
		s.set(func() {
			s.ranking = test.ranking
			s.season = map[string]any{"id": "202611", "status": "open", "amendments": []any{}, "start": "2026-11-01T00:00:00Z", "end": "2999-12-01T00:00:00Z"}
			for name, value := range test.season {
				s.season[name] = value
			}
		})
		b.visit(server.URL + "/#board=b")
		b.waitForText(".status", test.status)
		b.waitForText("main", "November 2026", test.text)
		if live := b.eval(`find(".status").innerText === "Live"`); (live == "true") != (test.status == "Live") {
			t.Errorf("%s: the status is Live: %s, want %s", test.name, live, test.status)
		}
	}
}

func TestPageOfAServerThatFails(t *testing.T) {
	needs.Slow(t, "page")
	s, server := startStub(t)
	b := openBrowser(t, 1200, 900)
	for status, text := range map[int]string{http.StatusForbidden: "This key does not open this board", http.StatusServiceUnavailable: "The server is not ready"} {
		s.set(func() { s.refuse = status })
		b.visit(server.URL + "/")
		b.waitForText(".problem", text)
	}
	// The page tries again by itself.
	s.set(func() { s.refuse = 0 })
	b.waitForText(".status", "Live")
	// If the server stops, the ranking stays, with its time.
	server.CloseClientConnections()
	server.Listener.Close()
	b.waitForText(".status", "Reconnecting")
	b.waitForText(".notice", "The server does not answer. You see the ranking of")
	b.waitForText(".podium", "user 1")
	b.eval(`location.hash = "#board=b&season=202610"`)
	b.waitForText(".problem", "No connection", "Try now")
}

// The list shows any of a million rows, by rank, by percentage, and by scrolling.
func TestLongList(t *testing.T) {
	needs.Slow(t, "page")
	_, server := startStub(t)
	b := openBrowser(t, 1200, 900)
	b.visit(server.URL + "/#board=b")
	b.waitForText(".figures", "Players 1,000,000")
	b.waitForText(".rows", "user 4", "1,999,992")
	b.search("rank", "500,000")
	b.waitForText(".rows", "500,000", "user 500000")
	b.waitForValue("location.hash", "#board=b&rank=500000")
	b.search("rank", "25 %")
	b.waitForText(".rows", "user 250000")
	b.search("rank", "2000000")
	b.waitForText(".finder", "Enter a rank from 1 to 1,000,000")
	b.click(".finder > div > button")
	b.eval("history.back()")
	b.waitForText(".rows", "user 500000")
	b.eval("scrollBy(0, 300)") // a small step shows the next rows
	b.waitForText(".rows", "user 500005")
	b.eval("scrollTo(0, document.documentElement.scrollHeight)")
	b.waitForText(".rows", "user 1000000")
	b.eval("scrollTo(0, 0)")
	b.waitForText(".rows", "user 4")
	if n := b.eval(`all(".row").length`); len(n) > 2 {
		t.Errorf("the page has %s rows, want only those in the window", n)
	}
}

// Titles, units, users and details of a hostile board are shown as text.
func TestHostileTexts(t *testing.T) {
	needs.Slow(t, "page")
	s, server := startStub(t)
	script := `<img src=x onerror="document.title='broken'"><script>document.title="broken"</script>`
	s.set(func() {
		s.board["title"], s.board["unit"] = script, script[:30]
		s.board["tie_breakers"] = []any{map[string]any{"name": script, "order": "HIGHER_FIRST"}}
		s.season["id"] = script
		s.board["season"] = map[string]any{"schedule": "EXPLICIT"}
		s.ranking["division"] = "x:" + script
		entries := []any{}
		for i, user := range []string{script, "\u202egnp.exe", strings.Repeat("W", 128), "javascript:alert(1)"} {
			entries = append(entries, map[string]any{"user_id": user, "score": -9007199254740991, "rank": i + 1, "tie_breakers": []int{4 - i},
				"profile": map[string]any{"display_name": user, "avatar_url": "javascript:document.title='broken'", "country": script}})
		}
		s.ranking["leaderboard"] = entries
	})
	for _, path := range []string{"/#board=b", "/#board=b&user=" + "%3Cscript%3E", "/embed?board=b", "/embed?board=b&mode=kiosk"} {
		b := openBrowser(t, 400, 800)
		b.visit(server.URL + path)
		b.waitForText("h1, h2", script)
		b.waitForText(".podium", script[:20])
		if got := b.eval(`document.title === "broken" || all("script, img").length`); got != "0" {
			t.Errorf("%s has scripts or pictures of the board: %s", path, got)
		}
		b.checkFits()
	}
}

func TestPageInEveryLanguage(t *testing.T) {
	needs.Slow(t, "page")
	_, server := startStub(t)
	b := openBrowser(t, 400, 800)
	b.visit(server.URL + "/#board=b")
	for language, want := range map[string][3]string{
		"de": {"Spieler", "1.000.000", "ltr"}, "es": {"Jugadores", "1.000.000", "ltr"}, "pt": {"Jogadores", "1.000.000", "ltr"}, "zh": {"玩家", "1,000,000", "ltr"},
		"ja": {"プレイヤー", "1,000,000", "ltr"}, "ar": {"اللاعبون", "", "rtl"}, "fa": {"بازیکنان", "۱٬۰۰۰٬۰۰۰", "rtl"}, "en": {"Players", "1,000,000", "ltr"},
	} {
		b.choose("language", language)
		b.waitForText(".figures", want[0], want[1])
		b.waitForValue("document.documentElement.dir", want[2])
		b.checkFits()
	}
}

func TestEmbeddedElement(t *testing.T) {
	needs.Slow(t, "page")
	s, server := startStub(t)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, `<!doctype html><html lang="de"><script type="module" src="`+server.URL+`/embed.js" crossorigin></script>
			<leader-board board="b" limit="5" user="user 3" theme="dark" `+r.URL.Query().Get("more")+`></leader-board></html>`)
	}))
	defer site.Close()
	b := openBrowser(t, 600, 800)
	b.visit(site.URL)
	b.waitForText("h2", "A board")
	b.waitForText(".facts", "November 2026", "Endet in", "Spieler: 1.000.000")
	b.waitForText(".podium", "user 1", "user 2", "user 3")
	b.waitForText(".rows", "4 U4 user 4 1.999.992 5 U5 user 5 1.999.990")
	b.waitForText(".foot", "Ganze Rangliste")
	b.waitForValue(`find(".foot a").href`, server.URL+"/#board=b")
	b.waitForValue(`getComputedStyle(find(".frame")).backgroundColor`, "rgb(20, 25, 37)") // dark
	b.visit(site.URL + "?more=compact")
	b.waitForText(".rows .mine", "user 3")
	b.waitForValue(`all(".podium, .avatar").length`, "0")
	s.set(func() { s.refuse = http.StatusUnauthorized })
	b.visit(site.URL)
	b.waitForText(".problem", "Diese Rangliste braucht einen Schlüssel")
}
