package demo

import (
	"slices"
	"testing"
)

func TestMatches(t *testing.T) {
	matches, err := Matches()
	if err != nil {
		t.Fatal(err)
	}
	if len(matches) != 26260 || len(football) > 400<<10 {
		t.Errorf("the file has %d matches in %d bytes, want 26260 in at most 400 KiB", len(matches), len(football))
	}
	if !slices.IsSortedFunc(matches, func(x, y Match) int { return x.Date.Compare(y.Date) }) {
		t.Error("the matches are not in order of date")
	}
	if first, last := matches[0].Date.Year(), matches[len(matches)-1].Date.Year(); first != 1990 || last != 2019 {
		t.Errorf("the matches are of the years %d to %d, want 1990 to 2019", first, last)
	}
}
