package server

import (
	"net/http"
	"strings"
	"testing"
)

func TestLinkedBoards(t *testing.T) {
	h := newHarness(t, Options{PublicRead: true})
	h.createBoard(`{"board_id":"laps","policy":"SUM","tie_breakers":[{"name":"wins"},{"name":"falls"}],"unit":"pt"}`)
	linked := h.must("admin", "POST", "/v1/boards", `{"board_id":"best","policy":"BEST","tie_breakers":[{"name":"falls"}],
		"private":true,"source":{"board_id":"laps","match":{"mode":"ranked"}}}`)
	if get(linked, "filling") != true || get(linked, "source", "match", "mode") != "ranked" || get(linked, "unit") != "pt" {
		t.Errorf("the linked board is %v, want it filling, with its source and the unit of the source", linked)
	}
	h.must("submit", "POST", "/v1/boards/laps/scores", `{"user_id":"ann","match_id":"m","points":3,"tie_breakers":[1,2],"attributes":{"mode":"ranked"}}`)
	h.must("submit", "POST", "/v1/boards/laps/scores", `{"user_id":"bob","match_id":"m","points":4,"attributes":{"mode":"casual"}}`)
	list := h.must("read", "GET", "/v1/boards/best/scores", nil)
	if get(list, "data", "leaderboard", 0, "user_id") != "ann" || get(list, "data", "leaderboard", 1) != nil {
		t.Errorf("the linked board has %v, want ann only", list)
	}
	result := h.must("read", "GET", "/v1/boards/best/results/ann/m", nil)
	if ties, _ := get(result, "result", "tie_breakers").([]any); len(ties) != 1 || get(result, "result", "tie_breakers", 0) != get(h.must("read", "GET", "/v1/boards/laps/results/ann/m", nil), "result", "tie_breakers", 1) {
		t.Errorf("the result on the linked board is %v, want its tie-breaker falls", result)
	}

	if got := get(h.must("admin", "GET", "/v1/boards/laps", nil), "linked_boards", 0); got != "best" {
		t.Errorf("the source lists %v, want best", got)
	}
	if got := get(h.must("", "GET", "/v1/boards/laps", nil), "linked_boards"); got != nil {
		t.Errorf("a caller without a key sees the private linked boards %v", got)
	}
	h.must("admin", "PATCH", "/v1/boards/laps", `{"title":"Laps"}`)
	if got := get(h.must("admin", "GET", "/v1/boards/laps", nil), "linked_boards", 0); got != "best" {
		t.Errorf("after a PATCH, the source lists %v, want best", got)
	}

	for _, tt := range []struct{ scope, method, path, body, names string }{
		{"submit", "POST", "/v1/boards/best/scores", `{"user_id":"ann","score":1}`, `"laps"`},
		{"submit", "POST", "/v1/boards/best/results/ann/m:retract", `{}`, `"laps"`},
		{"admin", "DELETE", "/v1/boards/laps", ``, `"best"`},
		{"admin", "POST", "/v1/boards", `{"board_id":"chain","source":{"board_id":"best"}}`, `"laps"`},
	} {
		if a := h.do(tt.scope, tt.method, tt.path, tt.body); a.status != http.StatusBadRequest || !strings.Contains(a.raw, strings.ReplaceAll(tt.names, `"`, `\"`)) {
			t.Errorf("%s %s: %d %s, want 400 that names %s", tt.method, tt.path, a.status, a.raw, tt.names)
		}
	}
	h.newKey("bound", map[string]any{"scopes": []string{"admin"}, "boards": []string{"mine"}})
	if a := h.do("bound", "POST", "/v1/boards", `{"board_id":"mine","source":{"board_id":"laps"}}`); a.status != http.StatusForbidden {
		t.Errorf("a key that is bound to another board links to laps: %d %s, want 403", a.status, a.raw)
	}
}
