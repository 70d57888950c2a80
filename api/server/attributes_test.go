package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/open-leaderboard/leaderboard"
)

func TestUndeclaredAttributes(t *testing.T) {
	h := newHarness(t, Options{})
	h.createBoard(`{"board_id":"cup","divisions":["gender"],"attributes":["mode"]}`)
	submit := func(attribute string) answer {
		return h.do("submit", "POST", "/v1/boards/cup/scores", fmt.Sprintf(`{"user_id":"ann","match_id":"m","score":1,"attributes":{"mode":"a","gender":"F",%q:"x"}}`, attribute))
	}
	checkRefused := func(what string, a answer) {
		t.Helper()
		if a.status != http.StatusBadRequest || strings.Join(a.violations(), ",") != "attributes" || !strings.Contains(a.raw, `\"club\" is not declared`) {
			t.Errorf("%s: %d %s, want 400 that names the attribute club", what, a.status, a.raw)
		}
	}
	checkRefused("a submit", submit("club"))
	if a := submit("gender"); a.status != http.StatusBadRequest {
		t.Errorf("an attribute given twice: %d %s, want 400", a.status, a.raw)
	}
	h.must("submit", "POST", "/v1/boards/cup/scores", `{"user_id":"ann","match_id":"m","score":1,"attributes":{"mode":"a","gender":"F"}}`)
	checkRefused("a correction", h.do("submit", "PATCH", "/v1/boards/cup/results/ann/m", `{"attributes":{"club":"x"}}`))
	h.must("submit", "PATCH", "/v1/boards/cup/results/ann/m", `{"attributes":{"club":"","mode":"b"}}`)
	batch := h.must("submit", "POST", "/v1/results:batch", `{"results":[{"board_id":"cup","user_id":"bob","match_id":"m","score":1,"attributes":{"club":"x"}},{"board_id":"cup","user_id":"cyd","score":1}]}`)
	if got := fmt.Sprint(statuses(batch)); got != "[cup REJECTED cup APPLIED]" || !strings.Contains(fmt.Sprint(batch), "club") {
		t.Errorf("a batch: %v, want its first result rejected because of club", batch)
	}
	// The server still caches the board without the attribute club.
	if _, err := h.store.AmendBoard(t.Context(), "cup", func(b *leaderboard.Board) error {
		b.AcceptedAttributes = []string{"mode", "club"}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if a := submit("club"); a.status != http.StatusOK {
		t.Errorf("a submit after another process declared the attribute: %d %s, want 200", a.status, a.raw)
	}
	h.must("admin", "POST", "/v1/boards", `{"board_id":"racers","source":{"board_id":"cup","match":{"kart":"red"}}}`)
	if a := submit("kart"); a.status != http.StatusOK {
		t.Errorf("a submit with the attribute that selects the results of a linked board: %d %s, want 200", a.status, a.raw)
	}
	h.must("admin", "PATCH", "/v1/boards/cup", `{"attributes":["*"]}`)
	if a := submit("anything"); a.status != http.StatusOK {
		t.Errorf("a submit with any attribute, on a board that accepts all: %d %s, want 200", a.status, a.raw)
	}
	for _, body := range []string{`{"attributes":["a","*"]}`, `{"attributes":["A"]}`, `{"attributes":"mode"}`} {
		if a := h.do("admin", "PATCH", "/v1/boards/cup", body); a.status != http.StatusBadRequest || !strings.Contains(a.raw, "attributes") {
			t.Errorf("PATCH %s: %d %s, want 400 that names attributes", body, a.status, a.raw)
		}
	}
}

// A board of an earlier build accepts all attributes, and results without tie-breakers.
func TestBoardsOfEarlierBuilds(t *testing.T) {
	h := newHarness(t, Options{})
	rules := leaderboard.Board{ID: "old", TieBreakers: []leaderboard.TieBreaker{{Name: "falls", Order: leaderboard.LowerFirst}}, Season: leaderboard.Schedule{Grace: leaderboard.DefaultGrace}}
	if _, err := h.service.CreateBoard(t.Context(), rules); err != nil {
		t.Fatal(err)
	}
	const same = `{"board_id":"old","tie_breakers":[{"name":"falls","order":"LOWER_FIRST"}]}`
	result := `{"user_id":"ann","match_id":"m","score":1,"attributes":{"x":"y"}}`
	for range 2 {
		if got := h.must("admin", "POST", "/v1/boards", same); fmt.Sprint(get(got, "attributes")) != "[*]" {
			t.Errorf("creating the board again answers %v, want the attributes *", got)
		}
		h.must("submit", "POST", "/v1/boards/old/scores", result)
		h.must("admin", "PATCH", "/v1/boards/old", `{"title":""}`)
	}
	h.createBoard(strings.Replace(same, "old", "new", 1))
	if a := h.do("submit", "POST", "/v1/boards/new/scores", `{"user_id":"ann","match_id":"m","score":1}`); a.status != http.StatusBadRequest || strings.Join(a.violations(), ",") != "tie_breakers" {
		t.Errorf("a submit without a lower-first tie-breaker: %d %s, want 400", a.status, a.raw)
	}
	h.must("submit", "POST", "/v1/boards/new/scores", `{"user_id":"ann","match_id":"m","score":1,"tie_breakers":[0]}`)
	h.must("submit", "PATCH", "/v1/boards/new/results/ann/m", `{"score":2}`)
}
