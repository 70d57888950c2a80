package page

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/open-leaderboard/leaderboard/test/needs"
)

// admin is a server with keys, and a key for everything.
type admin struct {
	t           *testing.T
	server, key string
}

// startAdmin has a board with matches, on which ada is ahead of bob.
func startAdmin(t *testing.T) *admin {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key")
	server := serve(t, "--first-key-file", file)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	a := &admin{t, server, strings.TrimSpace(string(text))}
	a.do(http.MethodPost, "/v1/boards", `{"board_id":"arena","title":"The arena","unit":"points","policy":"SUM","order":"HIGHER_FIRST","matches":true,"season":{"schedule":"MONTHLY"}}`)
	a.do(http.MethodPost, "/v1/boards/arena/scores:batch", `{"results":[{"user_id":"ada","match_id":"final","points":30},{"user_id":"bob","match_id":"final","points":20},{"user_id":"ada","match_id":"semifinal","points":7}]}`)
	return a
}

// do calls the API with the key, and returns the answer.
func (a *admin) do(method, path, body string) string {
	a.t.Helper()
	return a.doAs(a.key, method, path, body, http.StatusOK)
}

func (a *admin) doAs(key, method, path, body string, want int) string {
	a.t.Helper()
	req, err := http.NewRequestWithContext(a.t.Context(), method, a.server+path, strings.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		a.t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != want {
		a.t.Fatalf("%s %s %s: status %s, error %v, want %d; answer: %s", method, path, body, res.Status, err, want, answer)
	}
	return string(answer)
}

// open opens the page with the key, at an address within it.
func (a *admin) open(b *browser, fragment string) {
	a.t.Helper()
	b.visit(a.server + "/admin" + fragment)
	b.submit("key", a.key)
	b.waitForValue(`find(".tabs") !== null`, "true")
}

func (a *admin) wants(path, text string, want bool) {
	a.t.Helper()
	if answer := a.do(http.MethodGet, path, ""); strings.Contains(answer, text) != want {
		a.t.Errorf("GET %s contains %q: %v, want %v; answer: %s", path, text, !want, want, answer)
	}
}

func TestAdminBansAPlayer(t *testing.T) {
	a := startAdmin(t)
	var made struct{ Secret string }
	if err := json.Unmarshal([]byte(a.do(http.MethodPost, "/v1/keys", `{"name":"site","scopes":["read"]}`)), &made); err != nil {
		t.Fatal(err)
	}
	b := openBrowser(t, 1200, 900)
	b.visit(a.server + "/admin#at=players&board=arena&user=ada")
	b.waitForText(".problem", "Administration needs a key")
	b.submit("key", "wrong")
	b.waitForText("#refused", "The server refuses this key")
	b.submit("key", made.Secret)
	b.waitForText(".problem", "This key may not administer", "does not have the scope admin")
	b.submit("key", a.key)
	b.waitForText("main", "ada", "37 points", "semifinal")

	b.click("#ban")
	b.choose("field-board", "arena")
	b.fill("field-until", "2999-01-02T03:04:05")
	b.submit("field-reason", "aimbot")
	b.waitForText("dialog", "Nothing has changed yet", "1 entry changes", "37 points", "1 →")
	a.wants("/v1/bans", "ada", false) // the preview is a dry run
	b.click("#run")
	b.waitForText("dialog .record", "ban", "ada", "aimbot", "first admin key", "2999")
	a.wants("/v1/bans?board=arena", `"reason":"aimbot"`, true)
	b.click("#done")
	b.waitForText("main", "This player is banned", "The arena", "Jan 2, 2999", "This player is in no ranking now")
	b.click(".unban")
	b.submit("field-reason", "appeal granted")
	b.click("#run")
	b.waitForText("dialog .record", "unban", "appeal granted")
	a.wants("/v1/bans", "ada", false)
	b.click("#done")

	// The key is in no address and in nothing that outlives the tab, and a button forgets it.
	if got := b.eval(`location.href + JSON.stringify(localStorage) + document.cookie + root.innerHTML`); strings.Contains(got, a.key) {
		t.Errorf("the page keeps the key in %s", got)
	}
	b.click("#forget")
	b.waitForText(".problem", "Administration needs a key")
	b.waitForValue(`sessionStorage.length`, "0")
	b.visit(a.server + "/admin")
	b.waitForText(".problem", "Administration needs a key")
}

func TestAdminChangesResultsAndMatches(t *testing.T) {
	needs.Slow(t, "page")
	a := startAdmin(t)
	b := openBrowser(t, 1200, 900)
	a.open(b, "#at=matches&board=arena&prefix=fin")
	b.waitForText(".grid", "final", "Counts")
	b.click(".void")
	b.submit("field-reason", "wrong map")
	b.waitForText("dialog .previewed", "2 entries change", "37 points", "7 points")
	a.wants("/v1/boards/arena/matches/final", `"voided":false`, true)
	b.click("#run")
	b.waitForText("dialog .record", "match.void", "wrong map")
	a.wants("/v1/boards/arena/matches/final", `"voided":true`, true)
	b.click("#done")
	b.waitForText(".grid", "Void", "wrong map")
	b.click(".grid a")
	b.waitForText("main", "ada", "bob", "20 points")
	b.click(".void")
	b.submit("field-reason", "the map was right")
	b.waitForText("dialog .previewed", "2 entries change")
	b.click("#run")
	b.waitForText("dialog .record", "match.restore")
	b.click("#done")

	b.visit(a.server + "/admin#at=players&board=arena&user=ada")
	b.click(".correct")
	b.fill("field-amount", "1.5")
	b.submit("field-reason", "typo")
	b.waitForText("dialog .trouble", "The server refuses this", "Nothing was changed", "integer")
	b.fill("field-amount", "40")
	b.submit("field-reason", "typo")
	b.waitForText("dialog .previewed", "points", "40")
	b.click("#run")
	b.waitForText("dialog .record", "result.correct", "typo", "40")
	b.click("#done")
	b.waitForText(".timeline", "40 points", "result.correct")
	b.click(".retract")
	b.submit("field-reason", "never played")
	b.waitForText("dialog .previewed", "1 entry changes")
	b.click("#run")
	b.waitForText("dialog .record", "result.retract", "never played")
	b.click("#done")
	b.waitForText(".timeline", "Retracted")

	b.click("#edit-profile")
	b.fill("field-name", "Ada Lovelace")
	b.fill("field-picture", "https://example.org/ada.png")
	b.submit("field-reason", "asked for it")
	b.waitForText("dialog .previewed", "display_name", "Ada Lovelace")
	b.click("#run")
	b.waitForText("dialog .record", "profile.put", "asked for it")
	b.click("#done")
	b.waitForText(".person", "Ada Lovelace", "ada")
	b.waitForValue(`all("img").length`, "0") // pictures of users do not load

	b.visit(a.server + "/admin")
	b.choose("player-board", "arena")
	b.submit("player", "ADA L")
	b.waitForText(".people", "Ada Lovelace", "ada")
	b.waitForText("#exact", "ADA L")
	b.click(".people a")
	b.click("#erase")
	b.waitForText("dialog", "This cannot be undone", "ada")
	b.waitForValue(`find("#run").disabled`, "true")
	b.fill("confirm", "ad")
	b.waitForValue(`find("#run").disabled`, "true")
	b.fill("confirm", "ada")
	b.waitForValue(`find("#run").disabled`, "false")
	b.click("#run")
	b.waitForText("dialog .record", "user.erase", "Erased")
	a.doAs(a.key, http.MethodGet, "/v1/users/ada/profile", "", http.StatusNotFound)
}

func TestAdminCreatesBoardsAndKeys(t *testing.T) {
	needs.Slow(t, "page")
	a := startAdmin(t)
	b := openBrowser(t, 1200, 900)
	a.open(b, "#at=boards")
	b.click(`.template[data-template="2"]`)
	b.fill("field-title", "Points of the week")
	b.submit("field-board_id", "arena")
	b.waitForText("dialog .trouble", "A board with this id exists", "Choose another id")
	b.submit("field-board_id", "weekly")
	b.waitForText("dialog .previewed", "This board would be created", "season.schedule", "WEEKLY")
	a.wants("/v1/boards", `"weekly"`, false)
	b.click("#run")
	b.waitForText("dialog .record", "board.create", "weekly")
	b.click("#done")
	b.waitForText(".grid", "weekly", "Points of the week")

	b.visit(a.server + "/admin#at=boards&board=weekly")
	b.click("#edit")
	b.eval(`(e => { e.value = e.value.replace("Points of the week", "Week by week"); e.form.requestSubmit(); })(find("#field-rules"))`)
	b.waitForValue(`[...all("dialog tbody tr")].map(r => r.innerText.split(/\s*\n\s*/).join(" ").trim()).join()`, "title Points of the week Week by week")
	a.wants("/v1/boards/weekly", "Week by week", false)
	b.click("#run")
	b.waitForText("dialog .record", "board.update", "Week by week")
	b.click("#done")
	b.waitForText("h1", "Week by week")

	b.visit(a.server + "/admin#at=boards&board=arena")
	b.waitForText(".grid", "Open", "Current season")
	b.click(".end")
	b.submit("field-reason", "server crash")
	b.waitForText("dialog", "Results that no longer count", "Next season")
	b.eval(`(e => { e.value = find("dialog code").innerText; e.dispatchEvent(new Event("input")); })(find("#confirm"))`)
	b.waitForValue(`find("#run").disabled`, "false")
	b.click("#run")
	b.waitForText("dialog .record", "season.end", "server crash")
	b.click("#done")
	b.waitForText(".grid", "late results count")

	b.visit(a.server + "/admin#at=keys")
	b.click("#create-key")
	b.eval(`(find("#field-read").checked = false, find("#field-submit").checked = true)`)
	b.submit("field-name", "arena 7")
	b.waitForText("dialog .previewed", "arena 7", "submit", "Every board", "Never")
	b.click("#run")
	b.waitForValue(`find("#secret")?.value.length > 40`, "true")
	secret := b.eval(`find("#secret").value`)
	b.waitForText("dialog", "It is never shown again", "key.create")
	b.click("#done")
	b.waitForValue(`find("#secret")`, "null")
	a.doAs(secret, http.MethodPost, "/v1/boards/weekly/scores", `{"user_id":"cyd","points":1}`, http.StatusOK)
	b.waitForText(".grid", "arena 7")
	b.eval(`all(".grid tbody tr").find(r => r.innerText.includes("arena 7")).querySelector(".revoke").click()`)
	b.waitForText("dialog .previewed", "arena 7", "submit")
	b.click("#run")
	b.waitForText("dialog .record", "key.revoke")
	b.click("#done")
	a.doAs(secret, http.MethodPost, "/v1/boards/weekly/scores", `{"user_id":"cyd","points":1}`, http.StatusUnauthorized)
	b.click(".revoke") // only the first admin key is left
	b.click("#run")
	b.waitForText("dialog .trouble", "This is the last key that may administer", "Create another key")

	b.visit(a.server + "/admin#at=audit")
	b.choose("audit-action", "board")
	b.eval(`find("#audit-action").form.requestSubmit()`)
	b.waitForText(".timeline", "board.create", "board.update", "first admin key")
	b.waitForValue(`find(".timeline").innerText.includes("key.create")`, "false")
	b.click(".record summary")
	b.waitForText(".record[open]", "title", "Points of the week", "Week by week")

	b.visit(a.server + "/admin#at=health")
	b.waitForText("main", "Ready", "Yes", "arena", "Rank index last complete")
	b.click("#verify")
	b.waitForText("#verified", "No differences")
}

// Ids, titles, reasons and names of a hostile caller are text, also on a phone.
func TestAdminShowsHostileTexts(t *testing.T) {
	needs.Slow(t, "page")
	a := startAdmin(t)
	const script = `<img src=x onerror="document.title='broken'"><script>document.title="broken"</script>`
	quoted, err := json.Marshal(script)
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("W", 128)
	a.do(http.MethodPost, "/v1/boards", fmt.Sprintf(`{"board_id":"hostile","title":%s,"unit":"<b>x</b>","policy":"SUM","order":"HIGHER_FIRST","matches":true}`, quoted))
	for _, user := range []string{string(quoted), `"` + long + `"`} {
		a.do(http.MethodPost, "/v1/boards/hostile/scores", fmt.Sprintf(`{"user_id":%s,"match_id":%s,"points":9007199254740991}`, user, quoted))
	}
	path := func(id string) string {
		return "/v1/users/" + strings.NewReplacer("<", "%3C", ">", "%3E", `"`, "%22", "/", "%2F", " ", "%20").Replace(id)
	}
	a.do(http.MethodPut, path(script)+"/profile", fmt.Sprintf(`{"display_name":%s}`, quoted))
	a.do(http.MethodPost, path(long)+":ban", fmt.Sprintf(`{"reason":%s}`, quoted))
	a.do(http.MethodPost, "/v1/keys", fmt.Sprintf(`{"name":%s,"scopes":["read"]}`, quoted))
	b := openBrowser(t, 320, 640)
	a.open(b, "")
	query := func(s string) string { return strings.TrimPrefix(path(s), "/v1/users/") }
	for fragment, selector := range map[string]string{
		"#at=players": ".unban", "#at=players&board=hostile&user=" + query(script): ".result", "#at=players&board=hostile&user=" + query(long): ".unban",
		"#at=matches&board=hostile": ".void", "#at=boards": ".template", "#at=boards&board=hostile": ".grid", "#at=keys": ".revoke", "#at=audit": ".record", "#at=health": ".facts",
		"#at=dead-letters": ".quiet", "#at=players&user=" + query("javascript:alert(1)"): ".quiet", "#at=boards&board=" + query(script): ".trouble",
	} {
		b.visit(a.server + "/admin" + fragment)
		b.waitForValue(fmt.Sprintf("find(%q) !== null", selector), "true")
		b.eval(`all("details").forEach(d => { d.open = true })`)
		if got := b.eval(`document.title.includes("broken") || all("script, img, b").length`); got != "0" {
			t.Errorf("%s has elements of the texts: %s", fragment, got)
		}
		b.checkFits()
	}
	b.visit(a.server + "/admin#at=players&board=hostile&user=" + query(script))
	b.click("#ban")
	b.submit("field-reason", script)
	b.waitForText("dialog .previewed", "1 entry changes")
	b.checkFits()
	b.click("#run")
	b.waitForText("dialog .record", script)
	b.checkFits()
}

func TestAdminNamesEachProblem(t *testing.T) {
	needs.Slow(t, "page")
	s, server := startStub(t)
	b := openBrowser(t, 320, 640)
	for status, text := range map[int]string{http.StatusTooManyRequests: "Not now", http.StatusServiceUnavailable: "The server is not ready", http.StatusUnauthorized: "Administration needs a key"} {
		s.set(func() { s.refuse = status })
		b.visit(server.URL + "/admin")
		b.waitForText(".problem", text)
		b.checkFits()
	}
	a := startAdmin(t)
	a.open(b, "#at=players&board=arena&user=ada")
	b.waitForText("main", "semifinal")
	b.click("#ban")
	b.submit("field-reason", "aimbot")
	b.waitForText("dialog .previewed", "1 entry changes")
	// Without an answer, the page does not claim to know what happened.
	b.eval(`(globalThis.answering = fetch, globalThis.fetch = () => Promise.reject(new TypeError("no network")), 0)`)
	b.click("#run")
	b.waitForText("dialog .trouble", "It is unknown whether this took effect", "audit log before you try again")
	b.eval(`(globalThis.fetch = answering, Object.defineProperty(navigator, "onLine", { value: false }), dispatchEvent(new Event("offline")))`)
	b.waitForText("main", "You are offline")
	b.checkFits()
	a.wants("/v1/bans", "ada", false)
	// The key is revoked, and the act says so instead of failing silently.
	var keys struct {
		Keys []struct {
			KeyID string `json:"key_id"`
		}
	}
	if err := json.Unmarshal([]byte(a.do(http.MethodGet, "/v1/keys", "")), &keys); err != nil || len(keys.Keys) != 1 {
		t.Fatalf("keys %v, error %v, want one", keys, err)
	}
	a.do(http.MethodDelete, "/v1/keys/"+keys.Keys[0].KeyID+"?force=true", "")
	b.click("#run")
	b.waitForText("dialog .trouble", "The server no longer accepts this key", "forget the key")
}

// A key for some boards sees what it may do, and nothing else.
func TestAdminWithAKeyForOneBoard(t *testing.T) {
	needs.Slow(t, "page")
	a := startAdmin(t)
	var made struct{ Secret string }
	if err := json.Unmarshal([]byte(a.do(http.MethodPost, "/v1/keys", `{"name":"arena only","scopes":["admin"],"boards":["arena"]}`)), &made); err != nil {
		t.Fatal(err)
	}
	b := openBrowser(t, 1200, 900)
	b.visit(a.server + "/admin#at=players&board=arena&user=bob")
	b.submit("key", made.Secret)
	b.waitForText(".notice", "This key is for some boards only")
	b.waitForText("main", "bob", "20 points")
	b.waitForValue(`all(".trouble, #erase").length`, "0")
	b.click("#ban")
	b.waitForValue(`[...find("#field-board").options].map(o => o.value).join()`, "arena")
	b.submit("field-reason", "aimbot")
	b.click("#run")
	b.waitForText("dialog .record", "ban", "bob", "arena only")
	b.click("#done")
	for fragment, text := range map[string]string{"#at=keys": "Keys need a key for every board", "#at=dead-letters": "Dead letters need a key for every board", "#at=audit": "aimbot", "#at=boards": "The arena", "#at=health": "Verification"} {
		b.visit(a.server + "/admin" + fragment)
		b.waitForText("main", text)
		b.waitForValue(`all(".trouble").length`, "0")
	}
}

// kafka stands in front of a server, and answers the calls about dead letters, of which the embedded engine has none.
type kafka struct {
	http.Handler
	front   string   // the address
	replays []string // the bodies of replays
}

func startKafka(t *testing.T, server string) *kafka {
	t.Helper()
	address, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	k := &kafka{Handler: httputil.NewSingleHostReverseProxy(address)}
	front := httptest.NewServer(k)
	t.Cleanup(front.Close)
	k.front = front.URL
	return k
}

const hostileDetail = `<img src=x onerror=\"document.title='broken'\">`

// ServeHTTP pages after the first two dead letters. A replay has a record of its own.
func (k *kafka) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	deadLetter := func(id, cause, user string, replayable bool, more string) string {
		return fmt.Sprintf(`{"dead_letter_id":%q,"at":"2026-11-20T09:10:00Z","cause":%q,"user_id":%q,"board":"winter-cup","match_id":"m","detail":"%s","cure":"create the board, then replay","origin_topic":"match-results","origin_partition":3,"origin_offset":1815,"origin_at":"2026-11-20T09:09:00Z","cut":false,"replayable":%v%s}`,
			id, cause, user, hostileDetail, replayable, more)
	}
	ada, eve, bob := deadLetter("3:17", "board", "ada", true, ""), deadLetter("0:2", "form", "eve", false, ""), deadLetter("3:11", "board", "bob", true, "")
	var answer string
	switch path := r.URL.Path; {
	case path == "/v1/dead-letters" && r.URL.Query().Get("cause") == "season":
		answer = `{"dead_letters":[],"next_page_token":""}`
	case path == "/v1/dead-letters" && r.URL.Query().Get("page_token") == "":
		answer = `{"dead_letters":[` + ada + `,` + eve + `],"next_page_token":"more"}`
	case path == "/v1/dead-letters":
		answer = `{"dead_letters":[` + bob + `],"next_page_token":""}`
	case path == "/v1/dead-letters/3:17":
		answer = deadLetter("3:17", "board", "ada", true, `,"message":{"board_id":"winter-cup","result":{"user_id":"ada","match_id":"m","points":5}}`)
	case path == "/v1/dead-letters/0:2":
		answer = deadLetter("0:2", "form", "eve", false, `,"message_bytes":"/w=="`)
	case path == "/v1/dead-letters:replay":
		body, _ := io.ReadAll(r.Body)
		k.replays = append(k.replays, string(body))
		w.Header().Set("X-Request-Id", "the-replay")
		answer = `{"replayed":[` + ada + `],"skipped":[]}`
	case path == "/v1/audit" && r.URL.Query().Get("action") == "dead_letter":
		answer = `{"acts":[{"id":"1","at":"2026-11-20T10:00:00Z","completed_at":"2026-11-20T10:00:01Z","actor":"key:1","actor_name":"first admin key","request_id":"the-replay","action":"dead_letter.replay",` +
			`"board":"winter-cup","season":"","user_id":"ada","match_id":"m","reason":"the board exists now","after":` + ada + `,"failed":false,"erased":false}],"next_page_token":""}`
	default:
		k.Handler.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, answer)
}

func TestAdminReplaysDeadLetters(t *testing.T) {
	needs.Slow(t, "page")
	a := startAdmin(t)
	b := openBrowser(t, 320, 640)
	a.open(b, "#at=dead-letters")
	b.waitForText("main", "Dead letters", "This server has no Kafka")
	b.waitForValue(`all(".trouble").length`, "0")

	k := startKafka(t, a.server)
	a.server = k.front
	a.open(b, "#at=dead-letters")
	b.waitForText("main", "3:17", "board", "ada", "winter-cup", "onerror", "0:2", "form", "Cannot be sent again")
	b.waitForValue(`all(".replay, .replay-all").length`, "1")
	b.checkFits()
	b.eval(`([...all("main > button, main button")].find(e => e.textContent === "Show more").click(), 0)`)
	b.waitForText("main", "3:11", "bob", "Send 2 messages again")
	b.choose("cause", "season")
	b.eval(`(find("main form").requestSubmit(), 0)`)
	b.waitForText("main", "No dead letter matches")
	b.visit(a.server + "/admin#at=dead-letters&id=0:2")
	b.waitForText("main", "cannot be decoded", "/w==", "Cannot be sent again")
	b.visit(a.server + "/admin#at=dead-letters&id=3:17")
	b.waitForText("main", "result.points", "5", "create the board, then replay", "match-results 3:1815")
	b.checkFits()

	b.click(".replay")
	b.submit("field-reason", "the board exists now")
	b.waitForText("dialog .previewed", "go to the consumers again", "3:17", "ada")
	b.checkFits()
	if len(k.replays) != 1 || !strings.Contains(k.replays[0], `"dry_run":true`) {
		t.Fatalf("the preview sends %q, want a dry run", k.replays)
	}
	b.click("#run")
	b.waitForText("dialog .record", "dead_letter.replay", "ada", "the board exists now", "first admin key")
	if len(k.replays) != 2 || strings.Contains(k.replays[1], "dry_run") || !strings.Contains(k.replays[1], `"dead_letter_ids":["3:17"]`) || !strings.Contains(k.replays[1], `"reason":"the board exists now"`) {
		t.Errorf("the act sends %q, want the id and the reason", k.replays)
	}
	if got := b.eval(`document.title.includes("broken") || all("main img, dialog img").length`); got != "0" {
		t.Errorf("the detail of a dead letter became %s elements", got)
	}
}

func TestAdminInEveryLanguage(t *testing.T) {
	needs.Slow(t, "page")
	a := startAdmin(t)
	b := openBrowser(t, 320, 640)
	a.open(b, "#at=players&board=arena&user=ada")
	for language, want := range map[string][2]string{
		"de": {"Verwaltung", "ltr"}, "es": {"Administración", "ltr"}, "pt": {"Administração", "ltr"}, "zh": {"管理", "ltr"}, "ja": {"管理", "ltr"},
		"ar": {"الإدارة", "rtl"}, "fa": {"مدیریت", "rtl"}, "en": {"Administration", "ltr"},
	} {
		b.eval(`localStorage.setItem("leaderboard.locale", "` + language + `")`)
		b.visit(a.server + "/admin#at=players&board=arena&user=ada")
		b.waitForText(".admin-title", want[0])
		b.waitForValue(`find("#language").value`, language)
		b.waitForValue("document.documentElement.dir", want[1])
		b.waitForValue(`find(".result") !== null`, "true")
		b.checkFits()
		b.click("#ban")
		b.waitForValue(`find("#preview") !== null`, "true")
		b.checkFits()
	}
}
