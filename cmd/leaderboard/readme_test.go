package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/open-leaderboard/leaderboard/test/needs"
)

// The server gives the answers that README.md describes.
func TestREADMECommands(t *testing.T) {
	needs.Programs(t, "curl")
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	s := startInsecure(t)
	answers := []string{}
	for i, block := range strings.Split(string(readme), "```sh\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		if !strings.Contains(block, "curl ") {
			continue
		}
		script := strings.ReplaceAll(strings.ReplaceAll(block, "localhost:8080", s.http), "curl ", "curl --fail-with-body ")
		out, err := exec.CommandContext(t.Context(), "bash", "-euc", script).CombinedOutput()
		if err != nil {
			t.Fatalf("block %d fails (%v):\n%s\n%s", i+1, err, block, out)
		}
		if lines := strings.Count(string(out), "\n"); lines != strings.Count(block, "curl ") {
			t.Errorf("the %d commands of block %d answer with %d lines, want a line each:\n%s", strings.Count(block, "curl "), i+1, lines, out)
		}
		answers = append(answers, strings.Fields(string(out))...)
	}
	all := strings.Join(answers, "\n")
	for _, want := range []string{
		`"new_score":30,"rank":1,"status":"DUPLICATE"`, // ann's repeated result counts once
		`"leaderboard":[{"user_id":"ann","score":30,"rank":1`,
		`"user_id":"bob","score":20,"rank":2`,
		`"is_current_user":true`,
		`"board_id":"10k"`,
		`{"user_id":"eve","score":2391,"rank":1`,
		`{"user_id":"bob","score":2405,"rank":2`, // shares ann's rank
	} {
		if !strings.Contains(all, want) {
			t.Errorf("no answer contains %s; the answers are:\n%s", want, all)
		}
	}
	last := answers[len(answers)-1]
	if strings.Contains(last, `"eve"`) || !strings.Contains(last, `"user_id":"ann","score":2405,"rank":1`) {
		t.Errorf("the answer after the retraction is %s, want ann with rank 1 and not eve", last)
	}
}
