package server

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/api/auth"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/embedded"
)

func (h *harness) acts(query string) (acts []map[string]any) {
	h.t.Helper()
	for _, a := range h.must("admin", "GET", "/v1/audit"+query, nil)["acts"].([]any) {
		acts = append(acts, a.(map[string]any))
	}
	return acts
}

func TestEveryAdministrativeActHasARecord(t *testing.T) {
	var backups []string
	h := newHarness(t, Options{Backup: func(_ context.Context, name string) error {
		backups = append(backups, name)
		return nil
	}})
	reads := []string{"ListKeys", "ExportResults", "ListBans", "ListActs"}
	recorded := map[string]string{
		"CreateBoard": "board.create", "UpdateBoard": "board.update", "DeleteBoard": "board.delete", "BanUser": "ban", "UnbanUser": "unban",
		"VoidMatch": "match.void", "RestoreMatch": "match.restore", "EndSeason": "season.end", "EraseUser": "user.erase", "ImportBans": "ban.import", "CreateKey": "key.create", "RevokeKey": "key.revoke", "Rebuild": "rebuild", "Backup": "backup",
		"Verify": "verify.repair",
	}
	h.must("admin", "POST", "/v1/boards", `{"board_id":"x","matches":true}`)
	key := h.must("admin", "POST", "/v1/keys", `{"name":"k","scopes":["read"]}`)
	for _, method := range slices.Sorted(maps.Keys(doors)) {
		need := doors[method].scope
		name := method[strings.LastIndexByte(method, '/')+1:]
		call, ok := calls[name]
		if need != auth.Admin || !ok || slices.Contains(reads, name) || name == "DeleteBoard" || name == "RevokeKey" {
			continue
		}
		if name == "Verify" {
			call[2] = `{"repair":true}`
		}
		before := len(h.acts(""))
		h.do("submit", call[0], call[1], call[2]) // refused, so not recorded
		if a := h.do("admin", call[0], call[1], call[2]); a.status != http.StatusOK {
			t.Errorf("%s: answer %d %s, want 200", name, a.status, a.raw)
			continue
		}
		acts := h.acts("")
		if request, _ := acts[0]["request_id"].(string); len(acts) != before+1 || acts[0]["action"] != recorded[name] || !strings.HasPrefix(acts[0]["actor"].(string), "key:") || request == "" {
			t.Errorf("%s appended %d records, the last is %v; want 1 record of the action %s, with a key as actor and a request id", name, len(acts)-before, acts[0], recorded[name])
		}
	}
	h.must("admin", "DELETE", "/v1/keys/"+get(key, "key", "key_id").(string), nil)
	h.must("admin", "DELETE", "/v1/boards/x", nil)
	if acts := h.acts("?action=board.delete"); len(acts) != 1 || get(acts[0], "before", "board_id") != "x" || acts[0]["after"] != nil {
		t.Errorf("acts board.delete: %v, want one with the board in \"before\" and no \"after\"", acts)
	}
	if acts := h.acts("?action=key"); len(acts) != 3 || get(acts[0], "before", "name") != "k" || strings.Contains(fmt.Sprint(acts), "secret") {
		t.Errorf("acts on keys: %v, want 3, the first with the key k in \"before\", and no secret", acts)
	}
	if acts := h.acts("?action=board.update"); len(acts) != 1 || get(acts[0], "before", "title") != "" || get(acts[0], "after", "title") != "t" {
		t.Errorf("acts board.update: %v, want one with the title \"\" in \"before\" and \"t\" in \"after\"", acts)
	}
	if acts := h.acts("?action=backup"); len(acts) != 1 || len(backups) != 1 || acts[0]["reason"] != backups[0] {
		t.Errorf("acts backup: %v, want one with the name of the backup in %v", acts, backups)
	}
	h.checkLogLines()
}

func (h *harness) checkLogLines() {
	h.t.Helper()
	lines, acts := h.logLines("administrative act"), h.acts("")
	slices.Reverse(acts)
	if len(lines) != len(acts) {
		h.t.Fatalf("the log has %d lines, want one for each of %d records: %v", len(lines), len(acts), lines)
	}
	for i, act := range acts {
		for _, key := range []string{"action", "actor", "request_id"} {
			if lines[i][key] != act[key] {
				h.t.Errorf("%s is %v in the line %v, want %v as in the record %v", key, lines[i][key], lines[i], act[key], act)
			}
		}
	}
}

func TestReadsHaveNoRecord(t *testing.T) {
	h := newHarness(t, Options{})
	h.must("admin", "POST", "/v1/admin/verify", `{}`)
	if a := h.do("admin", "POST", "/v1/admin/backup", `{}`); a.status == http.StatusOK {
		t.Errorf("a backup that the server does not support: status %d, want an error", a.status)
	}
	if acts := h.acts(""); len(acts) != 0 {
		t.Errorf("acts after a verify without repair and an unsupported backup: %v, want none", acts)
	}
}

func TestAuditLogIsFilteredAndPaged(t *testing.T) {
	h := newHarness(t, Options{})
	h.createBoard(`{"board_id":"b","order":"HIGHER_FIRST"}`)
	for _, user := range []string{"ann", "bob", "ann"} {
		h.must("admin", "POST", "/v1/users/"+user+":ban", `{"board":"b","reason":"aimbot"}`)
	}
	if a := h.do("admin", "POST", "/v1/boards", `{"board_id":"b","order":"LOWER_FIRST"}`); a.status != http.StatusConflict {
		t.Fatalf("create a board that exists with other rules: %d %s, want 409", a.status, a.raw)
	}
	acts := h.acts("?board=b&action=board")
	if len(acts) != 3 || acts[0]["failed"] != true || acts[1]["failed"] != false || acts[0]["request_id"] != acts[1]["request_id"] {
		t.Errorf("acts on boards: %v, want 3, newest first: the first has failed, and has the request id of the second", acts)
	}
	if acts := h.acts("?user_id=ann"); len(acts) != 2 || get(acts[0], "before", "banned") != true || acts[1]["before"] != nil || get(acts[0], "after", "reason") != "aimbot" {
		t.Errorf("acts on ann: %v, want two bans with reason aimbot, of which only the newer has a \"before\"", acts)
	}
	if acts := h.acts("?actor=key:none"); len(acts) != 0 {
		t.Errorf("acts of an unknown actor: %v, want none", acts)
	}
	all := h.acts("")
	var paged []map[string]any
	for token := ""; ; {
		page := h.must("admin", "GET", "/v1/audit?limit=2&page_token="+token, nil)
		for _, a := range page["acts"].([]any) {
			paged = append(paged, a.(map[string]any))
		}
		if token = page["next_page_token"].(string); token == "" {
			break
		}
	}
	if fmt.Sprint(paged) != fmt.Sprint(all) {
		t.Errorf("acts of all pages: %v, want %v", paged, all)
	}
	if acts := h.acts("?since=" + all[1]["at"].(string) + "&before=" + all[0]["at"].(string)); len(acts) != 1 || acts[0]["id"] != all[1]["id"] {
		t.Errorf("acts since the time of the second newest act and before the newest: %v, want only %v", acts, all[1])
	}
	for _, query := range []string{"?limit=0", "?limit=1001", "?page_token=x", "?since=today", "?before=1"} {
		if a := h.do("admin", "GET", "/v1/audit"+query, nil); a.status != http.StatusBadRequest {
			t.Errorf("audit log with %s: %d %s, want 400", query, a.status, a.raw)
		}
	}
	for id, want := range map[string]string{"ticket-4711": "ticket-4711", strings.Repeat("x", 200): "", "a\tb": "", "": ""} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.http.URL+"/v1/users/cyd:ban", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+h.keys["admin"])
		req.Header.Set("X-Request-Id", id)
		answer := h.send(req).header.Get("X-Request-Id")
		if got := h.acts("?limit=1")[0]["request_id"]; got != answer || want != "" && got != want || got == id && want == "" {
			t.Errorf("request id %q: the record has %q and the answer %q; want equal ids: the sent id if it is valid, otherwise a new id", id, got, answer)
		}
	}
}

func TestAuditLogForgetsAnErasedUser(t *testing.T) {
	h, clock := newMonthlyHarness(t, firstOfNovember)
	for _, match := range []string{"a", "b", "c", "d"} {
		h.must("submit", "POST", "/v1/boards/cup/scores", fmt.Sprintf(`{"user_id":"mallory","match_id":"mallory-%s","score":7,"achieved_at":"2026-10-30T08:00:00Z"}`, match))
	}
	acts := []struct{ action, method, path, fields string }{
		{"ban", "POST", "/v1/users/mallory:ban", ``},
		{"unban", "POST", "/v1/users/mallory:unban", ``},
		{"result.correct", "PATCH", "/v1/boards/cup/results/mallory/mallory-a", `,"score":8`},
		{"result.retract", "POST", "/v1/boards/cup/results/mallory/mallory-b:retract", ``},
		{"result.retract", "POST", "/v1/boards/cup/results:retract", `,"results":[{"user_id":"mallory","match_id":"mallory-c"}]`},
		{"result.retract", "POST", "/v1/boards/cup/results/mallory:purge", `,"from":"2026-10-01T00:00:00Z"`},
		{"ban.import", "POST", "/v1/bans:import", `,"bans":[{"user_id":"mallory","reason":"Mallory Smith","revision":9}]`},
	}
	for i, act := range acts {
		later := firstOfNovember.AddDate(0, 0, 10+i) // October is closed
		clock.Store(&later)
		body := `{"reason":"Mallory Smith, ticket 7"` + act.fields + `}`
		if act.action == "ban.import" {
			body = `{` + act.fields[1:] + `}`
		}
		h.must("admin", act.method, act.path, body)
		if got := h.acts(""); len(got) != i+2 || got[0]["action"] != act.action || got[0]["user_id"] != "mallory" || !strings.Contains(fmt.Sprint(got[0]["reason"], got[0]["after"]), "Mallory Smith") {
			t.Errorf("%s %s: the last of %d records is %v; want %d records, the last with the action %s, the user mallory and the reason", act.method, act.path, len(got), got[0], i+2, act.action)
		}
	}
	end := firstOfNovember.AddDate(0, 0, 20)
	clock.Store(&end)
	h.must("admin", "POST", "/v1/users/mallory:erase", `{}`)
	a := h.do("admin", "GET", "/v1/audit", nil)
	if strings.Contains(strings.ToLower(a.raw), "mallory") {
		t.Errorf("the audit log contains the id of the erased user mallory, want it removed: %s", a.raw)
	}
	got := h.acts("")
	if len(got) != len(acts)+2 || got[0]["action"] != "user.erase" {
		t.Fatalf("records after the erasure: %v, want user.erase after %d other records", got, len(acts)+1)
	}
	for i, act := range acts {
		if r := got[len(acts)-i]; r["action"] != act.action || r["erased"] != true || !strings.HasPrefix(r["actor"].(string), "key:") {
			t.Errorf("the record of act %d is %v, want action %s, erased, with its actor", i, r, act.action)
		}
	}
}

type brokenAuditLog struct {
	leaderboard.Store
	broken bool
}

func (u *brokenAuditLog) AppendAct(ctx context.Context, a leaderboard.Act) error {
	if u.broken {
		return leaderboard.ErrUnavailable
	}
	return u.Store.AppendAct(ctx, a)
}

func TestActsHappenOnlyAfterTheirRecord(t *testing.T) {
	store, index := embedded.Open(t)
	u := &brokenAuditLog{Store: store}
	svc := ranking.New(u, index, ranking.Options{})
	if err := svc.EnsureDefaultBoard(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := svc.Load(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	h := serve(t, svc, store, Options{})
	h.must("submit", "POST", "/v1/scores", `{"user_id":"ann","points":1}`)
	h.must("admin", "POST", "/v1/users/bob:ban", `{}`)
	h.createBoard(`{"board_id":"old"}`)
	state := func() string {
		text := ""
		for _, path := range []string{"/v1/boards", "/v1/bans", "/v1/keys", "/v1/audit", "/v1/scores"} {
			text += h.do("admin", "GET", path, nil).raw + "\n"
		}
		return text
	}
	before := state()
	acts := [][3]string{
		{"POST", "/v1/users/ann:ban", `{}`}, {"POST", "/v1/users/bob:unban", `{}`}, {"POST", "/v1/users/ann:erase", `{}`},
		{"POST", "/v1/boards", `{"board_id":"x"}`}, {"PATCH", "/v1/boards/default", `{"title":"t"}`}, {"DELETE", "/v1/boards/old", ``},
		{"POST", "/v1/keys", `{"name":"k","scopes":["read"]}`},
	}
	u.broken = true
	for _, act := range acts {
		if a := h.do("admin", act[0], act[1], act[2]); a.status != http.StatusServiceUnavailable {
			t.Errorf("%s %s while the audit log is down: %d %s, want 503", act[0], act[1], a.status, a.raw)
		}
	}
	if diff := cmp.Diff(before, state()); diff != "" {
		t.Errorf("acts during the failure of the audit log changed the state (-before +after):\n%s", diff)
	}
	u.broken = false
	for _, act := range acts {
		h.must("admin", act[0], act[1], act[2])
	}
}

func TestAuditLogCannotBeChanged(t *testing.T) {
	h := newHarness(t, Options{})
	h.must("admin", "POST", "/v1/users/ann:ban", `{}`)
	before := h.acts("")
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
		for _, path := range []string{"/v1/audit", "/v1/audit/" + fmt.Sprint(before[0]["request_id"])} {
			if a := h.do("admin", method, path, `{}`); a.status != http.StatusNotFound && a.status != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: %d %s, want 404 or 405", method, path, a.status, a.raw)
			}
		}
	}
	if diff := cmp.Diff(before, h.acts("")); diff != "" {
		t.Errorf("the audit log changed (-before +after):\n%s", diff)
	}
}
