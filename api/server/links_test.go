package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

func TestLinkedBoards(t *testing.T) {
	h := newHarness(t, Options{PublicRead: true})
	h.createBoard(`{"board_id":"laps","policy":"SUM","tie_breakers":[{"name":"wins"},{"name":"falls"}],"unit":"pt"}`)
	linked := h.must("admin", "POST", "/v1/boards", `{"board_id":"best","policy":"BEST","tie_breakers":[{"name":"falls"}],
		"private":true,"source":{"board_id":"laps","match":{"mode":"ranked"}}}`)
	if get(linked, "filling") != true || get(linked, "source", "match", "mode") != "ranked" || get(linked, "unit") != "pt" {
		t.Errorf("the linked board is %v, want filling true, its source, and the source's unit", linked)
	}
	h.must("submit", "POST", "/v1/boards/laps/scores", `{"user_id":"ann","match_id":"m","points":3,"tie_breakers":[1,2],"attributes":{"mode":"ranked"}}`)
	h.must("submit", "POST", "/v1/boards/laps/scores", `{"user_id":"bob","match_id":"m","points":4,"attributes":{"mode":"casual"}}`)
	list := h.must("read", "GET", "/v1/boards/best/scores", nil)
	if get(list, "data", "leaderboard", 0, "user_id") != "ann" || get(list, "data", "leaderboard", 1) != nil {
		t.Errorf("the linked board has the scores %v, want ann only", list)
	}
	result := h.must("read", "GET", "/v1/boards/best/results/ann/m", nil)
	if ties, _ := get(result, "result", "tie_breakers").([]any); len(ties) != 1 || get(result, "result", "tie_breakers", 0) != get(h.must("read", "GET", "/v1/boards/laps/results/ann/m", nil), "result", "tie_breakers", 1) {
		t.Errorf("the result on the linked board is %v, want its tie-breaker falls", result)
	}

	if got := get(h.must("admin", "GET", "/v1/boards/laps", nil), "linked_boards", 0); got != "best" {
		t.Errorf("the source lists the linked board %v, want best", got)
	}
	if got := get(h.must("", "GET", "/v1/boards/laps", nil), "linked_boards"); got != nil {
		t.Errorf("a caller without a key sees the private linked boards %v, want none", got)
	}
	h.must("admin", "PATCH", "/v1/boards/laps", `{"title":"Laps"}`)
	if got := get(h.must("admin", "GET", "/v1/boards/laps", nil), "linked_boards", 0); got != "best" {
		t.Errorf("after a PATCH, the source lists the linked board %v, want best", got)
	}

	for _, tt := range []struct{ scope, method, path, body, names string }{
		{"submit", "POST", "/v1/boards/best/scores", `{"user_id":"ann","score":1}`, `"laps"`},
		{"submit", "POST", "/v1/boards/best/results/ann/m:retract", `{}`, `"laps"`},
		{"submit", "PATCH", "/v1/boards/best/results/ann/m", `{"score":9,"tie_breakers":[1]}`, `"laps"`},
		{"admin", "DELETE", "/v1/boards/laps", ``, `"best"`},
		{"admin", "POST", "/v1/boards", `{"board_id":"chain","source":{"board_id":"best"}}`, `"laps"`},
	} {
		if a := h.do(tt.scope, tt.method, tt.path, tt.body); a.status != http.StatusBadRequest || !strings.Contains(a.raw, strings.ReplaceAll(tt.names, `"`, `\"`)) {
			t.Errorf("%s %s: %d %s, want 400 that names %s", tt.method, tt.path, a.status, a.raw, tt.names)
		}
	}
	if result := h.must("read", "GET", "/v1/boards/best/results/ann/m", nil); fmt.Sprint(get(result, "result", "score")) != "3" {
		t.Errorf("after the refused calls, the result on the linked board is %v, want the score 3", result)
	}
	h.newKey("bound", map[string]any{"scopes": []string{"admin"}, "boards": []string{"mine"}})
	if a := h.do("bound", "POST", "/v1/boards", `{"board_id":"mine","source":{"board_id":"laps"}}`); a.status != http.StatusForbidden {
		t.Errorf("a board with the source laps, created with a key for another board: %d %s, want 403", a.status, a.raw)
	}
}

func TestRefusedChangesOfLinkedBoardsLeaveNoRecord(t *testing.T) {
	h, clock := newMonthlyHarness(t, firstOfNovember)
	h.must("admin", "POST", "/v1/boards", `{"board_id":"month","source":{"board_id":"cup"},"season":{"schedule":"MONTHLY","grace":"3600s"}}`)
	h.must("submit", "POST", "/v1/boards/cup/scores", `{"user_id":"ann","match_id":"m","score":3}`)
	later := firstOfNovember.AddDate(0, 1, 1)
	clock.Store(&later)
	const path = "/v1/boards/month/results/ann/202611%2Fm"
	for _, call := range []struct{ method, path, body string }{
		{"PATCH", path, `{"score":9,"reason":"x"}`}, {"POST", path + ":retract", `{"season":"202611","reason":"x"}`},
	} {
		if a := h.do("admin", call.method, call.path, call.body); a.status != http.StatusBadRequest || !strings.Contains(a.raw, "cup") {
			t.Errorf("%s %s: %d %s, want 400 that names cup", call.method, call.path, a.status, a.raw)
		}
	}
	if acts := h.acts("?action=result"); len(acts) != 0 {
		t.Errorf("the audit log has the acts %v, want none", acts)
	}
}

func TestUnseenBoardsAreNotNamed(t *testing.T) {
	h := newHarness(t, Options{})
	h.createBoard(`{"board_id":"laps"}`)
	h.createBoard(`{"board_id":"mine","source":{"board_id":"laps"}}`)
	h.createBoard(`{"board_id":"secret","source":{"board_id":"laps"}}`)
	for name, unseen := range map[string][]string{"laps": {"mine", "secret"}, "mine": {"laps"}} {
		h.newKey(name, map[string]any{"scopes": []string{"admin"}, "boards": []string{name}})
		path := "/v1/boards/" + name
		for what, raw := range map[string]string{
			"a preview": h.do(name, "PATCH", path+"?dry_run=true", `{"title":"new"}`).raw,
			"an update": h.do(name, "PATCH", path, `{"title":"new"}`).raw,
			"its act":   h.do(name, "GET", "/v1/audit?action=board.update&board="+name, nil).raw,
		} {
			if !strings.Contains(raw, "new") {
				t.Errorf("%s of %s: %s, want the title new", what, name, raw)
			}
			for _, id := range unseen {
				if strings.Contains(raw, `"`+id) {
					t.Errorf("%s of %s names the board %s, which the key must not see: %s", what, name, id, raw)
				}
			}
		}
	}
	h.newKey("both", map[string]any{"scopes": []string{"admin"}, "boards": []string{"laps", "mine"}})
	if got := get(h.must("both", "PATCH", "/v1/boards/laps", `{"title":""}`), "linked_boards"); fmt.Sprint(got) != "[mine]" {
		t.Errorf("an update answers with the linked boards %v, want mine", got)
	}
	if got := get(h.must("both", "POST", "/v1/boards", `{"board_id":"laps"}`), "linked_boards"); fmt.Sprint(got) != "[mine]" {
		t.Errorf("a repeated creation answers with the linked boards %v, want mine", got)
	}
}

func TestAnswersWithLinkedBoards(t *testing.T) {
	h, clock := newMonthlyHarness(t, firstOfNovember)
	h.createBoard(`{"board_id":"hidden","policy":"LATEST","source":{"board_id":"cup"}}`)
	h.createBoard(`{"board_id":"month","policy":"SUM","source":{"board_id":"cup"},"season":{"schedule":"MONTHLY","grace":"3600s"}}`)
	h.newKey("bound", map[string]any{"scopes": []string{"submit"}, "boards": []string{"cup", "month"}})
	const path = "/v1/boards/cup/scores"
	fresh := regexp.MustCompile(`as_of:\S+ | sealed:false`) // TestEveryAnswerIsDated checks these fields
	text := func(v any) string { return fresh.ReplaceAllString(fmt.Sprint(get(v, "linked")), "") }
	got := text(h.must("submit", "POST", path+"?include_linked=true", `{"user_id":"ann","match_id":"m","score":5}`))
	if want := "[map[board_id:hidden new_score:5 rank:1 season:all] map[board_id:month new_score:5 rank:1 season:202611]]"; got != want {
		t.Errorf("a submit answers with linked %s, want %s", got, want)
	}
	if answer := h.must("submit", "POST", path, `{"user_id":"ann","match_id":"m","score":5}`); text(answer) != "<nil>" {
		t.Errorf("a submit without include_linked answers %v, want no linked boards", answer)
	}
	if got, want := text(h.must("bound", "POST", path+"?include_linked=true", `{"user_id":"ann","match_id":"m","score":5}`)), "[map[board_id:month new_score:5 rank:1 season:202611]]"; got != want {
		t.Errorf("a submit with a key for cup and month answers with linked %s, want %s", got, want)
	}
	later := firstOfNovember.AddDate(0, 1, 1)
	clock.Store(&later)
	const lateBatch = `{"include_linked":true,"results":[{"user_id":"bob","match_id":"m","score":4,"achieved_at":"2026-11-01T12:00:00Z"},{"user_id":"","score":4}]}`
	answer := h.must("bound", "POST", path+":batch", lateBatch)
	if got, want := text(get(answer, "outcomes", 0)), "[map[board_id:month season:202611 skipped:SEASON_CLOSED]]"; got != want || text(get(answer, "outcomes", 1)) != "<nil>" {
		t.Errorf("a late batch answers %v, want linked %s and none for the invalid result", answer, want)
	}
	answer = h.must("submit", "POST", "/v1/results:batch", strings.ReplaceAll(lateBatch, `"score"`, `"board_id":"cup","score"`))
	if got, want := text(get(answer, "outcomes", 0)), "[map[board_id:hidden new_score:4 rank:2 season:all] map[board_id:month season:202611 skipped:SEASON_CLOSED]]"; got != want {
		t.Errorf("a batch across boards answers with linked %s, want %s", got, want)
	}
	const result = "/v1/boards/cup/results/ann/m"
	previous := func(v any) string { return fmt.Sprint(get(v, "previous_score"), " ", get(v, "previous_rank")) }
	corrected := h.must("submit", "PATCH", result, `{"score":6,"include_linked":true,"include_previous_rank":true}`)
	if want := "[map[board_id:hidden new_score:6 rank:1 season:all] map[board_id:month new_score:5 rank:1 season:202611 skipped:SEASON_CLOSED]]"; text(corrected) != want || previous(corrected) != "5 1" {
		t.Errorf("a correction answers %v, want linked %s and the previous score 5 with rank 1", corrected, want)
	}
	const noScores = "[map[board_id:hidden season:all] map[board_id:month season:202611]]"
	retracted := h.must("submit", "POST", result+":retract", `{"include_linked":true,"include_previous_rank":true}`)
	if text(retracted) != noScores || previous(retracted) != "6 1" {
		t.Errorf("a retraction answers %v, want linked %s and the previous score 6 with rank 1", retracted, noScores)
	}
	batch := get(h.must("submit", "POST", "/v1/boards/cup/results:retract", `{"results":[{"user_id":"ann","match_id":"m"}],"include_linked":true}`), "outcomes", 0)
	if text(batch) != noScores {
		t.Errorf("a batch of retractions answers %v, want linked %s", batch, noScores)
	}
	purged := get(h.must("submit", "POST", "/v1/boards/cup/results/bob:purge", `{"from":"2026-11-01T00:00:00Z","include_linked":true,"include_previous_rank":true}`), "outcomes", 0)
	if want := "[map[board_id:hidden season:all]]"; text(purged) != want || previous(purged) != "4 1" {
		t.Errorf("a purge answers %v, want linked %s and the previous score 4 with rank 1", purged, want)
	}
	if a := h.do("submit", "POST", path+"?include_linked=1", `{"user_id":"ann","match_id":"m","score":5}`); a.status != http.StatusBadRequest {
		t.Errorf("include_linked=1: %d %s, want 400", a.status, a.raw)
	}
}

func TestReadsOfAFillingBoard(t *testing.T) {
	h := newHarness(t, Options{})
	h.createBoard(`{"board_id":"laps"}`)
	h.createBoard(`{"board_id":"best","source":{"board_id":"laps"}}`)
	h.must("submit", "POST", "/v1/boards/laps/scores", `{"user_id":"ann","match_id":"m","score":3}`)
	for _, path := range []string{"/scores", "/scores/ann", "/stats"} {
		for board, want := range map[string]any{"best": true, "laps": nil} {
			if got := get(h.must("read", "GET", "/v1/boards/"+board+path, nil), "data", "filling"); got != want {
				t.Errorf("%s of %s: filling is %v, want %v", path, board, got, want)
			}
		}
	}
	if got := get(h.must("read", "GET", "/v1/users/ann/scores", nil), "data", "scores", 0, "filling"); got != true {
		t.Errorf("the user's score on the linked board has filling %v, want true", got)
	}
	if err := h.service.FillLinked(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := get(h.must("read", "GET", "/v1/boards/best/scores", nil), "data", "filling"); got != nil {
		t.Errorf("after the fill, filling is %v, want none", got)
	}
}

func TestDryRunsHideOtherBoards(t *testing.T) {
	h := newHarness(t, Options{})
	h.createBoard(`{"board_id":"laps","policy":"SUM"}`)
	h.createBoard(`{"board_id":"vip","policy":"SUM","source":{"board_id":"laps"}}`)
	h.must("submit", "POST", "/v1/boards/laps/scores", `{"user_id":"ann","match_id":"m","points":3}`)
	h.newKey("bound", map[string]any{"scopes": []string{"submit"}, "boards": []string{"laps"}})
	for scope, want := range map[string]int64{"submit": 2, "bound": 1} {
		a := h.do(scope, "POST", "/v1/boards/laps/results/ann/m:retract", `{"dry_run":true}`)
		if a.status != http.StatusOK || get(a.body, "effect", "changed_count") != number(want) || strings.Contains(a.raw, "vip") != (want == 2) {
			t.Errorf("dry run with the key %q: %d %s, want %d changes", scope, a.status, a.raw, want)
		}
	}
}

// withoutExtras fails to add previous ranks and linked boards to answers.
type withoutExtras struct{ *ranking.Service }

var errExtra = errors.New("hunter2")

func (withoutExtras) AddPreviousRanks(context.Context, *leaderboard.Board, []ranking.Receipt) error {
	return errExtra
}

func (withoutExtras) AddLinked(context.Context, []ranking.Receipt) error { return errExtra }

func TestAppliedResultsAreAnsweredWithoutExtras(t *testing.T) {
	base := newHarness(t, Options{})
	h := serve(t, withoutExtras{base.service}, base.store, Options{})
	for _, extra := range []string{"include_previous_rank", "include_linked"} {
		a := h.do("submit", "POST", "/v1/scores?"+extra+"=true", `{"user_id":"ann","points":3}`)
		if a.status != http.StatusOK || get(a.body, "status") != "APPLIED" || get(a.body, "match_id") == "" || strings.Contains(a.raw, "hunter2") {
			t.Errorf("submit with %s: %d %s, want APPLIED with its match id", extra, a.status, a.raw)
		}
	}
	if log := h.log.String(); !strings.Contains(log, "hunter2") || !strings.Contains(log, "linked boards") {
		t.Errorf("the log is %s, want the error hunter2 and \"linked boards\"", log)
	}
}
