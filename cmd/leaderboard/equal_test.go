package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

// fillAndPass fills the linked boards and the divisions, and moves the clock forward by d.
func (s *clockedServer) fillAndPass(t *testing.T, d time.Duration) {
	t.Helper()
	for range 2 { // s.pass opens new windows of rolling boards, and the second round fills these windows
		if err := errors.Join(s.FillLinked(t.Context()), s.FillDivisions(t.Context())); err != nil {
			t.Fatal(err)
		}
		s.pass(t, d/2)
	}
}

func rulesOf(t *testing.T, s *clockedServer, board string) map[string]any {
	t.Helper()
	b := parseObject(t, s.ok(t, "board", "show", board, "--json"))
	delete(b, "created_at")
	return b
}

func textsOf(t *testing.T, s *clockedServer, board string) map[string]string {
	t.Helper()
	b, err := s.Board(t.Context(), leaderboard.BoardID(board))
	if err != nil {
		t.Fatal(err)
	}
	text := map[string]string{}
	for _, x := range parseObject(t, s.ok(t, "season", "list", "--board", board, "--json"))["data"].(map[string]any)["seasons"].([]any) {
		season := x.(map[string]any)
		id := season["id"].(string)
		text[id] = fmt.Sprint(season["end"], season["status"], season["ended_at"], season["entrants"])
		if season["status"] == "sealed" {
			if text[id+" checksum"], err = s.Checksum(t.Context(), &b, leaderboard.SeasonID(id)); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{"", "gender:F", "gender:M", "age:30", "gender+age:F+30", "gender+age:M+40", "club:c1", "team:t1"} {
			division, err := leaderboard.ParseDivision(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, method := range []leaderboard.Method{leaderboard.Dense, leaderboard.Ordinal} {
				page, err := s.Page(t.Context(), ranking.PageQuery{
					Query: ranking.Query{Board: b.ID, Season: leaderboard.SeasonID(id), Division: division, Method: method}, Limit: 1000,
				})
				if errors.Is(err, leaderboard.ErrInvalid) {
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				var lines strings.Builder
				for _, l := range page.Lines {
					fmt.Fprintln(&lines, l.User, l.Score, l.TieBreakers, l.Rank, l.AchievedAt)
				}
				text[fmt.Sprint(id, " ", name, " ", method)] = lines.String()
			}
		}
	}
	return text
}

// fillServer creates a source with linked boards, and makes each kind of change that an export can
// contain.
func fillServer(t *testing.T, s *clockedServer, rng *rand.Rand, now time.Time) {
	for _, board := range [][]string{
		{"laps", "--policy", "sum", "--matches", "--tie-breaker", "wins", "--season", "monthly", "--division", "gender", "--division", "age", "--division", "gender+age", "--division", "club"},
		{"best", "--source", "laps", "--match", "mode=ranked", "--season", "yearly", "--tie-breaker", "wins", "--division", "gender"},
		{"ever", "--source", "laps", "--policy", "latest"},
		{"week", "--source", "laps", "--policy", "sum", "--season", "rolling", "--days", "3", "--retention", "240h", "--division", "team"},
		{"gone", "--source", "laps", "--match", "track=a"},
	} {
		s.ok(t, append([]string{"board", "create"}, board...)...)
	}
	var rows strings.Builder
	for i := range 200 {
		fmt.Fprintf(&rows, `{"user_id":"u%d","match_id":"m%d","points":%d,"tie_breakers":[%d],"achieved_at":%q,"attributes":{"gender":%q,"age":%q,"club":"c%d","team":"t%d","track":"a","mode":%q}}`+"\n",
			i%12, i/5, rng.IntN(50), rng.IntN(3), now.Add(-time.Duration(i/5)*4*time.Hour-time.Duration(i%5)*time.Second).Format(time.RFC3339),
			[]string{"F", "M"}[rng.IntN(2)], []string{"30", "40"}[rng.IntN(2)], rng.IntN(2), rng.IntN(2), []string{"ranked", "casual"}[rng.IntN(2)])
	}
	s.ok(t, "import", writeFile(t, "rows.ndjson", rows.String()), "--board", "laps")
	s.ok(t, "correct", "u0", "m0", "--board", "laps", "--points", "49")
	s.ok(t, "correct", "u1", "m0", "--board", "laps", "--attribute", "mode=")
	s.ok(t, "retract", "u2", "m0", "--board", "laps")
	for _, match := range []string{"m1", "m2", "m3", "m35"} {
		s.ok(t, "match", "void", match, "--board", "laps", "--reason", "wrong map")
	}
	s.ok(t, "match", "restore", "m3", "--board", "laps", "--reason", "it was right")
	for board, end := range map[string]leaderboard.EarlyEnd{
		"laps": {ID: "202611", At: now.Add(-10 * time.Hour)}, "best": {ID: "2026", At: now.Add(-5 * 24 * time.Hour)},
	} {
		if got, err := s.EndSeason(t.Context(), leaderboard.BoardID(board), end); err != nil || got.Results == 0 {
			t.Fatalf("EndSeason of %s: %+v, error %v; want at least one result that stops counting", board, got, err)
		}
	}
	s.ok(t, "board", "update", "laps", "--division", "gender", "--division", "age", "--division", "gender+age")
	s.ok(t, "board", "update", "week", "--division", "gender")
	s.ok(t, "board", "delete", "gone", "--yes")
	s.ok(t, "ban", "u3", "--board", "laps", "--reason", "aimbot")
	s.ok(t, "ban", "u4", "--board", "week")
	s.ok(t, "ban", "u5", "--reason", "smurf", "--yes")
	s.ok(t, "ban", "u6", "--yes")
	s.ok(t, "unban", "u6")
	s.fillAndPass(t, 72*time.Hour)
	b, err := s.Board(t.Context(), "laps")
	if err != nil {
		t.Fatal(err)
	}
	score := leaderboard.Score(99)
	key := leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Board: "laps", Season: "202610"}, User: "u10", Match: "m38"}
	if _, got, err := s.Correct(t.Context(), &b, key, ranking.Correction{Score: &score, Amends: true}); err != nil || got.Status != leaderboard.Applied {
		t.Fatalf("a correction in a sealed season: %+v, error %v; want status APPLIED", got, err)
	}
	s.pass(t, time.Minute)
}

// exportOf returns the export of a board without the results of its source. Equal servers may store
// different results of the source: after a correction, a linked board may still store a result that
// no longer counts on it.
func exportOf(t *testing.T, s *clockedServer, board string) []string {
	t.Helper()
	lines := strings.Split(sortLines(s.ok(t, "export", "results", "--board", board)), "\n")
	return slices.DeleteFunc(lines, func(line string) bool { return strings.Contains(line, `"source":"laps"`) })
}

// receiptTime is the time at which a server received a profile.
var receiptTime = regexp.MustCompile(`,"updated_at":"[^"]*"`)

// compareServers compares the boards of two servers after some days, in which the seasons are sealed.
func compareServers(t *testing.T, source, target *clockedServer, boards []string) {
	t.Helper()
	source.fillAndPass(t, 72*time.Hour)
	target.fillAndPass(t, 72*time.Hour)
	for _, board := range boards {
		if diff := cmp.Diff(rulesOf(t, source, board), rulesOf(t, target, board)); diff != "" {
			t.Errorf("the settings of board %s differ (-source +target):\n%s", board, diff)
		}
		want, got := textsOf(t, source, board), textsOf(t, target, board)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the seasons or ladders of %s differ (-source +target):\n%s", board, diff)
		}
		if len(want) < 3 {
			t.Errorf("%s has only %d seasons and ladders to compare, want at least 3: %v", board, len(want), want)
		}
		withoutReceipt := func(s *clockedServer) (lines []string) {
			for _, line := range exportOf(t, s, board) {
				lines = append(lines, receiptTime.ReplaceAllString(line, ""))
			}
			return lines
		}
		if diff := cmp.Diff(withoutReceipt(source), withoutReceipt(target)); diff != "" {
			t.Errorf("the exports of %s differ (-source +target):\n%s", board, diff)
		}
	}
	checkContains(t, target.ok(t, "verify"), " 0 differences")
}

func TestExportsOfEveryBoardGiveAnEqualServer(t *testing.T) {
	n := seed.New(t)
	now := time.Date(2026, 11, 5, 10, 0, 0, 0, time.UTC)
	source := startClocked(t, now)
	fillServer(t, source, rand.New(rand.NewPCG(n, 0)), now)
	target := startClocked(t, *source.clock.Load())
	boards := []string{"laps", "best", "ever", "week"}
	files := map[string]string{}
	for _, board := range boards {
		target.ok(t, "board", "create", "-f", writeFile(t, board+".json", source.ok(t, "board", "show", board, "--json")))
		files[board] = filepath.Join(t.TempDir(), board+".ndjson")
		source.ok(t, "export", "results", "--board", board, "-o", files[board])
	}
	for _, board := range boards {
		for range 2 { // a repetition changes nothing
			c := importSummary(t, target.do(t, "import", files[board], "--board", board, "--json"))
			if c.Rejected+c.Conflict > 0 || (c.Linked > 0) != (board != "laps") || board != "laps" && c.Applied == c.Rows {
				t.Errorf("import of %s: %+v; want no rejected or conflicting row; on linked boards only, want the rows of the source skipped", board, c)
			}
		}
	}
	compareServers(t, source, target, boards)

	exported := source.do(t, "export", "results", "--board", "laps", "-o", filepath.Join(t.TempDir(), "laps.csv"))
	checkContains(t, exported.stderr, "this file lacks 3 void matches and 1 early end", "export NDJSON")
}
