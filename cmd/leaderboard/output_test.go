package main

import (
	"encoding/csv"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
)

// Each format has the values of the JSON.
func TestFormatsAgree(t *testing.T) {
	s := startInsecure(t)
	s.ok(t, "board", "create", "cup", "--policy", "sum", "--tie-breaker", "wins", "--matches")
	s.ok(t, "submit", "=1+1", "--board", "cup", "--points", "3", "--match", "m", "--tie-breakers", "2", "--achieved-at", "2026-01-02")
	s.ok(t, "submit", "no", "--board", "cup", "--points", "5", "--match", "m")
	s.ok(t, "ban", "mallory", "--yes", "--reason", "aimbot")
	for _, tt := range []struct {
		args, rows string // rows is the path of the list that CSV has
		want       map[string]string
	}{
		{"top -b cup", "data.leaderboard", map[string]string{"user_id": "no,'=1+1", "score": "5,3", "tie_breakers": "[0],[2]"}},
		{"friends no -b cup", "data.leaderboard", map[string]string{"user_id": "no", "list_rank": "1"}},
		{"rank no -b cup", "", map[string]string{"user_id": "no", "rank": "1"}},
		{"user no", "data.scores", map[string]string{"board": "cup", "score": "5"}},
		{"result no m -b cup", "", map[string]string{"match_id": "m", "result.points": "5", "status": "APPLIED"}},
		{"results no -b cup", "results", map[string]string{"match_id": "m", "result.points": "5"}},
		{"match list -b cup", "matches", map[string]string{"match_id": "m", "voided": "false"}},
		{"match show m -b cup", "results", map[string]string{"user_id": "'=1+1,no"}},
		{"board list", "boards", map[string]string{"board_id": "cup,default"}},
		{"board show cup", "", map[string]string{"board_id": "cup", "season.schedule": "NONE", "season.grace": "86400s"}},
		{"season list -b cup", "data.seasons", map[string]string{"id": "all"}},
		{"season show all -b cup", "", map[string]string{"id": "all", "status": "open"}},
		{"stats -b cup", "", map[string]string{"total": "2", "best_score": "5"}},
		{"ban list", "bans", map[string]string{"user_id": "mallory", "reason": "aimbot"}},
		{"audit --action ban", "acts", map[string]string{"user_id": "mallory,mallory"}},
		{"key list", "keys", nil},
		{"submit no -b cup --points 5 --match m", "", map[string]string{"new_score": "5", "status": "DUPLICATE"}},
		{"config", "", nil},
		{"version", "", map[string]string{"modified": "false"}},
	} {
		args := strings.Fields(tt.args)
		asJSON := s.ok(t, append(args, "-o", "json")...)
		var want, got any
		if err := json.Unmarshal([]byte(asJSON), &want); err != nil {
			t.Fatalf("%s -o json: %v in %s", tt.args, err, asJSON)
		}
		if err := yaml.Unmarshal([]byte(s.ok(t, append(args, "-o", "yaml")...)), &got); err != nil {
			t.Fatalf("%s -o yaml: %v", tt.args, err)
		}
		if diff := cmp.Diff(timeless(t, want), timeless(t, got)); diff != "" {
			t.Errorf("%s: YAML differs from JSON (-json +yaml):\n%s", tt.args, diff)
		}
		rows, err := csv.NewReader(strings.NewReader(s.ok(t, append(args, "-o", "csv")...))).ReadAll()
		if err != nil {
			t.Fatalf("%s -o csv: %v", tt.args, err)
		}
		for column, values := range tt.want {
			if got := strings.Join(columnOf(rows, column), ","); got != values {
				t.Errorf("%s: the column %s of the CSV has %q, want %q:\n%q", tt.args, column, got, values, rows)
			}
		}
		if tt.rows != "" {
			if n := strings.TrimSpace(s.ok(t, append(args, "--jq", "."+tt.rows+" | length")...)); n != strings.TrimSpace(string(mustJSON(t, len(rows)-1))) {
				t.Errorf("%s: the CSV has %d rows, but --jq counts %s", tt.args, len(rows)-1, n)
			}
		}
	}
	if got := s.ok(t, "top", "-b", "cup", "--jq", ".data.leaderboard[].user_id"); got != "no\n=1+1\n" {
		t.Errorf("top --jq prints %q, want the two users", got)
	}
	s.fails(t, exitUsage, []string{"not a jq expression", ".data.leaderboard"}, "top", "--jq", ".[")
	s.fails(t, exitUsage, []string{"not one of table, json, csv, yaml"}, "top", "-o", "xml")
	s.fails(t, exitUsage, []string{"--format"}, "export", "entries", "-o", "csv")
}

// timeless removes what differs between two calls.
func timeless(t *testing.T, v any) any {
	t.Helper()
	var object any
	if err := json.Unmarshal(mustJSON(t, v), &object); err != nil {
		t.Fatal(err)
	}
	var strip func(any)
	strip = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			delete(v, "as_of")
			delete(v, "request_id")
			for _, inner := range v {
				strip(inner)
			}
		case []any:
			for _, inner := range v {
				strip(inner)
			}
		}
	}
	strip(object)
	return object
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func columnOf(rows [][]string, name string) []string {
	var values []string
	for i, title := range rows[0] {
		if title == name {
			for _, row := range rows[1:] {
				values = append(values, row[i])
			}
		}
	}
	return values
}

// A command that prints JSON has all formats.
func TestEveryCommandWithJSONHasAllFormats(t *testing.T) {
	n := 0
	commands(newRoot(testApp()), func(c *cobra.Command) {
		if c.Flags().Lookup("json") == nil {
			return
		}
		n++
		for _, flag := range []string{"output", "jq"} {
			if c.Flags().Lookup(flag) == nil {
				t.Errorf("%s has --json, but no --%s", c.CommandPath(), flag)
			}
		}
	})
	if n < 30 {
		t.Errorf("found %d commands with --json, want at least 30", n)
	}
}
