package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard/internal/cli"
)

func parseObject(t *testing.T, text string) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%q is not a JSON object: %v", text, err)
	}
	return v
}

func standings(t *testing.T, s *testServer, args ...string) []string {
	t.Helper()
	data := parseObject(t, s.ok(t, append([]string{"top", "--limit", "1000", "--json"}, args...)...))["data"].(map[string]any)
	var list []string
	for _, e := range data["leaderboard"].([]any) {
		b, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, string(b))
	}
	return list
}

func checkContains(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("%q is missing in:\n%s", w, text)
		}
	}
}

func TestSubmitAndRead(t *testing.T) {
	s := startInsecure(t)
	checkContains(t, s.ok(t, "submit", "zed", "--points", "1", "--match", "m", "--no-wait"), "applied: zed has 1")
	s.ok(t, "retract", "zed", "m")
	checkContains(t, s.ok(t, "submit", "ada", "--points", "3", "--match", "m1", "--metadata", `{"map":"dust"}`),
		"applied: ada has 3 points, rank 1", "match m1", "revision 0")
	checkContains(t, s.ok(t, "submit", "ada", "--points", "3", "--match", "m1", "--metadata", `{"map":"dust"}`), "duplicate: ada has 3 points")
	s.ok(t, "submit", "bob", "--points", "5", "--match", "m1")
	s.ok(t, "submit", "eve", "--points", "5", "--match", "m1")
	answer := parseObject(t, s.ok(t, "submit", "ada", "--points", "4", "--match", "m2", "--json"))
	if answer["success"] != true || answer["new_score"] != 7.0 || answer["rank"] != 1.0 || answer["status"] != "APPLIED" {
		t.Errorf("submit --json prints %v, want APPLIED with score 7 and rank 1", answer)
	}

	top := s.ok(t, "top")
	checkContains(t, top, "RANK", "POINTS", "3 entries", "competition ranks", "board default")
	if lines := strings.Split(top, "\n"); !strings.Contains(lines[1], "ada") || !strings.Contains(lines[2], "bob") || !strings.Contains(lines[3], "eve") {
		t.Errorf("top prints the users in another order than ada, bob, eve:\n%s", top)
	}
	checkContains(t, s.ok(t, "top", "--limit", "2"), "next page: --page-token ")
	page := parseObject(t, s.ok(t, "top", "--limit", "2", "--json"))["data"].(map[string]any)
	checkContains(t, s.ok(t, "top", "--page-token", page["next_page_token"].(string)), "eve")
	checkContains(t, s.ok(t, "top", "--from", "3", "--method", "ordinal"), "3  eve")

	rank := s.ok(t, "rank", "bob", "--neighbors", "1")
	checkContains(t, rank, "▶     2  bob", "bob has 5 points, rank 2 of 3", "ada", "eve")
	checkContains(t, s.ok(t, "user", "ada"), "default", "7 points")
	checkContains(t, s.ok(t, "user", "nobody"), "no score on any board")
	checkContains(t, s.ok(t, "result", "ada", "m1"), "status", "applied", "points", "metadata", `{"map":"dust"}`)
	checkContains(t, s.ok(t, "season", "list"), "open, current")

	checkContains(t, s.ok(t, "correct", "ada", "m2", "--points", "1"), "applied: ada has 4 points, rank 3 (before: 7 points, rank 1)", "revision 1")
	checkContains(t, s.ok(t, "correct", "ada", "m2", "--attribute", "team=red", "--revision", "1"), "applied: ada has 4 points")
	s.fails(t, exitFailure, []string{"revision 2 of the result counts, not 1"}, "correct", "ada", "m2", "--points", "2", "--revision", "1")
	s.fails(t, exitFailure, []string{"give the fields to change"}, "correct", "ada", "m2")
	checkContains(t, s.ok(t, "result", "ada", "m2"), "attribute team", "red")
	checkContains(t, s.ok(t, "retract", "ada", "m2"), "applied: ada has 3 points, rank 3 (before: 4 points, rank 3)", "match m2 · revision 3")
	checkContains(t, s.ok(t, "result", "ada", "m2"), "retracted")
	checkContains(t, s.ok(t, "results", "ada"), "m1", "applied", "m2", "retracted")
	checkContains(t, s.ok(t, "results", "ada", "--limit", "1"), "m1", "next page: --page-token ")
	checkContains(t, s.ok(t, "results", "nobody"), "nobody has no results")
	now := time.Now().UTC()
	checkContains(t, s.ok(t, "submit", "ada", "--points", "4", "--match", "m2", "--revision", "4", "--achieved-at", now.Format(time.RFC3339)), "ada has 7 points, rank 1")
	checkContains(t, s.ok(t, "submit", "ada", "--points", "5", "--match", "m2", "--revision", "5", "--season", now.Format("200601")), "ada has 8 points, rank 1")
	s.ok(t, "retract", "eve", "m1")
	checkContains(t, s.ok(t, "retract", "eve", "m1", "--revision", "9"), "eve has no other results")

	s.fails(t, exitFailure, []string{`user "nobody" has no entry on board "default"`, "entry not found", "leaderboard user"}, "rank", "nobody")
	s.fails(t, exitFailure, []string{"board not found", "leaderboard board list"}, "top", "--board", "nope")
	s.fails(t, exitFailure, []string{"season", "leaderboard season list"}, "top", "--season", "2026W47")
	s.fails(t, exitFailure, []string{"score"}, "submit", "ada", "--score", "3") // the board adds up points
	s.fails(t, exitFailure, []string{"match result not found"}, "result", "ada", "m9")
	s.fails(t, exitFailure, []string{"limit"}, "top", "--limit", "0")
}

func TestBoards(t *testing.T) {
	s := startInsecure(t)
	checkContains(t, s.ok(t, "board", "create", "marathon", "--policy", "best", "--order", "lower-first", "--unit", "s", "--division", "gender",
		"--title", "City marathon", "--min", "1", "--max", "100000"), "LOWER_FIRST", "gender", "City marathon", "100000")
	s.ok(t, "board", "create", "marathon", "--policy", "best", "--order", "lower-first", "--unit", "s", "--division", "gender",
		"--title", "City marathon", "--min", "1", "--max", "100000") // a repetition changes nothing
	s.fails(t, exitFailure, []string{"board exists with other rules", "policy (BEST, not LATEST)", "min_score (1, not none)"}, "board", "create", "marathon", "--policy", "latest")

	checkContains(t, s.ok(t, "board", "create", "cup", "--policy", "sum", "--tie-breaker", "wins", "--tie-breaker", "losses:lower-first",
		"--season", "explicit", "--window", "2026=2026-01-01/2027-01-01", "--window", "2027=2027-01-01/2028-01-01T00:00:00Z", "--grace", "48h"),
		"wins HIGHER_FIRST", "losses LOWER_FIRST", "2026  2026-01-01 00:00:00 to 2027-01-01 00:00:00", "48h0m0s")
	checkContains(t, s.ok(t, "board", "create", "trend", "--policy", "decay", "--half-life", "24h", "--season", "monthly", "--time-zone", "Europe/Berlin"),
		"DECAY", "24h0m0s", "Europe/Berlin")
	checkContains(t, s.ok(t, "board", "create", "women", "--policy", "best", "--source", "marathon", "--match", "gender=F"), "marathon", "gender=F", "filling")
	checkContains(t, s.ok(t, "board", "show", "marathon"), "linked boards", "women")
	checkContains(t, s.ok(t, "board", "create", "fortnights", "--season", "every", "--every", "336h", "--from", "2026-10-19T02:00:00Z", "--time-zone", "Europe/Berlin"),
		"EVERY", "336h0m0s", "2026-10-19 02:00:00", "Europe/Berlin")
	checkContains(t, s.ok(t, "board", "create", "weeks", "--season", "weekly", "--week-start", "sunday", "--day-start", "04:00"), "SUNDAY", "04:00")
	checkContains(t, s.ok(t, "board", "create", "years", "--season", "yearly", "--year-start", "04-01"), "YEARLY", "04-01")
	s.fails(t, exitUsage, []string{"--week-start", "sunday"}, "board", "create", "bad", "--season", "weekly", "--week-start", "someday")
	s.fails(t, exitUsage, []string{"--from", "soon"}, "board", "create", "bad", "--season", "every", "--every", "1h", "--from", "soon")
	s.fails(t, exitFailure, []string{"season.every"}, "board", "create", "bad", "--season", "every", "--every", "90s", "--from", "2026-01-01")
	checkContains(t, s.ok(t, "board", "create", "week", "--season", "rolling", "--days", "7", "--retention", "720h", "--order", "lower-first", "--source", "marathon"), "ROLLING", "days", "7", "720h0m0s")
	s.fails(t, exitFailure, []string{"season.days", "2 to 31"}, "board", "create", "bad", "--season", "rolling", "--retention", "720h", "--source", "marathon")
	linked := parseObject(t, s.ok(t, "board", "show", "week", "--json"))
	linked["board_id"] = "week2"
	text, err := json.Marshal(linked)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "week2.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	checkContains(t, s.ok(t, "board", "create", "-f", file), "ROLLING", "days", "720h0m0s")
	checkContains(t, s.ok(t, "board", "list"), "marathon", "cup", "trend", "default", "BEST", "MONTHLY")

	shown := s.ok(t, "board", "show", "cup", "--json")
	cup := parseObject(t, shown)
	delete(cup, "created_at")
	cup["board_id"] = "cup2"
	asJSON, err := json.Marshal(cup)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	s.ok(t, "board", "create", "-f", write("cup2.json", string(asJSON)))
	copied := parseObject(t, s.ok(t, "board", "show", "cup2", "--json"))
	delete(copied, "created_at")
	if diff := cmp.Diff(cup, copied); diff != "" {
		t.Errorf("a board created from the JSON of board cup differs from cup (-cup +copy):\n%s", diff)
	}
	yaml := write("y.yaml", `
policy: SUM
season:
  schedule: EXPLICIT
  grace: 3600s
  windows:
    - {id: spring, start: 2026-03-01T00:00:00Z, end: 2026-06-01T00:00:00Z}
divisions: [country]
`)
	checkContains(t, s.ok(t, "board", "create", "from-yaml", "-f", yaml), "spring  2026-03-01 00:00:00", "country", "1h0m0s")

	checkContains(t, s.ok(t, "board", "update", "marathon", "--title", "Other", "--retention", "1h", "--dry-run"), "Other", "nothing changed", "would delete 0")
	checkContains(t, s.ok(t, "board", "update", "marathon", "--title", "Marathon", "--decimals", "1", "--grace", "1h"), "Marathon", "1h0m0s")
	shown = s.ok(t, "board", "show", "marathon")
	checkContains(t, shown, "Marathon", "100000", "gender") // the other fields are unchanged
	checkContains(t, s.ok(t, "board", "update", "from-yaml", "-f", write("u.yaml", "title: Spring cup\nunit: points\n")), "Spring cup", "spring")

	s.fails(t, exitFailure, []string{"window"}, "board", "update", "cup", "--window", "2027=2027-01-01/2028-01-01") // the new list lacks the window 2026
	s.fails(t, exitFailure, []string{"half_life"}, "board", "create", "bad", "--policy", "decay")
	s.fails(t, exitFailure, []string{"k: 101 is not in the range 1 to 100"}, "board", "create", "bad", "--policy", "best-k", "--k", "101")
	s.fails(t, exitFailure, []string{"k: is allowed on BEST_K boards only"}, "board", "create", "bad", "--policy", "sum", "--k", "3")
	checkContains(t, s.ok(t, "board", "create", "best-two", "--policy", "best-k", "--k", "2"), "BEST_K")
	s.ok(t, "submit", "eve", "--board", "best-two", "--points", "5", "--match", "1")
	s.ok(t, "submit", "eve", "--board", "best-two", "--points", "1", "--match", "2")
	checkContains(t, s.ok(t, "submit", "eve", "--board", "best-two", "--points", "3", "--match", "3"), "8")
	checkContains(t, s.ok(t, "retract", "eve", "1", "--board", "best-two"), "4")
	s.fails(t, exitFailure, []string{"policyy", "is unknown"}, "board", "create", "bad", "-f", write("bad.yaml", "policyy: SUM\n"))
	s.fails(t, exitFailure, []string{"bad2.yaml", "yaml"}, "board", "create", "bad", "-f", write("bad2.yaml", "a: [\n"))
	s.fails(t, exitUsage, []string{"describes board"}, "board", "create", "other", "-f", write("cup3.json", string(asJSON)))
	s.fails(t, exitFailure, []string{"no such file"}, "board", "create", "bad", "-f", filepath.Join(dir, "none"))

	checkContains(t, s.ok(t, "board", "delete", "cup", "--yes"), "cup is deleted")
	s.fails(t, exitFailure, []string{"board not found"}, "board", "show", "cup")
}

func TestRetractManyResults(t *testing.T) {
	s := startInsecure(t)
	file := filepath.Join(t.TempDir(), "keys.ndjson")
	for _, user := range []string{"ada", "bob", "eve"} {
		s.ok(t, "submit", user, "--points", "3", "--match", "m", "--achieved-at", time.Now().UTC().Format(time.RFC3339))
	}
	if err := os.WriteFile(file, []byte(`{"user_id":"ada","match_id":"m"}
{"user_id":"bob","match_id":"m"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	checkContains(t, s.ok(t, "retract-batch", file, "--dry-run"), "ada", "bob", "Results: 2. Entries that would change: 2")
	checkContains(t, s.ok(t, "retract-batch", file), "2 applied")
	if err := os.WriteFile(file, []byte(`{"user_id":"zoe","match_id":"m"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	checkContains(t, s.do(t, "retract-batch", file).stdout, "zoe", "not found", "1 rejected")
	from := time.Now().UTC().Add(-time.Hour).Format(time.RFC3339)
	checkContains(t, s.ok(t, "purge", "eve", "--from", from, "--dry-run"), "eve", "3 points", "Entries that would change: 1")
	checkContains(t, s.ok(t, "purge", "eve", "--from", from), "1 applied")
	checkContains(t, s.ok(t, "purge", "eve", "--from", from, "--json"), `"more":false`)
	s.fails(t, exitFailure, []string{"from", "required"}, "purge", "eve")
	s.fails(t, exitUsage, []string{"--to"}, "purge", "eve", "--to", "yesterday")
}

func TestTopInARangeOfScoresAndOrder(t *testing.T) {
	s := startInsecure(t)
	for user, n := range map[string]string{"ada": "3", "bob": "5", "cyd": "9"} {
		s.ok(t, "submit", user, "--points", n)
	}
	out := s.ok(t, "top", "--min-score", "3", "--max-score", "5")
	checkContains(t, out, "bob", "ada", "2 in this range")
	if strings.Contains(out, "cyd") {
		t.Errorf("top --min-score 3 --max-score 5 prints cyd, but cyd has 9 points:\n%s", out)
	}
	worst := standings(t, s, "--order", "worst")
	if slices.Reverse(worst); !slices.Equal(worst, standings(t, s)) {
		t.Errorf("top --order worst lists, the best first, %q; want %q", worst, standings(t, s))
	}
	checkContains(t, s.ok(t, "rank", "cyd", "--neighbors", "1", "--fill"), "cyd", "bob", "ada")
	s.fails(t, exitFailure, []string{"order: must be best or worst"}, "top", "--order", "upward")
	checkContains(t, s.ok(t, "top", "--min-score", "10"), "no entries in this range", "0 in this range")
	s.fails(t, exitFailure, []string{"min_score"}, "top", "--min-score", "5", "--max-score", "4")
	s.fails(t, exitUsage, []string{"whole numbers"}, "top", "--min-score", "NaN")
	all := standings(t, s)
	if got := standings(t, s, "--around-score", "4", "--limit", "2"); !slices.Equal(got, all[1:]) {
		t.Errorf("top --around-score 4 --limit 2 lists %q, want %q", got, all[1:])
	}
	checkContains(t, s.ok(t, "top", "--around-score", "4"), "this score would have rank 3")
	if got := standings(t, s, "--top-percent", "33.4"); !slices.Equal(got, all[:2]) {
		t.Errorf("top --top-percent 33.4 lists %q, want %q", got, all[:2])
	}
	s.fails(t, exitFailure, []string{"top_percent: must be more than 0"}, "top", "--top-percent", "0")
	s.fails(t, exitFailure, []string{"top_percent: must be more than 0"}, "top", "--top-percent", "NaN")
	checkContains(t, s.ok(t, "rank", "eve", "--allow-missing"), "cyd", "bob", "ada", "eve has no entry, and would have rank 4")
	s.fails(t, exitFailure, []string{"entry not found"}, "rank", "eve")
	s.ok(t, "board", "create", "cup")
	s.ok(t, "submit", "ada", "--board", "cup", "--score", "8", "--match", "m")
	if out := s.ok(t, "user", "ada", "--board", "cup"); !strings.Contains(out, "cup") || strings.Contains(out, "default") {
		t.Errorf("user ada --board cup prints\n%s\nwant the board cup only", out)
	}
	checkContains(t, s.ok(t, "user", "ada", "--board", "cup", "--board", "default"), "cup", "default")
	s.fails(t, exitFailure, []string{"board"}, "user", "ada", "--board", "nowhere")
}

func TestVoidAMatch(t *testing.T) {
	s := startInsecure(t)
	s.ok(t, "board", "create", "arena", "--policy", "sum", "--matches")
	checkContains(t, s.ok(t, "board", "show", "arena"), "can be voided")
	s.ok(t, "submit", "ada", "--board", "arena", "--points", "3", "--match", "m")
	checkContains(t, s.ok(t, "match", "void", "m", "--board", "arena", "--reason", "r", "--dry-run"), "ada", "Match m, season all. Entries that would change: 1")
	checkContains(t, s.ok(t, "match", "void", "m", "--board", "arena", "--reason", "r"), "match m is void (season all)")
	checkContains(t, s.ok(t, "result", "ada", "m", "--board", "arena"), "voided")
	file := filepath.Join(t.TempDir(), "arena.ndjson")
	s.ok(t, "export", "results", "--board", "arena", "--output", file)
	other := startInsecure(t)
	other.ok(t, "board", "create", "arena", "--policy", "sum", "--matches")
	other.ok(t, "import", file, "--board", "arena")
	checkContains(t, other.ok(t, "result", "ada", "m", "--board", "arena"), "voided")
	checkContains(t, other.ok(t, "match", "restore", "m", "--board", "arena", "--reason", "r"), "match m counts")
	checkContains(t, other.ok(t, "rank", "ada", "--board", "arena"), "ada has 3, rank 1 of 1")
	checkContains(t, s.ok(t, "match", "restore", "m", "--board", "arena", "--reason", "r"), "match m counts (season all)")
	s.fails(t, exitFailure, []string{"reason", "required"}, "match", "void", "m", "--board", "arena")
	s.fails(t, exitFailure, []string{"typo", "arena"}, "match", "void", "typo", "--board", "arena", "--reason", "r")
	checkContains(t, s.ok(t, "match", "void", "typo", "--board", "arena", "--reason", "early", "--allow-unknown"), "match typo is void")
	checkContains(t, s.ok(t, "match", "list", "--board", "arena"), "counts", "typo", "void", "early")
	if list := s.ok(t, "match", "list", "--board", "arena", "--prefix", "m"); strings.Contains(list, "typo") || !strings.Contains(list, "m ") {
		t.Errorf("match list --prefix m:\n%s\nwant m only", list)
	}
	checkContains(t, s.ok(t, "match", "list", "--board", "arena", "--prefix", "none"), "no matches")
	checkContains(t, s.ok(t, "match", "list", "--board", "arena", "--limit", "1"), "next page: --page-token")
	checkContains(t, s.ok(t, "match", "show", "m", "--board", "arena"), "match m · season all · counts", "ada", "applied", "3")
	s.fails(t, exitFailure, []string{"none"}, "match", "show", "none", "--board", "arena")
	s.ok(t, "submit", "ada", "--points", "3", "--match", "m")
	checkContains(t, s.ok(t, "board", "update", "default", "--matches"), "can be voided")
}

func TestSubmitBatch(t *testing.T) {
	s := startInsecure(t)
	s.ok(t, "board", "create", "gifts", "--policy", "SUM")
	file := filepath.Join(t.TempDir(), "results.ndjson")
	write := func(lines string) {
		if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"board_id":"gifts","user_id":"ada","match_id":"g","points":5}
{"board_id":"default","user_id":"bob","match_id":"g","points":5}

`)
	checkContains(t, s.ok(t, "submit-batch", file), "2 applied")
	checkContains(t, s.ok(t, "submit-batch", file, "--no-wait"), "2 duplicate")
	if outcomes, _ := parseObject(t, s.ok(t, "submit-batch", file, "--json"))["outcomes"].([]any); len(outcomes) != 2 {
		t.Errorf("submit-batch --json prints %v, want 2 outcomes", outcomes)
	}
	s.ok(t, "board", "update", "gifts", "--attribute", "mode")
	checkContains(t, s.ok(t, "board", "show", "gifts"), "attributes", "mode")
	s.fails(t, exitFailure, []string{"attributes", "track"}, "submit", "ada", "--board", "gifts", "--points", "1", "--attribute", "track=a")
	s.ok(t, "board", "create", "best-gift", "--source", "gifts", "--policy", "BEST")
	checkContains(t, s.ok(t, "submit-batch", file, "--json", "--include-linked"), `"linked":[{"board_id":"best-gift"`)
	checkContains(t, s.ok(t, "submit", "ada", "--board", "gifts", "--match", "g2", "--points", "3", "--include-linked"), "linked best-gift · season all: 5, rank 1")
	checkContains(t, s.ok(t, "correct", "ada", "g2", "--board", "gifts", "--points", "7", "--include-linked"), "linked best-gift · season all: 7, rank 1")
	checkContains(t, s.ok(t, "retract", "ada", "g2", "--board", "gifts", "--include-linked"), "linked best-gift · season all: 5, rank 1")
	write(`{"board_id":"gifts","user_id":"ada","match_id":"g","points":5}
{"board_id":"nowhere","user_id":"bob","match_id":"g","points":5}`)
	r := s.do(t, "submit-batch", file)
	r.mustFail(t, exitFailure, []string{"1 of 2 results"}, []string{"submit-batch"})
	checkContains(t, r.stdout, "no board", "1 duplicate, 1 rejected")
	write("{}\n{\"points\":1.5}")
	s.fails(t, exitFailure, []string{"line 2", "1.5"}, "submit-batch", file)
	write("")
	s.fails(t, exitFailure, []string{"results"}, "submit-batch", file)
	s.fails(t, exitFailure, []string{"no such file"}, "submit-batch", file+"x")
}

func TestTopShowsTimesAndTieBreakers(t *testing.T) {
	s := startInsecure(t)
	s.ok(t, "board", "create", "run", "--policy", "best", "--order", "lower-first", "--unit", "s", "--tie-breaker", "shots", "--division", "gender")
	checkContains(t, s.ok(t, "submit", "ann", "--board", "run", "--score", "7717", "--tie-breakers", "4", "--attribute", "gender=F", "--achieved-at", "2026-04-20"), "ann has 2:08:37")
	s.ok(t, "submit", "bob", "--board", "run", "--score", "7717", "--tie-breakers", "5", "--attribute", "gender=M")
	top := s.ok(t, "top", "--board", "run")
	checkContains(t, top, "TIME", "SHOTS", "2:08:37", "2026-04-20 00:00:00")
	if bob, ann := strings.Index(top, "bob"), strings.Index(top, "ann"); bob < 0 || ann < 0 {
		t.Errorf("bob or ann is missing in:\n%s", top)
	} else if bob > ann {
		t.Errorf("bob ranks below ann, want above, because bob has more shots:\n%s", top)
	}
	checkContains(t, s.ok(t, "top", "--board", "run", "--division", "gender:F"), "gender:F", "1 entry")
	s.fails(t, exitFailure, []string{"division"}, "top", "--board", "run", "--division", "age:7")
	s.ok(t, "board", "create", "crossed", "--policy", "best", "--division", "gender+age")
	for user, attributes := range map[string]string{"ann": "gender=F,age=30-34", "bob": "gender=F,age=35+"} {
		s.ok(t, "submit", user, "--score", "5", "--board", "crossed", "--attribute", attributes)
	}
	checkContains(t, s.ok(t, "top", "--board", "crossed", "--division", "age:35+", "--division", "gender:F"), `gender+age:F+35\+`, "1 entry", "bob")
	checkContains(t, s.ok(t, "export", "entries", "--board", "crossed", "--division", "gender+age:F+30-34"), "ann")
	checkContains(t, s.ok(t, "board", "update", "crossed", "--division", "gender+age", "--division", "age"), "gender+age, age", "filling", "users may be missing in age")
	checkContains(t, s.ok(t, "top", "--board", "crossed", "--division", "gender+age:F+30-34"), "ann")
	s.fails(t, exitFailure, []string{"divisions[1]"}, "board", "update", "crossed", "--division", "age", "--division", "age")
	checkContains(t, s.ok(t, "board", "update", "crossed", "--division", ""), "crossed")
	s.fails(t, exitFailure, []string{"declares no divisions"}, "top", "--board", "crossed", "--division", "age:35+")
	s.ok(t, "board", "update", "crossed", "--division", "gender+age")
	s.fails(t, exitFailure, []string{"gender+age"}, "top", "--board", "crossed", "--division", "gender:F")
	s.fails(t, exitUsage, []string{"attribute:value"}, "top", "--board", "crossed", "--division", "gender:F", "--division", "age")
}

func TestModeration(t *testing.T) {
	s := startInsecure(t)
	s.ok(t, "submit", "ada", "--points", "3", "--match", "m1")
	s.ok(t, "submit", "bob", "--points", "1", "--match", "m1")
	checkContains(t, s.ok(t, "retract", "ada", "m1", "--dry-run"), "nothing changed", "default", "3 points", "applied", "would change: 1")
	checkContains(t, s.ok(t, "retract", "ada", "m1", "--dry-run", "--json"), `"score_before"`)
	checkContains(t, s.ok(t, "correct", "ada", "m1", "--points", "9", "--dry-run"), "nothing changed", "default", "3 points", "9 points", "revision 1", "would change: 1")
	checkContains(t, s.ok(t, "rank", "ada"), "3 points")
	checkContains(t, s.ok(t, "ban", "ada", "--dry-run"), "nothing changed", "default", "appear or disappear: 1, on 1 board\n")
	checkContains(t, s.ok(t, "top"), "ada")
	checkContains(t, s.ok(t, "ban", "ada", "--reason", "speed hack", "--yes"), "ada is banned")
	checkContains(t, s.ok(t, "unban", "ada", "--dry-run", "--json"), `"rank_after"`, `"season_count"`)
	if got := s.ok(t, "top"); strings.Contains(got, "ada") {
		t.Errorf("top shows the banned user ada, want her hidden:\n%s", got)
	}
	checkContains(t, s.ok(t, "user", "ada"), "ada is banned")
	checkContains(t, s.ok(t, "unban", "ada"), "the ban of ada on every board is not in force")
	checkContains(t, s.ok(t, "rank", "ada"), "rank 1 of 2")
	checkContains(t, s.ok(t, "ban", "ada", "--board", "default", "--reason", "aimbot", "--until", "2h"), "ada is banned on board default until 20")
	checkContains(t, s.ok(t, "submit", "ada", "--points", "3", "--match", "m2"), "ada is banned on this board")
	checkContains(t, s.ok(t, "ban", "list", "--board", "default"), "ada", "aimbot")
	checkContains(t, s.ok(t, "ban", "search", "AD", "--json"), `"reason"`, "aimbot")
	if got := s.ok(t, "ban", "search", "bob"); strings.Contains(got, "ada") {
		t.Errorf("ban search bob lists a ban of ada, want only bans of users with bob in the id:\n%s", got)
	}
	checkContains(t, s.ok(t, "user", "ada"), "ada is banned on board default")
	checkContains(t, s.ok(t, "unban", "ada", "--board", "default"), "the ban of ada on board default is not in force")
	checkContains(t, s.ok(t, "ban", "list", "--all"), "lifted")
	checkContains(t, s.ok(t, "rank", "ada"), "rank 1 of 2")
	for until, code := range map[string]int{"tomorrow": exitUsage, "-1h": exitUsage, "2020-01-01T00:00:00Z": exitFailure} {
		s.fails(t, code, []string{"until"}, "ban", "ada", "--yes", "--until", until)
	}
	s.fails(t, exitUsage, []string{"Ban user ada on every board?", "--board", "--yes"}, "ban", "ada")
	s.ok(t, "ban", "ada", "--board", "default")
	for _, args := range [][]string{{"unban", "ada"}, {"unban", "ada", "--json"}} {
		if r := s.do(t, args...); r.code != exitOK || !strings.Contains(r.stderr, "ada is still banned on board default; to lift this ban, use --board default") {
			t.Errorf("%v of a user who is banned on a board exits with %d and writes %q to stderr, want it to name the board", args, r.code, r.stderr)
		}
	}
	s.ok(t, "ban", "ada", "--yes")
	if r := s.do(t, "unban", "ada", "--board", "default"); !strings.Contains(r.stderr, "ada is still banned on every board; to lift this ban, omit --board") {
		t.Errorf("unban on a board of a user who is banned on every board writes %q to stderr, want it to name the other ban", r.stderr)
	}
	if r := s.do(t, "unban", "ada"); r.stderr != "" {
		t.Errorf("the last unban writes %q to stderr, want nothing", r.stderr)
	}
	checkContains(t, s.ok(t, "audit", "--user", "ada"), "unban", "aimbot")
	checkContains(t, s.ok(t, "erase", "ada", "--yes"), "ada is erased")
	audit := s.ok(t, "audit")
	checkContains(t, audit, "user.erase", "(erased)", "ban")
	if strings.Contains(audit, "aimbot") || strings.Contains(s.ok(t, "audit", "--json"), "ada") {
		t.Errorf("the audit log contains the id of the erased user ada or the reason of the ban, want neither:\n%s", audit)
	}
	s.fails(t, exitFailure, []string{"entry not found"}, "rank", "ada")
}

func TestAuditAndHistory(t *testing.T) {
	s := startInsecure(t)
	s.ok(t, "submit", "ada", "--points", "3", "--match", "m")
	s.ok(t, "submit", "bob", "--points", "4", "--match", "m")
	s.ok(t, "correct", "ada", "m", "--points", "5", "--reason", "wrong lane")
	s.ok(t, "retract", "ada", "m")
	history := s.ok(t, "result", "ada", "m", "--history")
	checkContains(t, history, "result.correct", "wrong lane", "3 (rank 2)", "5 (rank 1)", "result.retract", "retracted")
	if retraction, correction := strings.Index(history, "result.retract"), strings.Index(history, "result.correct"); retraction > correction {
		t.Errorf("result --history lists the correction first, want the newest change first:\n%s", history)
	}
	checkContains(t, s.ok(t, "result", "bob", "m", "--history"), "no changes on the record")
	for _, args := range [][]string{{"--since", "1h"}, {"--since", "2020-01-01", "--until", "2099-01-01T00:00:00Z"}, {"--user", "ada"}} {
		audit := s.ok(t, append([]string{"audit"}, args...)...)
		checkContains(t, audit, "result.correct", "result.retract", "ada")
		if n := strings.Count(audit, "result.correct"); n != 1 || strings.Contains(audit, "unknown") {
			t.Errorf("audit %q has the correction %d times, want once with its outcome:\n%s", args, n, audit)
		}
	}
	for _, args := range [][]string{{"--until", "1h"}, {"--until", "2020-01-01"}, {"--since", "2099-01-01"}} {
		if audit := s.ok(t, append([]string{"audit"}, args...)...); strings.Contains(audit, "ada") {
			t.Errorf("audit %q lists acts of now, want none:\n%s", args, audit)
		}
	}
	for _, flag := range []string{"--since", "--until"} {
		s.fails(t, exitUsage, []string{flag, "yesterday", "24h"}, "audit", flag, "yesterday")
	}
}

func TestVerifyRebuildAndBackup(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	s := startServer(t, data, nil, "--insecure")
	for _, user := range []string{"ada", "bob", "eve"} {
		s.ok(t, "submit", user, "--points", "3", "--match", "m1")
	}
	checkContains(t, s.ok(t, "verify"), "compared 3 entries in 1 season with 3 results: 0 differences, 0 repaired")
	checkContains(t, s.ok(t, "verify", "--board", "default", "--repair", "--json"), `"summary"`)
	checkContains(t, s.ok(t, "rebuild"), "rebuilt 3 entries")
	s.fails(t, exitFailure, []string{"board not found"}, "verify", "--board", "nope")
	before := standings(t, s)
	checkContains(t, s.ok(t, "backup", "first"), "backup first is complete")
	s.fails(t, exitFailure, []string{"exists", "choose another name"}, "backup", "first")
	s.fails(t, exitFailure, []string{"name"}, "backup", "../first")
	checkContains(t, s.ok(t, "backup"), "is complete")
	s.ok(t, "submit", "bob", "--points", "9", "--match", "m2")
	if code := s.stop(); code != exitOK {
		t.Fatalf("serve exited with %d, want 0: %s", code, s.stderr)
	}

	restored := startServer(t, filepath.Join(data, "backups", "first"), nil, "--insecure")
	if diff := cmp.Diff(before, standings(t, restored)); diff != "" {
		t.Errorf("a server on the backup has other entries than the first server had at the backup (-want +got):\n%s", diff)
	}
}

func TestKeys(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	s := startServer(t, data, nil)
	key := keyIn(t, s, filepath.Join(data, "admin-key"))
	runWithKey := func(key string, args ...string) commandResult {
		return command(t, "", []string{"LEADERBOARD_SERVER=" + s.grpc, "LEADERBOARD_KEY=" + key}, args...)
	}
	if r := runWithKey(key, "submit", "ada", "--points", "1"); r.code != exitOK {
		t.Errorf("submit with the first admin key: %s, want success", r.stderr)
	}
	runWithKey("", "top").mustFail(t, exitFailure, []string{"valid key", "LEADERBOARD_KEY"}, []string{"top"})
	runWithKey("lbk_wrong", "top").mustFail(t, exitFailure, []string{"valid key"}, []string{"top"})

	reader := runWithKey(key, "key", "create", "--name", "site", "--scope", "read", "--expires-in", "1h")
	readKey := strings.TrimSpace(reader.stdout)
	if reader.code != exitOK || len(strings.Fields(readKey)) != 1 {
		t.Fatalf("key create = %+v, want the key alone on stdout", reader)
	}
	checkContains(t, reader.stderr, "scope read", "not shown again")
	if r := runWithKey(readKey, "top"); r.code != exitOK {
		t.Errorf("top with the read key: %s, want success", r.stderr)
	}
	runWithKey(readKey, "submit", "ada", "--points", "1").mustFail(t, exitFailure, []string{"submit scope is required", "key create --scope"}, []string{"submit"})
	runWithKey(key, "key", "create", "--name", "x", "--scope", "write").mustFail(t, exitFailure, []string{"read, submit and admin"}, []string{"key", "create"})

	list := runWithKey(key, "key", "list")
	checkContains(t, list.stdout, "site", "first admin key", "never")
	var id string
	for line := range strings.Lines(list.stdout) {
		if strings.Contains(line, "site") {
			id = strings.Fields(line)[0]
		}
	}
	if r := runWithKey(key, "key", "revoke", id); r.code != exitOK {
		t.Errorf("key revoke: %s, want success", r.stderr)
	}
	runWithKey(readKey, "top").mustFail(t, exitFailure, []string{"valid key"}, []string{"top"})
	runWithKey(key, "key", "revoke", id).mustFail(t, exitFailure, []string{"api key not found", "key list"}, []string{"key", "revoke"})
	s.stop()

	if err := os.Remove(filepath.Join(data, "admin-key")); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(s.stderr.String(), key) || strings.Contains(s.stderr.String(), readKey) {
		t.Error("the log contains a key, want none")
	}
	for _, secret := range []string{key, readKey} {
		if path := findFileWith(t, data, secret); path != "" {
			t.Errorf("%s contains a key, want no key in the data folder", path)
		}
	}
	const chosen = "an-admin-key-of-my-own"
	second := startServer(t, data, []string{"LEADERBOARD_ADMIN_KEY=" + chosen})
	if out := second.stdout.String(); strings.Contains(out, "LEADERBOARD_KEY") {
		t.Errorf("the second start prints %s, want no key", out)
	}
	for _, k := range []string{key, chosen} {
		if r := command(t, "", []string{"LEADERBOARD_SERVER=" + second.grpc, "LEADERBOARD_KEY=" + k}, "key", "list"); r.code != exitOK {
			t.Errorf("key list after the second start: %s, want success with both keys", r.stderr)
		}
	}
	second.stop()
	if strings.Contains(second.stderr.String(), chosen) || findFileWith(t, data, chosen) != "" {
		t.Error("the log or the data folder contains the configured key, want neither")
	}
}

func findFileWith(t *testing.T, dir, text string) string {
	t.Helper()
	found := ""
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if strings.Contains(string(data), text) {
			found = path
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func hasRow(text string, fields ...string) bool {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) >= len(fields) && slices.Equal(f[:len(fields)], fields) {
			return true
		}
	}
	return false
}

func TestWatchShowsChangesAndReconnects(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	s := startServer(t, data, nil, "--insecure")
	s.ok(t, "submit", "ada", "--points", "3", "--match", "m1")
	ctx, cancel := context.WithCancel(t.Context())
	watch := func(args ...string) (*output, chan int) {
		out, done := &output{}, make(chan int, 1)
		go func() {
			done <- run(ctx, &cli.App{Stdin: strings.NewReader(""), Stdout: out, Stderr: out, Environ: []string{"LEADERBOARD_SERVER=" + s.grpc}}, append([]string{"watch"}, args...))
		}()
		return out, done
	}
	tables, tablesDone := watch()
	lines, linesDone := watch("--json", "--limit", "1")
	rows, rowsDone := watch("-o", "csv")
	eventually(t, "the running watch commands show ada", func() bool {
		return strings.Contains(tables.String(), "ada") && strings.Contains(lines.String(), `"user_id":"ada"`) && strings.Contains(rows.String(), "\n1,20")
	})
	s.ok(t, "submit", "bob", "--points", "5", "--match", "m1")
	eventually(t, "bob overtakes ada", func() bool {
		return hasRow(tables.String(), "★", "1", "bob") && hasRow(tables.String(), "▼1", "2", "ada") && strings.Contains(lines.String(), `"user_id":"bob"`) && strings.Contains(rows.String(), ",bob,")
	})
	table, err := csv.NewReader(strings.NewReader(rows.String())).ReadAll()
	if users := columnOf(table, "user_id"); err != nil || !slices.Equal(users, []string{"ada", "bob", "ada"}) || !slices.Equal(columnOf(table, "change"), []string{"1", "2", "2"}) {
		t.Errorf("the CSV of two changes, error %v, is %q; want ada, and then bob and ada", err, table)
	}
	for line := range strings.Lines(lines.String()) {
		parseObject(t, line)
	}

	s.stop()
	eventually(t, "the lost connection is reported", func() bool { return strings.Contains(tables.String(), "connection lost, reconnecting") })
	old := s.grpc
	s = startServer(t, data, nil, "--insecure", "--grpc", old)
	s.ok(t, "submit", "eve", "--points", "50", "--match", "m1")
	eventually(t, "eve is shown after the restart", func() bool {
		return strings.Contains(tables.String(), "eve") && strings.Contains(lines.String(), `"user_id":"eve"`)
	})
	cancel()
	for _, done := range []chan int{tablesDone, linesDone, rowsDone} {
		if code := <-done; code != exitOK {
			t.Errorf("an interrupted watch command exited with %d, want 0", code)
		}
	}
	s.fails(t, exitFailure, []string{"board not found"}, "watch", "--board", "nope")
}

func TestExportEntries(t *testing.T) {
	s := startInsecure(t)
	s.ok(t, "board", "create", "cup", "--policy", "sum", "--tie-breaker", "wins", "--division", "team")
	for i, user := range []string{"ann", "bob", `c"d,e`} {
		s.ok(t, "submit", user, "--board", "cup", "--points", []string{"5", "5", "2"}[i], "--tie-breakers", []string{"1", "2", "0"}[i],
			"--match", "m1", "--attribute", "team=red", "--achieved-at", "2026-01-02T03:04:05Z")
	}
	got := s.ok(t, "export", "entries", "--board", "cup", "--format", "csv")
	want := `rank,user_id,score,tie_breakers.wins,achieved_at,match_id,divisions
1,bob,5,2,2026-01-02T03:04:05Z,m1,"[""team:red""]"
2,ann,5,1,2026-01-02T03:04:05Z,m1,"[""team:red""]"
3,"c""d,e",2,0,2026-01-02T03:04:05Z,m1,"[""team:red""]"
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("export entries prints another text than expected (-want +got):\n%s", diff)
	}
	path := filepath.Join(t.TempDir(), "out.ndjson.gz")
	s.ok(t, "export", "entries", "--board", "cup", "-o", path)
	if files, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); err != nil || !slices.Equal(files, []string{path}) {
		t.Errorf("files after the export: %v, %v; want only %s", files, err, path)
	}
	s.fails(t, exitFailure, []string{"board not found"}, "export", "results", "--board", "nope")
	s.fails(t, exitFailure, []string{"no such file or directory"}, "export", "entries", "-o", "/no/such/dir/x")
}

func TestStatsAndFriends(t *testing.T) {
	s := startInsecure(t)
	s.ok(t, "board", "create", "run", "--policy", "best", "--order", "lower-first", "--unit", "s", "--division", "gender")
	checkContains(t, s.ok(t, "stats", "--board", "run"), "no entries yet")
	for i, user := range []string{"ada", "bob", "cyd", "dan"} {
		s.ok(t, "submit", user, "--board", "run", "--score", strconv.Itoa(7000+100*i), "--attribute", "gender=F")
	}
	friends := s.ok(t, "friends", "dan", "bob", "zed", "--board", "run")
	checkContains(t, friends, "1     2  bob   1:58:20", "2     4  dan   2:01:40", "without an entry: zed", "4 entries")
	checkContains(t, s.ok(t, "friends", "zed", "--board", "run"), "without an entry: zed")
	stats := s.ok(t, "stats", "--board", "run", "--rank", "3", "--score", "7150", "--buckets", "2", "--division", "gender:F")
	checkContains(t, stats, "best", "1:56:40", "worst", "2:01:40", "not worse than 50 %", "█", "position 3 has 2:00:00", "1:59:10 would have rank 3", "gender:F")
	checkContains(t, s.ok(t, "stats", "--board", "run", "--rank", "9"), "no entry is at position 9")
	if answer := parseObject(t, s.ok(t, "stats", "--board", "run", "--json")); answer["status"] != "success" {
		t.Errorf("stats --json prints %v, want the status success", answer)
	}
	s.fails(t, exitUsage, []string{"USER is missing"}, "friends")
	checkContains(t, s.ok(t, "rank", "dan", "--board", "run", "--to-rank", "2"), "dan has 2:01:40, rank 4", "rank 2 needs 1:58:20, better by ", "3:20")
	nobody := s.ok(t, "rank", "zed", "--board", "run", "--to-rank", "2")
	checkContains(t, nobody, "zed has no entry\n", "rank 2 needs 1:58:20")
	if strings.Contains(nobody, "better by") {
		t.Errorf("rank of a user without an entry in a race prints a gap, want none:\n%s", nobody)
	}
	checkContains(t, s.ok(t, "rank", "zed", "--board", "run", "--to-rank", "9"), "any score has rank 9 or better")
	s.fails(t, exitFailure, []string{"entry not found"}, "rank", "zed", "--board", "run")
	s.fails(t, exitFailure, []string{"to_rank"}, "rank", "dan", "--board", "run", "--to-rank", "0")
}

// Equal scores with different ranks are shown with the digits that differ.
func TestTopShowsExactScoresThatDiffer(t *testing.T) {
	s := startInsecure(t)
	s.ok(t, "board", "create", "trend", "--policy", "decay", "--half-life", "87600h")
	at := time.Now().UTC().Add(-time.Hour)
	submit := func(user string, points int, at time.Time) {
		s.ok(t, "submit", user, "--board", "trend", "--points", strconv.Itoa(points), "--achieved-at", at.Format(time.RFC3339Nano))
	}
	submit("ada", 500, at)
	submit("eve", 900, at)
	if out := s.ok(t, "top", "--board", "trend"); strings.Contains(out, "exact") {
		t.Errorf("top shows exact scores although all shown scores differ:\n%s", out)
	}
	submit("bob", 500, at.Add(time.Second))
	out := s.ok(t, "top", "--board", "trend")
	rows := regexp.MustCompile(`(?m)^.*(bob|ada)\s+500\s+(49\d\.\d+)\s`).FindAllStringSubmatch(out, -1)
	if len(rows) != 2 || rows[0][1] != "bob" || rows[0][2] <= rows[1][2] || len(rows[0][2]) > 14 {
		t.Errorf("top prints the exact scores %q, want those of bob and ada, with few digits that differ:\n%s", rows, out)
	}
}

func TestHelpOnDivisions(t *testing.T) {
	for command, want := range map[string]string{
		"board create": "ranks users, not results", "board update": "ranks users, not results", "top": "latest result with this attribute", "submit": "latest attribute",
	} {
		s := startInsecure(t)
		checkContains(t, strings.Join(strings.Fields(s.ok(t, append(strings.Fields(command), "--help")...)), " "), want)
	}
}

func TestCompletionOffersValuesFromTheServer(t *testing.T) {
	s := startInsecure(t)
	s.ok(t, "board", "create", "run", "--policy", "best", "--division", "gender", "--title", "City run",
		"--season", "explicit", "--window", "2025=2025-01-01/2026-01-01", "--grace", "100000h", "--matches")
	s.ok(t, "submit", "ada", "--board", "run", "--score", "2", "--attribute", "gender=F", "--achieved-at", "2025-05-01", "--match", "final")
	s.ok(t, "submit", "cyd", "--board", "run", "--score", "1", "--achieved-at", "2025-05-01", "--match", "final")
	s.ok(t, "submit", "$(touch x)", "--board", "run", "--score", "1", "--achieved-at", "2025-05-01", "--match", ";touch x")
	s.ok(t, "ban", "mallory", "--yes", "--reason", "aimbot")
	s.ok(t, "key", "create", "--name", "site", "--scope", "read")
	keyID := strings.TrimSpace(s.ok(t, "key", "list", "--jq", ".keys[] | select(.name == \"site\") | .key_id"))
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{[]string{"top", "--board", ""}, []string{"default\tLeaderboard", "run\tCity run"}},
		{[]string{"top", "--board", "r"}, []string{"run\tCity run"}},
		{[]string{"top", "-b", "run", "--season", ""}, []string{"2025\t", "latest\t"}},
		{[]string{"top", "-b", "run", "-s", "latest", "--division", ""}, []string{"gender:F"}},
		{[]string{"stats", "--method", ""}, []string{"competition\t", "dense\t", "ordinal\t"}},
		{[]string{"board", "show", ""}, []string{"default\t", "run\t"}},
		{[]string{"export", ""}, []string{"entries", "results"}},
		{[]string{"verify", "--board", "r"}, []string{"run\t"}},
		{[]string{"rank", ""}, nil}, // the default board has no entries
		{[]string{"rank", "-b", "run", "-s", "2025", ""}, []string{"ada\trank 1", "cyd\trank 2"}}, // and not $(touch x)
		{[]string{"friends", "-b", "run", "-s", "2025", "ada", ""}, []string{"cyd\trank 2"}},
		{[]string{"rank", "-b", "run", "-s", "2025", "ada", ""}, nil},
		{[]string{"audit", "--user", ""}, nil},
		{[]string{"result", "-b", "run", "ada", ""}, []string{"final\t2025, applied"}},
		{[]string{"retract", "-b", "run", "ada", "x"}, nil},
		{[]string{"match", "show", "-b", "run", "-s", "2025", "f"}, []string{"final\tcounts"}},
		{[]string{"season", "show", "-b", "run", "20"}, []string{"2025\t"}},
		{[]string{"unban", ""}, []string{"mallory\taimbot"}},
		{[]string{"key", "revoke", ""}, []string{keyID + "\tsite"}},
		{[]string{"board", "clone", "r"}, []string{"run\t"}},
		{[]string{"board", "clone", "run", ""}, nil},
		{[]string{"top", "--output", ""}, []string{"table", "json", "csv", "yaml"}},
		{[]string{"top", "-o", "c"}, []string{"csv"}},
		{[]string{"board", "create", "--policy", ""}, []string{"best", "sum", "latest", "decay", "count", "first", "average", "best-k"}},
		{[]string{"board", "create", "--order", "h"}, []string{"higher-first"}},
		{[]string{"board", "create", "--season", "m"}, []string{"monthly"}},
		{[]string{"key", "create", "--scope", "read,s"}, []string{"read,submit"}},
		{[]string{"import", "--format", ""}, []string{"csv", "ndjson"}},
		{[]string{"export", "--format", "n"}, []string{"ndjson"}},
		{[]string{"serve", "--log-level", ""}, []string{"debug", "info", "warn", "error"}},
		{[]string{"serve", "--roles", ""}, []string{"api", "consumer"}},
		{[]string{"serve", "--jwt-algorithm", "Ed"}, []string{"EdDSA"}},
		{[]string{"topics", "--kafka-mechanism", "P"}, []string{"PLAIN"}},
	} {
		lines := strings.Split(strings.TrimSpace(s.ok(t, append([]string{"__complete"}, tt.args...)...)), "\n")
		lines = lines[:len(lines)-1] // the last line is a directive for the shell
		if len(lines) != len(tt.want) {
			t.Errorf("%q completes to %q, want %q", tt.args, lines, tt.want)
			continue
		}
		for i, want := range tt.want {
			if !strings.HasPrefix(lines[i], want) {
				t.Errorf("%q completes to %q, want %q", tt.args, lines, tt.want)
			}
		}
	}
	// Shells would interpret parts of these ids.
	hostile := []string{
		"`touch x`aa1", "$(touch x)", "a;b", "a b", "a|b", "a&b", "a>b", "a<b", "a'b", `a"b`, `a\\b`, "a*b", "a?b", "a[b]", "a{b,c}", "a!b", "#a", "a#b", "~a", "=a", "-a", "--insecure",
		"%a", "@a", "^a", "a,b", "(a)", "a=b", "a\u2019b", "a\u201db", "a\u2013b", "+a", ":4", "/a", ".a",
	}
	harmless := []string{"aa-1", "cup_2026", "a.b", "a/b", "a:b", "a+b", "名前", "émile", "👩\u200d🚀", "7"}
	for _, id := range append(hostile, harmless...) {
		s.ok(t, "board", "create", "--policy", "best", "--title", "$(touch x)", "--", id)
	}
	var completed []string
	for line := range strings.Lines(s.ok(t, "__complete", "board", "show", "")) {
		if id, title, _ := strings.Cut(line, "\t"); strings.Contains(title, "touch") {
			completed = append(completed, id)
		}
	}
	slices.Sort(harmless)
	slices.Sort(completed)
	if !slices.Equal(completed, harmless) {
		t.Errorf("completion offers %q, want %q", completed, harmless)
	}
	r := command(t, "", []string{"LEADERBOARD_SERVER=127.0.0.1:1"}, "__complete", "top", "--board", "")
	if r.code != exitOK || strings.Contains(r.stdout, "run") {
		t.Errorf("completion without a server: exit code %d, output %s%s; want 0 and no boards", r.code, r.stdout, r.stderr)
	}
}

func TestExportTakesTheFormatFromTheNameOfTheFile(t *testing.T) {
	s := startInsecure(t)
	s.ok(t, "submit", "ada", "--points", "3", "--match", "m")
	for name, want := range map[string]string{"x.csv": "rank,user_id", "X.CSV": "rank,user_id", "x.ndjson": "{", "x": "{"} {
		file := filepath.Join(t.TempDir(), name)
		s.ok(t, "export", "entries", "-o", file)
		if b, err := os.ReadFile(file); err != nil || !strings.HasPrefix(string(b), want) {
			t.Errorf("export -o %s wrote %q, %v; want %q", name, b, err, want)
		}
	}
}

func TestExportDefusesFormulas(t *testing.T) {
	s := startInsecure(t)
	s.ok(t, "board", "create", "b", "--policy", "best")
	s.ok(t, "submit", "=HYPERLINK(0)", "--board", "b", "--score", "-5", "--match", "@m")
	for i, id := range []string{"+1+1", "-1+cmd", " =x", "\uff1dx"} {
		s.ok(t, "submit", "--board", "b", "--score", fmt.Sprint(i), "--match", "m", "--", id)
	}
	if got := s.ok(t, "export", "results", "--board", "b", "--format", "csv"); !strings.Contains(got, "\n=HYPERLINK(0),@m,-5,") {
		t.Errorf("the export without --defuse-formulas prints this, want the user id and the match id unchanged:\n%s", got)
	}
	for _, kind := range []string{"results", "entries"} {
		got := s.ok(t, "export", kind, "--board", "b", "--format", "csv", "--defuse-formulas")
		for _, want := range []string{"'=HYPERLINK(0),", ",'@m,", ",-5,", "'+1+1,", "'-1+cmd,", "' =x,", "'\uff1dx,"} {
			if !strings.Contains(got, want) {
				t.Errorf("export %s --defuse-formulas does not contain %q:\n%s", kind, want, got)
			}
		}
	}
	s.fails(t, exitUsage, []string{"--defuse-formulas", "--format csv"}, "export", "entries", "--board", "b", "--defuse-formulas")
	checkContains(t, s.ok(t, "export", "--help"), "--defuse-formulas", "formula")
}
