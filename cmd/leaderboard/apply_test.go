package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestApplyBoards(t *testing.T) {
	s := startInsecure(t)
	dir := t.TempDir()
	write := func(name, content string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	// The file of the linked board is before the file of its source.
	write("a-week.yaml", "board_id: week\norder: LOWER_FIRST\npolicy: BEST\nseason: {schedule: WEEKLY}\nsource: {board_id: run}\n")
	write("run.yaml", `
board_id: run
title: City run
order: LOWER_FIRST
policy: BEST
unit: s
season: {schedule: EXPLICIT, grace: 3600s, windows: [{id: "2026", start: 2026-01-01T00:00:00Z, end: 2027-01-01}]}
divisions: [age+gender, gender]
---
board_id: arena
policy: SUM
floor: 0
tie_breakers: [{name: wins, order: HIGHER_FIRST}]
`)
	write("cup.json", `{"board_id":"cup","policy":"SUM","min_score":0,"season":{"schedule":"MONTHLY","time_zone":"Europe/Berlin"}}`)
	write("README.md", "not a board")

	diff := s.do(t, "board", "diff", "-f", dir)
	diff.mustFail(t, exitBoards, []string{"differ", "board apply"}, nil)
	checkContains(t, diff.stdout, "week", "create")
	checkContains(t, s.ok(t, "board", "apply", "-f", dir, "--dry-run"), "create", "dry run, nothing changed: 4 created")
	s.fails(t, exitFailure, []string{"board not found"}, "board", "show", "run")
	checkContains(t, s.ok(t, "board", "apply", "-f", dir), "4 created, 0 updated, 0 unchanged")
	checkContains(t, s.ok(t, "board", "show", "run"), "City run", "week", "2026-01-01 00:00:00 to 2027-01-01 00:00:00")
	checkContains(t, s.ok(t, "board", "apply", "-f", dir), "0 created, 0 updated, 4 unchanged")
	if out := s.ok(t, "board", "diff", "-f", dir); strings.Contains(out, "update") {
		t.Errorf("after apply, diff shows a difference:\n%s", out)
	}

	run := write("run.yaml", "board_id: run\ntitle: Run\nmin_score: 1\nseason: {grace: 7200s}\npolicy: BEST\n")
	diff = s.do(t, "board", "diff", "-f", run)
	diff.mustFail(t, exitBoards, nil, nil)
	checkContains(t, diff.stdout, "update", "title", `"City run"`, `"Run"`, "min_score", "not set", "season.grace", `"3600s"`, `"7200s"`)
	if strings.Contains(diff.stdout, "policy") {
		t.Errorf("diff shows a field that does not differ:\n%s", diff.stdout)
	}
	if got := s.do(t, "board", "diff", "-f", run, "--jq", ".[].changes[] | select(.field == \"min_score\") | [.now, .file]").stdout; got != "[null,1]\n" {
		t.Errorf("diff --jq prints %q, want [null,1]", got)
	}
	checkContains(t, s.ok(t, "board", "apply", "-f", run, "--dry-run"), "dry run, nothing changed: 0 created, 1 updated")
	checkContains(t, s.ok(t, "board", "show", "run"), "City run")
	checkContains(t, s.ok(t, "board", "apply", "-f", run), "0 created, 1 updated, 0 unchanged")
	checkContains(t, s.ok(t, "board", "show", "run"), "Run", "2h0m0s", "gender", "2026-01-01") // omitted fields stay
	null := write("null.yaml", "board_id: run\nmin_score: null\n")
	checkContains(t, s.ok(t, "board", "apply", "-f", null), "min_score", "1 updated")
	if out := s.ok(t, "board", "show", "run"); strings.Contains(out, "\nmin ") {
		t.Errorf("min_score is still set:\n%s", out)
	}

	// What the server prints is a file without differences, also with the fields that it sets.
	all := write("all.yaml", s.ok(t, "board", "list", "-o", "yaml"))
	s.ok(t, "board", "diff", "-f", all)
	one := write("one.json", s.ok(t, "board", "show", "week", "-o", "json"))
	s.ok(t, "board", "diff", "-f", one)
	if r := command(t, s.ok(t, "board", "show", "arena", "-o", "yaml"), []string{"LEADERBOARD_SERVER=" + s.grpc}, "board", "diff", "-f", "-"); r.code != exitOK {
		t.Errorf("diff of standard input exits with %d: %s", r.code, r.stderr)
	}

	checkContains(t, s.ok(t, "board", "clone", "run", "run-2", "--title", "Second"), "run-2", "Second", "gender")
	s.ok(t, "board", "clone", "run", "run-3")
	if got := s.ok(t, "board", "show", "run-3", "--jq", ".title, .linked_boards"); got != "Run\nnull\n" {
		t.Errorf("the clone has the title and linked boards %q, want Run and none", got)
	}
	s.fails(t, exitFailure, []string{"exists with other rules"}, "board", "clone", "run", "arena")
	s.fails(t, exitFailure, []string{"board not found"}, "board", "clone", "nope", "x")
}

func TestApplyBadBoards(t *testing.T) {
	s := startInsecure(t)
	s.ok(t, "board", "create", "arena", "--policy", "sum")
	path := filepath.Join(t.TempDir(), "b.yaml")
	for content, want := range map[string][]string{
		"board_id: x\npolicyy: SUM\n":             {"b.yaml: board x", "policyy", "is unknown"},
		"board_id: x\nseason: {schedul: DAILY}\n": {"season.schedul", "is unknown"},
		"board_id: x\npolicy: MEDIAN\n":           {"policy", "must be one of"},
		"board_id: x\n---\ntitle: t\n":            {"b.yaml, document 2", "board_id is missing"},
		"board_id: 7\n":                           {"board_id is missing, or is not a text"},
		"- a\n":                                   {"b.yaml"},
		"":                                        {"describes no board"},
		"boards: [1]\n":                           {"does not describe a board", "board show"},
		"a: [\n":                                  {"b.yaml"},
		"board_id: arena\ntitle: a\n---\nboard_id: arena\ntitle: b\n": {"describe the same board, arena"},
		"board_id: arena\npolicy: BEST\ntitle: new\n":                 {"board arena: policy cannot change from \"SUM\" to \"BEST\"", "nothing was changed"},
		"board_id: x\npolicy: SUM\nseason: {schedule: EXPLICIT}\n":    {"board x", "windows"},
		"board_id: arena\nunit: " + strings.Repeat("u", 40) + "\n":    {"board arena", "unit"},
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		s.fails(t, exitFailure, want, "board", "apply", "-f", path)
	}
	if got := s.ok(t, "board", "show", "arena", "--jq", ".title"); strings.Contains(got, "new") {
		t.Errorf("a refused file has changed the title to %q", got)
	}
	s.fails(t, exitUsage, []string{"-f is missing"}, "board", "apply")
	s.fails(t, exitFailure, []string{"-f is missing"}, "board", "diff")
	s.fails(t, exitFailure, []string{"no such file"}, "board", "diff", "-f", path+"x")
	s.fails(t, exitFailure, []string{"no file that ends in"}, "board", "apply", "-f", t.TempDir())
	command(t, "", []string{"LEADERBOARD_SERVER=127.0.0.1:1"}, "board", "diff", "-f", "-").mustFail(t, exitFailure, nil, nil)
}
