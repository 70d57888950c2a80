package main

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard/internal/config"
)

func TestDemoData(t *testing.T) {
	matches, err := readMatches(football)
	if err != nil {
		t.Fatal(err)
	}
	if len(matches) != 26260 || len(football) > 400<<10 {
		t.Errorf("%d matches in %d bytes", len(matches), len(football))
	}
	if !slices.IsSortedFunc(matches, func(x, y match) int { return x.date.Compare(y.date) }) {
		t.Error("the matches are not in order of date")
	}
	if first, last := matches[0].date.Year(), matches[len(matches)-1].date.Year(); first != 1990 || last != 2019 {
		t.Errorf("matches of %d to %d", first, last)
	}
}

// startDemo plays matches and returns once all are played.
func startDemo(t *testing.T, data string, matches []match) (out *output, stop func() error) {
	t.Helper()
	c := config.Default()
	c.Data, c.HTTP, c.GRPC = data, "127.0.0.1:0", "127.0.0.1:0"
	out = &output{}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		w := &world{stdin: strings.NewReader(""), stdout: out, stderr: out}
		ended <- w.demo(ctx, &c, matches, 1e6)
	}()
	eventually(t, "all matches are played", func() bool {
		select {
		case err := <-ended:
			t.Fatalf("the demo ended: %v\n%s", err, out)
		default:
		}
		return strings.Contains(out.String(), "matches are played")
	})
	return out, func() error { cancel(); return <-ended }
}

func TestDemo(t *testing.T) {
	all, err := readMatches(football)
	if err != nil {
		t.Fatal(err)
	}
	matches := slices.DeleteFunc(all, func(m match) bool { return m.date.Year() < 2019 && m.date.Year() != 1990 })
	data := filepath.Join(t.TempDir(), "data")
	out, stop := startDemo(t, data, matches)

	// The boards are those of an independent recount.
	points, wins, december, ever := map[string]int64{}, map[string]int64{}, map[string]int64{}, map[string]int64{}
	for _, m := range matches {
		for _, side := range []struct {
			team      string
			for_, agn int64
		}{{m.home, m.homeGoals, m.awayGoals}, {m.away, m.awayGoals, m.homeGoals}} {
			p, w := int64(0), int64(0)
			if side.for_ > side.agn {
				p, w = 3, 1
			} else if side.for_ == side.agn {
				p = 1
			}
			ever[side.team] += p
			if m.date.Year() == 2019 {
				points[side.team] += p
				wins[side.team] += w
				if m.date.Month() == 12 {
					december[side.team] += p
				}
			}
		}
	}
	if points["Japan"] != 48 || len(points) != 255 {
		t.Fatalf("the recount of 2019 gives Japan %d points, and has %d teams", points["Japan"], len(points))
	}
	text := out.String()
	contains(t, text, "web page   http://127.0.0.1:", "leaderboard watch --server", "1990  1. ", "2019  1. Japan 48  2. Mexico 46  3. Qatar 44  4. Algeria 40")
	_, rest, _ := strings.Cut(text, "leaderboard watch --server ")
	s := &server{grpc: strings.Fields(rest)[0]}
	same := func(want map[string]int64, args ...string) {
		t.Helper()
		got := map[string]int64{}
		for _, line := range standings(t, s, args...) {
			e := parsed(t, line)
			got[e["user_id"].(string)] = int64(e["score"].(float64))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%v (-want +got):\n%s", args, diff)
		}
	}
	same(points, "--board", demoYearly, "--season", "2019")
	same(wins, "--board", demoWins, "--season", "2019")
	same(december, "--board", demoMonthly, "--season", "201912")
	same(ever)

	// What a newcomer opens shows the board without another word.
	_, rest, _ = strings.Cut(text, "curl ")
	if code, body := get(t, http.DefaultClient, strings.Fields(rest)[0]); code != http.StatusOK || strings.Count(body, `"user_id"`) != 10 {
		t.Errorf("GET /v1/scores = %d %s", code, body)
	}
	before := s.ok(t, "export", "results", "--board", demoYearly)
	if err := stop(); err != nil {
		t.Errorf("the demo ended with %v", err)
	}

	// Played once more in the same folder, nothing changes.
	out, stop = startDemo(t, data, matches)
	_, rest, _ = strings.Cut(out.String(), "leaderboard watch --server ")
	s.grpc = strings.Fields(rest)[0]
	same(points, "--board", demoYearly, "--season", "2019")
	same(ever)
	if diff := cmp.Diff(before, s.ok(t, "export", "results", "--board", demoYearly)); diff != "" {
		t.Errorf("results after the second time (-before +after):\n%s", diff)
	}
	if err := stop(); err != nil {
		t.Errorf("the demo ended with %v", err)
	}
}

func TestDemoTakesAFreePort(t *testing.T) {
	s := startInsecure(t)
	if got := freeAddress(false, s.http); got != "127.0.0.1:0" {
		t.Errorf("freeAddress of a default in use = %q", got)
	}
	if got := freeAddress(true, s.http); got != s.http {
		t.Errorf("freeAddress of an address asked for = %q", got)
	}
	s.stop()
	if got := freeAddress(false, s.http); got != s.http {
		t.Errorf("freeAddress of a free one = %q", got)
	}
}

func TestPlural(t *testing.T) {
	if got := fmt.Sprint(plural(1, "row", "rows"), ", ", plural(0, "row", "rows")); got != "1 row, 0 rows" {
		t.Error(got)
	}
}
