package server

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// Only administrators can read bans. A game server learns of a ban only from the answer
// to its submit.
func TestBansAreSeenByAdministratorsOnly(t *testing.T) {
	h := newHarness(t, Options{})
	h.createBoard(`{"board_id":"b","season":{"schedule":"NONE"}}`)
	h.must("submit", "POST", "/v1/boards/b/scores", `{"user_id":"u","match_id":"m","score":7}`)
	got := h.must("admin", "POST", "/v1/users/u:ban", `{"board":"b","reason":"secret reason"}`)
	if !strings.HasPrefix(get(got, "ban", "actor").(string), "key:") || get(got, "ban", "board") != "b" {
		t.Errorf("answer to BanUser: %v, want a ban on b by a key", got)
	}
	if data := get(h.must("admin", "GET", "/v1/users/u/scores", nil), "data"); get(data, "bans", 0, "reason") != "secret reason" || get(data, "banned") != false {
		t.Errorf("an administrator sees %v, want the ban on b with its reason, and banned false", data)
	}
	h.must("admin", "POST", "/v1/users/u:ban", `{"reason":"secret reason"}`)
	for _, scope := range []string{"read", "submit"} {
		for _, path := range []string{"/v1/users/u/scores", "/v1/boards/b/scores/u", "/v1/boards/b/results/u/m", "/v1/boards/b/scores"} {
			if a := h.do(scope, "GET", path, nil); strings.Contains(a.raw, "secret") || strings.Contains(a.raw, `"banned"`) || strings.Contains(a.raw, "BANNED") {
				t.Errorf("GET %s with scope %s: %s, want an answer without the ban", path, scope, a.raw)
			}
		}
	}
}

// Every answer to a submit for a banned user has the reason USER_BANNED and no rank. The
// result counts after the ban is lifted.
func TestSubmitOfABannedUserSaysSo(t *testing.T) {
	h := newHarness(t, Options{})
	h.createBoard(`{"board_id":"b","season":{"schedule":"NONE"}}`)
	h.createBoard(`{"board_id":"c","season":{"schedule":"NONE"}}`)
	h.must("admin", "POST", "/v1/users/u:ban", `{"board":"b"}`)
	for range 2 { // the second submit is a duplicate
		got := h.must("submit", "POST", "/v1/boards/b/scores", `{"user_id":"u","match_id":"m","score":7}`)
		if got["reason"] != "USER_BANNED" || got["success"] != true || got["new_score"] != number(7) || got["rank"] != nil {
			t.Errorf("submit for a banned user: %v, want USER_BANNED, the score 7 and no rank", got)
		}
	}
	batch := h.must("submit", "POST", "/v1/boards/b/scores:batch", `{"results":[{"user_id":"u","match_id":"n","score":9},{"user_id":"v","match_id":"n","score":8}]}`)
	if get(batch, "outcomes", 0, "reason") != "USER_BANNED" || get(batch, "outcomes", 1, "reason") != "" || get(batch, "outcomes", 1, "rank") != number(1) {
		t.Errorf("batch: %v, want USER_BANNED for u, and rank 1 without a reason for v", batch)
	}
	if got := h.must("submit", "POST", "/v1/boards/c/scores", `{"user_id":"u","match_id":"m","score":7}`); got["rank"] != number(1) || got["reason"] != nil {
		t.Errorf("submit on a board without the ban: %v, want rank 1 and no reason", got)
	}
	h.must("admin", "POST", "/v1/users/u:unban", `{"board":"b"}`)
	if got := get(h.must("read", "GET", "/v1/boards/b/scores/u", nil), "data"); get(got, "score") != number(9) || get(got, "rank") != number(1) {
		t.Errorf("entry after the ban is lifted: %v, want score 9 and rank 1", got)
	}
}

func TestBansArePaged(t *testing.T) {
	h := newHarness(t, Options{})
	h.createBoard(`{"board_id":"b"}`)
	users := []string{"a", "b c", "ü"}
	until := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	for _, user := range users {
		h.must("admin", "POST", "/v1/users/"+strings.ReplaceAll(user, " ", "%20")+":ban", `{"board":"b","until":"`+until+`"}`)
	}
	var got []string
	path := "/v1/bans?limit=1"
	for token := ""; ; {
		page := h.must("admin", "GET", path+token, nil)
		got = append(got, get(page, "bans", 0, "user_id").(string))
		if get(page, "bans", 0, "until") != until {
			t.Errorf("page %v, want a ban until %s", page, until)
		}
		next := page["next_page_token"].(string)
		if next == "" {
			break
		}
		token = "&page_token=" + next
	}
	if strings.Join(got, "|") != strings.Join(users, "|") {
		t.Errorf("users of all pages: %q, want %q", got, users)
	}
	for path, field := range map[string]string{"/v1/bans?limit=0": "limit", "/v1/bans?limit=1001": "limit", "/v1/bans?page_token=x": "page_token"} {
		if a := h.do("admin", "GET", path, nil); a.status != http.StatusBadRequest || !strings.Contains(a.raw, field) {
			t.Errorf("GET %s: %d %s, want 400 naming %s", path, a.status, a.raw, field)
		}
	}
	for _, body := range []string{`{"until":"2020-01-01T00:00:00Z"}`, `{"board":"none"}`, `{"reason":"` + strings.Repeat("x", 257) + `"}`} {
		if a := h.do("admin", "POST", "/v1/users/u:ban", body); a.status != http.StatusBadRequest && a.status != http.StatusNotFound {
			t.Errorf("ban with %s: %d %s, want 400 or 404", body, a.status, a.raw)
		}
	}
	for _, body := range []string{`{}`, `{"bans":[{"user_id":"u"}]}`, `{"bans":[{"revision":1}]}`} {
		if a := h.do("admin", "POST", "/v1/bans:import", body); a.status != http.StatusBadRequest {
			t.Errorf("import of %s: %d %s, want 400", body, a.status, a.raw)
		}
	}
}
