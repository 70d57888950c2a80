package main

import (
	"testing"
	"time"
)

func TestSeasonEnd(t *testing.T) {
	s := startInsecure(t)
	s.ok(t, "board", "create", "cup", "--policy", "sum", "--season", "yearly")
	season := time.Now().UTC().Format("2006")
	contains(t, s.ok(t, "submit", "ada", "--points", "3", "--match", "m1", "--board", "cup"), "ada")
	end := []string{"season", "end", season, "--board", "cup"}
	s.fails(t, exitUsage, []string{"--reason is missing"}, end...)
	end = append(end, "--reason", "exploit", "--at", time.Now().UTC().Add(-time.Minute).Format(time.RFC3339))
	s.fails(t, exitUsage, []string{"--yes"}, end...)
	contains(t, s.ok(t, append(end, "--dry-run")...), "season "+season+" would end at", "excluded: 1 stored result of 1 user", "nothing changed")
	contains(t, s.ok(t, "top", "--board", "cup"), "ada")
	contains(t, s.ok(t, append(end, "--yes")...), "season "+season+" ended at", "accepts earlier results until", "excluded: 1 stored result of 1 user", "the next season, ")
	s.fails(t, exitFailure, []string{"an administrator ended season", "the next season, "}, "submit", "bob", "--points", "3", "--board", "cup")
	contains(t, s.ok(t, "season", "list", "--board", "cup"), "grace")
}
