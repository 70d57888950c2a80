package server

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/api/auth"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/embedded"
)

// acts returns the acts of the audit log, the newest first: the outcomes, and the intents of the
// actor system. It checks that each outcome directly precedes an intent that agrees with it.
func (h *harness) acts(query string) (acts []map[string]any) {
	h.t.Helper()
	var outcome map[string]any
	for _, a := range h.must("admin", "GET", "/v1/audit"+query, nil)["acts"].([]any) {
		act := a.(map[string]any)
		switch {
		case outcome != nil:
			for _, field := range []string{"id", "at", "actor", "actor_name", "request_id", "action", "board", "season", "user_id", "match_id", "reason", "erased"} {
				if act[field] != outcome[field] {
					h.t.Errorf("%s is %v in the record after the outcome, want %v as in the outcome %v", field, act[field], outcome[field], outcome)
				}
			}
			if act["completed_at"] != nil || act["failed"] != false {
				h.t.Errorf("the record %v follows an outcome, want its intent", act)
			}
			outcome = nil
		case act["completed_at"] != nil:
			outcome = act
			acts = append(acts, act)
		default:
			if act["actor"] != "system" {
				h.t.Errorf("the intent %v has no outcome", act)
			}
			acts = append(acts, act)
		}
	}
	if outcome != nil {
		h.t.Errorf("the outcome %v has no intent", outcome)
	}
	return acts
}

// recordedCall describes the records of a method that changes something.
type recordedCall struct {
	method, action string
	// refused are calls that are answered with an error or, if they begin with "=", with 200 although
	// they change nothing.
	refused [][3]string
	dryRun  [3]string // empty if the method has none
	call    [3]string
	// count is the number of acts of the call. before and after report whether they have these objects.
	count         int
	before, after bool
	reason        string
}

func recordedCalls(key string) []recordedCall {
	long := strings.Repeat("x", 300)
	const results = "/v1/boards/cup/results"
	return []recordedCall{
		{method: "CreateBoard", action: "board.create", count: 1, after: true,
			refused: [][3]string{
				{"POST", "/v1/boards", `{"board_id":""}`}, {"POST", "/v1/boards", `{"board_id":"n","decimals":10}`}, {"POST", "/v1/boards", `{"board_id":"cup","order":"LOWER_FIRST"}`},
				{"POST", "/v1/boards", `{"board_id":"n","source":{"board_id":"nowhere"}}`}, {"POST", "/v1/boards", `{"board_id":"n","source":{"board_id":"linked"}}`},
			},
			call: [3]string{"POST", "/v1/boards", `{"board_id":"n"}`}},
		{method: "UpdateBoard", action: "board.update", count: 1, before: true, after: true,
			refused: [][3]string{
				{"PATCH", "/v1/boards/cup", `{}`}, {"PATCH", "/v1/boards/cup", `{"order":"LOWER_FIRST"}`}, {"PATCH", "/v1/boards/nowhere", `{"title":"t"}`},
				{"PATCH", "/v1/boards/cup", `{"title":"` + long + `"}`}, {"PATCH", "/v1/boards/ladder", `{"season":{"windows":[]}}`},
			},
			dryRun: [3]string{"PATCH", "/v1/boards/cup?dry_run=true", `{"title":"t"}`},
			call:   [3]string{"PATCH", "/v1/boards/cup", `{"title":"t"}`}},
		{method: "DeleteBoard", action: "board.delete", count: 1, before: true,
			refused: [][3]string{{"DELETE", "/v1/boards/default", ``}, {"DELETE", "/v1/boards/nowhere", ``}, {"DELETE", "/v1/boards/cup", ``}},
			call:    [3]string{"DELETE", "/v1/boards/n", ``}},
		{method: "BanUser", action: "ban", count: 1, after: true, reason: "aimbot",
			refused: [][3]string{
				{"POST", "/v1/users/bob:ban", `{"reason":"` + long + `"}`}, {"POST", "/v1/users/bob:ban", `{"board":"nowhere"}`}, {"POST", "/v1/users/bob:ban", `{"until":"2020-01-01T00:00:00Z"}`},
				{"POST", "/v1/users/" + long + ":ban", `{}`},
			},
			dryRun: [3]string{"POST", "/v1/users/bob:ban", `{"reason":"aimbot","dry_run":true}`},
			call:   [3]string{"POST", "/v1/users/bob:ban", `{"reason":"aimbot"}`}},
		{method: "UnbanUser", action: "unban", count: 1, before: true, after: true, reason: "appeal",
			refused: [][3]string{{"POST", "/v1/users/bob:unban", `{"reason":"` + long + `"}`}, {"POST", "/v1/users/" + long + ":unban", `{}`}},
			dryRun:  [3]string{"POST", "/v1/users/bob:unban", `{"dry_run":true}`},
			call:    [3]string{"POST", "/v1/users/bob:unban", `{"reason":"appeal"}`}},
		{method: "PutProfile", action: "profile.put", count: 1, after: true, reason: "ticket",
			refused: [][3]string{{"PUT", "/v1/users/bob/profile", `{"country":"x"}`}, {"PUT", "/v1/users/bob/profile?reason=" + long, `{}`}},
			call:    [3]string{"PUT", "/v1/users/bob/profile?reason=ticket", `{"display_name":"Bob"}`}},
		{method: "BatchPutProfiles", action: "profile.put", count: 1, before: true, after: true, reason: "import",
			refused: [][3]string{{"POST", "/v1/profiles:batch", `{"profiles":[]}`}, {"=POST", "/v1/profiles:batch", `{"profiles":[{"user_id":"bob","country":"x"}]}`}},
			call:    [3]string{"POST", "/v1/profiles:batch", `{"reason":"import","profiles":[{"user_id":"bob","display_name":"Bobby"},{"user_id":""}]}`}},
		{method: "DeleteProfile", action: "profile.delete", count: 1, before: true, reason: "ticket",
			refused: [][3]string{{"DELETE", "/v1/users/nobody/profile", ``}, {"DELETE", "/v1/users/bob/profile?reason=" + long, ``}},
			call:    [3]string{"DELETE", "/v1/users/bob/profile?reason=ticket", ``}},
		{method: "ImportBans", action: "ban.import", count: 2, after: true,
			refused: [][3]string{{"POST", "/v1/bans:import", `{"bans":[]}`}, {"POST", "/v1/bans:import", `{"bans":[{"user_id":"z","revision":1},{"user_id":"z","revision":0}]}`}},
			call:    [3]string{"POST", "/v1/bans:import", `{"bans":[{"user_id":"y","banned":true,"revision":1},{"user_id":"z","banned":true,"revision":1}]}`}},
		{method: "CorrectResult", action: "result.correct", count: 1, before: true, after: true,
			refused: [][3]string{
				{"PATCH", results + "/ann/none", `{"score":5}`}, {"PATCH", results + "/ann/a", `{"score":5,"revision":7}`}, {"PATCH", results + "/ann/a", `{"score":5000}`},
				{"PATCH", results + "/ann/a", `{}`}, {"PATCH", results + "/ann/a", `{"score":5,"reason":"` + long + `"}`}, {"PATCH", results + "/ann/a", `{"points":5}`},
				{"PATCH", results + "/ann/a", `{"achieved_at":"9000-01-01T00:00:00Z"}`}, {"PATCH", "/v1/boards/linked/results/ann/a", `{"score":5}`},
				{"PATCH", "/v1/boards/sum/results/ann/a", `{"points":-1}`}, // below the floor
			},
			dryRun: [3]string{"PATCH", results + "/ann/a", `{"score":5,"dry_run":true}`},
			call:   [3]string{"PATCH", results + "/ann/a", `{"score":5}`}},
		{method: "RetractResult", action: "result.retract", count: 1, before: true, after: true, reason: "wrong lane",
			refused: [][3]string{{"POST", results + "/ann/none:retract", `{}`}, {"POST", results + "/ann/a:retract", `{"reason":"` + long + `"}`}, {"POST", results + "/ann/a:retract", `{"revision":-1}`}},
			dryRun:  [3]string{"POST", results + "/ann/a:retract", `{"dry_run":true,"reason":"wrong lane"}`},
			call:    [3]string{"POST", results + "/ann/a:retract", `{"reason":"wrong lane"}`}},
		{method: "BatchRetractResults", action: "result.retract", count: 2, before: true, after: true,
			refused: [][3]string{
				{"POST", results + ":retract", `{"results":[]}`}, {"POST", "/v1/boards/nowhere/results:retract", `{"results":[{"user_id":"ann","match_id":"b"}]}`},
				{"=POST", results + ":retract", `{"results":[{"user_id":"ann","match_id":"none"}]}`},
			},
			dryRun: [3]string{"POST", results + ":retract", `{"dry_run":true,"results":[{"user_id":"ann","match_id":"b"}]}`},
			call:   [3]string{"POST", results + ":retract", `{"results":[{"user_id":"ann","match_id":"b"},{"user_id":"ann","match_id":"none"},{"user_id":"bob","match_id":"a"}]}`}},
		{method: "PurgeResults", action: "result.retract", count: 2, before: true, after: true, reason: "bot",
			refused: [][3]string{{"POST", results + "/cyd:purge", `{}`}, {"POST", results + "/cyd:purge", `{"from":"2026-11-20T10:00:00Z","to":"2026-11-20T10:00:00Z"}`}, {"=POST", results + "/nobody:purge", `{"from":"2020-01-01T00:00:00Z"}`}},
			dryRun:  [3]string{"POST", results + "/cyd:purge", `{"from":"2020-01-01T00:00:00Z","dry_run":true}`},
			call:    [3]string{"POST", results + "/cyd:purge", `{"from":"2020-01-01T00:00:00Z","reason":"bot"}`}},
		{method: "VoidMatch", action: "match.void", count: 1, before: true, after: true, reason: "wrong map",
			refused: [][3]string{{"POST", "/v1/boards/cup/matches/none:void", `{"reason":"r"}`}, {"POST", "/v1/boards/cup/matches/c:void", `{}`}, {"POST", "/v1/boards/sum/matches/c:void", `{"reason":"r"}`}, {"POST", "/v1/boards/linked/matches/c:void", `{"reason":"r"}`}, {"POST", "/v1/boards/cup/matches/c:void", `{"reason":"` + long + `"}`}},
			dryRun:  [3]string{"POST", "/v1/boards/cup/matches/c:void", `{"reason":"r","dry_run":true}`},
			call:    [3]string{"POST", "/v1/boards/cup/matches/c:void", `{"reason":"wrong map"}`}},
		{method: "RestoreMatch", action: "match.restore", count: 1, before: true, after: true, reason: "right map",
			refused: [][3]string{{"POST", "/v1/boards/cup/matches/none:restore", `{"reason":"r"}`}, {"POST", "/v1/boards/cup/matches/c:restore", `{}`}, {"POST", "/v1/boards/nowhere/matches/c:restore", `{"reason":"r"}`}},
			dryRun:  [3]string{"POST", "/v1/boards/cup/matches/c:restore", `{"reason":"r","dry_run":true}`},
			call:    [3]string{"POST", "/v1/boards/cup/matches/c:restore", `{"reason":"right map"}`}},
		{method: "EndSeason", action: "season.end", count: 1, before: true, after: true, reason: "over",
			refused: [][3]string{
				{"POST", "/v1/boards/ladder/seasons/s:end", `{}`}, {"POST", "/v1/boards/ladder/seasons/none:end", `{"reason":"r"}`}, {"POST", "/v1/boards/ladder/seasons/s:end", `{"reason":"r","at":"2090-01-01T00:00:00Z"}`},
				{"POST", "/v1/boards/ladder/seasons/s:end", `{"reason":"` + long + `"}`}, {"POST", "/v1/boards/ladder/seasons/old:end", `{"reason":"r"}`},
			},
			dryRun: [3]string{"POST", "/v1/boards/ladder/seasons/s:end", `{"reason":"r","dry_run":true}`},
			call:   [3]string{"POST", "/v1/boards/ladder/seasons/s:end", `{"reason":"over"}`}},
		{method: "EraseUser", action: "user.erase", count: 1,
			refused: [][3]string{{"POST", "/v1/users/" + long + ":erase", `{}`}},
			call:    [3]string{"POST", "/v1/users/dan:erase", `{}`}},
		{method: "CreateKey", action: "key.create", count: 1, after: true,
			refused: [][3]string{{"POST", "/v1/keys", `{"name":"","scopes":["read"]}`}, {"POST", "/v1/keys", `{"name":"k","scopes":["root"]}`}, {"POST", "/v1/keys", `{"name":"k","scopes":["read"],"expires_at":"2020-01-01T00:00:00Z"}`}},
			call:    [3]string{"POST", "/v1/keys", `{"name":"k","scopes":["read"]}`}},
		{method: "RevokeKey", action: "key.revoke", count: 1, before: true,
			refused: [][3]string{{"DELETE", "/v1/keys/none", ``}},
			call:    [3]string{"DELETE", "/v1/keys/" + key, ``}},
		{method: "Verify", action: "verify.repair", count: 1, after: true,
			refused: [][3]string{{"POST", "/v1/admin/verify", `{"repair":true,"season":"s"}`}, {"POST", "/v1/admin/verify", `{"repair":true,"board":"nowhere"}`}, {"POST", "/v1/admin/verify", `{"repair":true,"board":"ladder","season":"none"}`}},
			dryRun:  [3]string{"POST", "/v1/admin/verify", `{}`},
			call:    [3]string{"POST", "/v1/admin/verify", `{"repair":true}`}},
		{method: "Rebuild", action: "rebuild", count: 1, after: true,
			refused: [][3]string{{"POST", "/v1/admin/rebuild", `{"season":"s"}`}, {"POST", "/v1/admin/rebuild", `{"board":"nowhere"}`}, {"POST", "/v1/admin/rebuild", `{"board":"ladder","season":"none"}`}},
			call:    [3]string{"POST", "/v1/admin/rebuild", `{}`}},
		{method: "Backup", action: "backup", count: 1, after: true, reason: "b",
			refused: [][3]string{{"POST", "/v1/admin/backup", `{"name":"../b"}`}, {"POST", "/v1/admin/backup", `{"name":"taken"}`}},
			call:    [3]string{"POST", "/v1/admin/backup", `{"name":"b"}`}},
		{method: "ReplayDeadLetters", action: "dead_letter.replay", count: 1, after: true, reason: "board made",
			refused: [][3]string{
				{"POST", "/v1/dead-letters:replay", `{}`}, {"POST", "/v1/dead-letters:replay", `{"dead_letter_ids":["9:9"]}`}, {"=POST", "/v1/dead-letters:replay", `{"dead_letter_ids":["0:2"]}`},
				{"POST", "/v1/dead-letters:replay", `{"dead_letter_ids":["3:17"],"reason":"` + long + `"}`},
			},
			dryRun: [3]string{"POST", "/v1/dead-letters:replay", `{"dead_letter_ids":["3:17"],"dry_run":true}`},
			call:   [3]string{"POST", "/v1/dead-letters:replay", `{"dead_letter_ids":["3:17"],"reason":"board made"}`}},
	}
}

// Each call with the scope admin that changes something leaves an intent and an outcome for each
// changed object. A call that is refused and a dry run leave nothing.
func TestEveryAdministrativeActIsRecorded(t *testing.T) {
	h := newHarness(t, Options{
		DeadLetters: newDeadLetterBox(),
		Backup:      func(context.Context, string) error { return nil },
		CheckBackup: func(name string) error {
			if name == "taken" {
				return &leaderboard.FieldError{Field: "name", Problem: "is taken"}
			}
			return nil
		},
	})
	h.createBoard(`{"board_id":"cup","matches":true,"max_score":1000}`)
	h.createBoard(`{"board_id":"linked","source":{"board_id":"cup"}}`)
	h.createBoard(`{"board_id":"sum","policy":"SUM","floor":0}`)
	h.createBoard(`{"board_id":"ladder","season":{"schedule":"EXPLICIT","grace":"0s","windows":[
		{"id":"old","start":"2020-01-01T00:00:00Z","end":"2020-02-01T00:00:00Z"},{"id":"s","start":"2021-01-01T00:00:00Z","end":"2099-01-01T00:00:00Z"}]}}`)
	for _, result := range []string{"ann a 10", "ann b 7", "bob a 8", "bob c 9", "cyd a 3", "cyd c 4"} {
		f := strings.Fields(result)
		h.must("submit", "POST", "/v1/boards/cup/scores", fmt.Sprintf(`{"user_id":%q,"match_id":%q,"score":%s}`, f[0], f[1], f[2]))
	}
	h.must("submit", "POST", "/v1/boards/sum/scores", `{"user_id":"ann","match_id":"a","points":1}`)
	key := get(h.must("admin", "POST", "/v1/keys", `{"name":"old","scopes":["read"]}`), "key", "key_id").(string)

	reads := []string{"ListKeys", "ExportResults", "ListBans", "ListActs", "ListDeadLetters", "GetDeadLetter", "SubmitScore", "BatchSubmitScores", "BatchSubmitResults"}
	recorded := map[string]bool{}
	for _, c := range recordedCalls(key) {
		recorded[c.method] = true
		before := h.acts("?limit=1000")
		unchanged := func(what string, call [3]string, a answer) {
			if acts := h.acts("?limit=1000"); len(acts) != len(before) {
				t.Errorf("%s: %s %v (%d %s) left %d acts, the newest %v; want none", c.method, what, call, a.status, a.raw, len(acts)-len(before), acts[0])
			}
		}
		a := h.do("read", c.call[0], c.call[1], c.call[2])
		if unchanged("a call without the scope", c.call, a); a.status != http.StatusForbidden {
			t.Errorf("%s with the scope read: %d %s, want 403", c.method, a.status, a.raw)
		}
		for _, call := range c.refused {
			method, ok := strings.CutPrefix(call[0], "=")
			a := h.do("admin", method, call[1], call[2])
			if unchanged("the refused call", call, a); (a.status == http.StatusOK) != ok || a.status >= http.StatusInternalServerError {
				t.Errorf("%s: %v is answered with %d %s, want an error: %v", c.method, call, a.status, a.raw, !ok)
			}
		}
		if c.dryRun[0] != "" {
			a := h.do("admin", c.dryRun[0], c.dryRun[1], c.dryRun[2])
			if unchanged("the dry run", c.dryRun, a); a.status != http.StatusOK {
				t.Errorf("%s: the dry run %v is answered with %d %s, want 200", c.method, c.dryRun, a.status, a.raw)
			}
		}
		if a := h.do("admin", c.call[0], c.call[1], c.call[2]); a.status != http.StatusOK {
			t.Errorf("%s: %v is answered with %d %s, want 200", c.method, c.call, a.status, a.raw)
		}
		acts := h.acts("?limit=1000")
		if len(acts) != len(before)+c.count {
			t.Errorf("%s left %d acts, want %d", c.method, len(acts)-len(before), c.count)
			continue
		}
		for _, act := range acts[:c.count] {
			request, _ := act["request_id"].(string)
			actor, _ := act["actor"].(string)
			if act["action"] != c.action || !strings.HasPrefix(actor, "key:") || act["actor_name"] != "admin" || request == "" || act["reason"] != c.reason || act["failed"] != false ||
				(act["before"] != nil) != c.before || (act["after"] != nil) != c.after || c.before && c.after && cmp.Equal(act["before"], act["after"]) {
				t.Errorf("%s left the record %v; want the action %s, the key and its name, a request id, the reason %q, before: %v, after: %v, and both different",
					c.method, act, c.action, c.reason, c.before, c.after)
			}
		}
	}
	for _, d := range doors {
		if d.scope >= auth.Submit && d.scope <= auth.Admin && !recorded[d.name] && !slices.Contains(reads, d.name) {
			t.Errorf("%s needs the scope %s and has no line in recordedCalls: add one", d.name, d.scope)
		}
	}
	if acts := h.acts("?action=board.delete"); get(acts[0], "before", "board_id") != "n" {
		t.Errorf("acts board.delete: %v, want the board n in \"before\"", acts)
	}
	if acts := h.acts("?action=key"); strings.Contains(fmt.Sprint(acts), "secret") {
		t.Errorf("acts on keys: %v, want no secret", acts)
	}
	h.checkLogLines()
}

// A game server's change of a result has a record only if it has a reason.
func TestChangesByGameServersAreRecordedWithAReason(t *testing.T) {
	h := newHarness(t, Options{})
	users := 0
	for _, call := range [][3]string{
		{"PATCH", "/v1/boards/default/results/USER/m", `{"points":2%s}`},
		{"POST", "/v1/boards/default/results/USER/m:retract", `{"revision":7%s}`},
		{"POST", "/v1/boards/default/results:retract", `{"results":[{"user_id":"USER","match_id":"m"}]%s}`},
		{"POST", "/v1/boards/default/results/USER:purge", `{"from":"2020-01-01T00:00:00Z"%s}`},
	} {
		for reason, want := range map[string]int{"": 0, `,"reason":"lag"`: 1} {
			users++
			user := fmt.Sprint("ann", users)
			h.must("submit", "POST", "/v1/scores", fmt.Sprintf(`{"user_id":%q,"match_id":"m","points":1}`, user))
			h.must("submit", call[0], strings.ReplaceAll(call[1], "USER", user), strings.ReplaceAll(fmt.Sprintf(call[2], reason), "USER", user))
			acts := h.acts("?user_id=" + user)
			if len(acts) != want || want > 0 && (acts[0]["actor_name"] != "submit" || acts[0]["reason"] != "lag" || acts[0]["match_id"] != "m") {
				t.Errorf("%v with the reason %q left the acts %v, want %d", call, reason, acts, want)
			}
		}
	}
}

// The history of a result is the list of its changes, with the result and the user's entry before
// and after each. Seasons that are open, closed and sealed have it.
func TestHistoryOfAResult(t *testing.T) {
	for _, state := range []string{"open", "closed", "sealed"} {
		t.Run(state, func(t *testing.T) {
			h, clock := newMonthlyHarness(t, firstOfNovember)
			for _, result := range []string{"ann m 10", "ann other 7", "bob m 8"} {
				f := strings.Fields(result)
				h.must("submit", "POST", "/v1/boards/cup/scores", fmt.Sprintf(`{"user_id":%q,"match_id":%q,"score":%s,"achieved_at":"2026-10-30T08:00:00Z"}`, f[0], f[1], f[2]))
			}
			next := func() {
				later := clock.Load().Add(time.Minute)
				clock.Store(&later)
			}
			if state != "open" {
				closed := firstOfNovember.AddDate(0, 0, 10)
				clock.Store(&closed)
			}
			if state == "sealed" {
				if err := h.service.Sweep(t.Context()); err != nil {
					t.Fatal(err)
				}
				next()
			}
			h.must("admin", "PATCH", resultPath, `{"score":5,"reason":"wrong lane"}`)
			next()
			h.must("admin", "POST", resultPath+":retract", `{"reason":"bot"}`)
			next()
			h.must("admin", "POST", "/v1/boards/cup/results/ann/other:retract", `{"reason":"bot"}`)
			next()
			h.must("admin", "POST", resultPath+":retract", `{"reason":"again"}`)
			res := h.must("admin", "GET", resultPath+"?season=202610&history=true", nil)
			if res["status"] != "RETRACTED" || res["revision"] != number(2) {
				t.Errorf("the result: %v, want the retraction with revision 2", res)
			}
			describe := func(o any) string {
				return fmt.Sprint(get(o, "status"), " ", get(o, "result", "revision"), " ", get(o, "result", "score"), " ", get(o, "entry", "score"), " ", get(o, "entry", "rank"))
			}
			var got []string
			for _, act := range res["history"].([]any) {
				got = append(got, fmt.Sprint(get(act, "action"), " ", get(act, "reason"), " ", get(act, "actor_name"), ": ", describe(get(act, "before")), ", ", describe(get(act, "after"))))
			}
			want := []string{
				"result.retract again admin: RETRACTED 2 <nil> <nil> <nil>, RETRACTED 2 <nil> <nil> <nil>",
				"result.retract bot admin: APPLIED 1 5 7 2, RETRACTED 2 <nil> 7 2",
				"result.correct wrong lane admin: APPLIED 0 10 10 1, APPLIED 1 5 7 2",
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("the history (-want +got):\n%s", d)
			}
			other := h.must("admin", "GET", "/v1/boards/cup/results/ann/other?history=true", nil)["history"]
			if act := get(other, 0); len(other.([]any)) != 1 || describe(get(act, "before")) != "APPLIED 0 7 7 2" || describe(get(act, "after")) != "RETRACTED 1 <nil> <nil> <nil>" {
				t.Errorf("the history of another result: %v, want its retraction", other)
			}
			grpc, err := h.client().GetResult(h.as("admin"), &pb.GetResultRequest{Board: "cup", UserId: "ann", MatchId: "m", History: true})
			if err != nil || len(grpc.GetHistory()) != len(want) {
				t.Errorf("the history over gRPC: %v, %v; want %d acts", grpc, err, len(want))
			}
			if res := h.must("admin", "GET", "/v1/boards/cup/results/bob/m?history=true", nil); res["history"] != nil || res["status"] != "APPLIED" {
				t.Errorf("the history of a result that nobody changed: %v, want none", res)
			}
			if res := h.must("submit", "GET", resultPath, nil); res["history"] != nil {
				t.Errorf("a result without history=true: %v, want no history", res)
			}
			for query, want := range map[string]int{"submit ?history=true": 403, "admin ?history=true&revision=1": 400} {
				scope, query, _ := strings.Cut(query, " ")
				if a := h.do(scope, "GET", resultPath+query, nil); a.status != want {
					t.Errorf("%s with the scope %s: %d %s, want %d", query, scope, a.status, a.raw, want)
				}
			}
		})
	}
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
	if acts := h.acts("?board=b&action=board"); len(acts) != 1 || acts[0]["action"] != "board.create" {
		t.Errorf("acts on boards: %v, want the creation only", acts)
	}
	if acts := h.acts("?user_id=ann"); len(acts) != 2 || get(acts[0], "before", "banned") != true || acts[1]["before"] != nil || get(acts[0], "after", "reason") != "aimbot" {
		t.Errorf("acts on ann: %v, want two bans with reason aimbot, of which only the newer has a \"before\"", acts)
	}
	if acts := h.acts("?actor=key:none"); len(acts) != 0 {
		t.Errorf("acts of an unknown actor: %v, want none", acts)
	}
	all := h.acts("")
	var paged []map[string]any
	for query := "?limit=2"; query != ""; {
		paged = append(paged, h.acts(query)...)
		token := h.must("admin", "GET", "/v1/audit"+query, nil)["next_page_token"].(string)
		if query = ""; token != "" {
			query = "?limit=2&page_token=" + token
		}
	}
	if fmt.Sprint(paged) != fmt.Sprint(all) {
		t.Errorf("acts of all pages: %v, want %v", paged, all)
	}
	if first := h.acts("?user_id=ann&limit=1"); len(first) != 1 || first[0]["id"] != h.acts("?user_id=ann")[0]["id"] {
		t.Errorf("the first act on ann: %v, want the newest", first)
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
		{"result.correct", "PATCH", "/v1/boards/cup/results/mallory/mallory-a", `,"score":8,"achieved_at":"2026-10-31T08:00:00Z"`},
		{"result.retract", "POST", "/v1/boards/cup/results/mallory/mallory-b:retract", ``},
		{"result.retract", "POST", "/v1/boards/cup/results:retract", `,"results":[{"user_id":"mallory","match_id":"mallory-c"}]`},
		{"result.retract", "POST", "/v1/boards/cup/results/mallory:purge", `,"from":"2026-10-01T00:00:00Z","to":"2026-10-31T00:00:00Z"`},
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
	if want := fmt.Sprintf("%x", sha256.Sum256([]byte("mallory"))); got[0]["user_hash"] != want || got[1]["user_hash"] != nil {
		t.Errorf("user_hash of the erasure: %v, of the act before: %v; want %s and none", got[0]["user_hash"], got[1]["user_hash"], want)
	}
	for i, act := range acts {
		if r := got[len(acts)-i]; r["action"] != act.action || r["erased"] != true || !strings.HasPrefix(r["actor"].(string), "key:") {
			t.Errorf("the record of act %d is %v, want action %s, erased, with its actor", i, r, act.action)
		}
	}
}

type brokenAuditLog struct {
	leaderboard.Store
	broken, brokenOutcomes, brokenBans bool
}

func (u *brokenAuditLog) AppendAct(ctx context.Context, a leaderboard.Act) error {
	if u.broken || u.brokenOutcomes && a.IsOutcome() {
		return leaderboard.ErrUnavailable
	}
	return u.Store.AppendAct(ctx, a)
}

func (u *brokenAuditLog) SetBan(ctx context.Context, b leaderboard.Ban) ([]leaderboard.Change, error) {
	if u.brokenBans {
		return nil, leaderboard.ErrUnavailable
	}
	return u.Store.SetBan(ctx, b)
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
	for _, match := range []string{"a", "b", "c"} {
		h.must("submit", "POST", "/v1/scores", fmt.Sprintf(`{"user_id":"ann","match_id":%q,"points":1}`, match))
	}
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
		{"PATCH", "/v1/boards/default/results/ann/a", `{"points":2}`}, {"POST", "/v1/boards/default/results/ann/a:retract", `{}`},
		{"POST", "/v1/boards/default/results:retract", `{"results":[{"user_id":"ann","match_id":"b"}]}`},
		{"POST", "/v1/boards/default/results/ann:purge", `{"from":"2020-01-01T00:00:00Z"}`},
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

	u.brokenBans = true
	if a := h.do("admin", "POST", "/v1/users/cyd:ban", `{"reason":"bot"}`); a.status != http.StatusServiceUnavailable {
		t.Errorf("a ban while the store is down: %d %s, want 503", a.status, a.raw)
	}
	u.brokenBans = false
	if acts := h.acts("?user_id=cyd"); len(acts) != 1 || acts[0]["failed"] != true || acts[0]["after"] != nil || acts[0]["reason"] != "bot" {
		t.Errorf("acts on cyd after a failure: %v, want an outcome that failed, without \"after\"", acts)
	}
	if lines := h.logLines("administrative act"); lines[len(lines)-1]["user"] != "cyd" || lines[len(lines)-1]["err"] == nil {
		t.Errorf("an act that failed is logged as %v, want a line with its error", lines[len(lines)-1])
	}
	u.brokenOutcomes = true
	h.must("admin", "POST", "/v1/users/dan:ban", `{}`) // the ban has happened
	records := get(h.must("admin", "GET", "/v1/audit?user_id=dan", nil), "acts")
	if len(records.([]any)) != 1 || get(records, 0, "completed_at") != nil {
		t.Errorf("records on dan after a failure of the audit log: %v, want the intent only", records)
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
