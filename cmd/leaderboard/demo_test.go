package main

import (
	"context"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard/cmd/leaderboard/demo"
	"github.com/open-leaderboard/leaderboard/internal/cli"
	"github.com/open-leaderboard/leaderboard/internal/config"
)

func startDemo(t *testing.T, data string, matches []demo.Match) (out *output, stop func() error) {
	t.Helper()
	c := config.Default()
	c.Data, c.HTTP, c.GRPC = data, "127.0.0.1:0", "127.0.0.1:0"
	out = &output{}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		app := &cli.App{Stdin: strings.NewReader(""), Stdout: out, Stderr: out}
		ended <- runDemo(ctx, app, &c, matches, 1e6)
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
	all, err := demo.Matches()
	if err != nil {
		t.Fatal(err)
	}
	matches := slices.DeleteFunc(all, func(m demo.Match) bool { return m.Date.Year() < 2019 && (m.Date.Year() != 1990 || m.Date.Month() != 6) })
	data := filepath.Join(t.TempDir(), "data")
	out, stop := startDemo(t, data, matches)

	points, wins, december, ever := map[string]int64{}, map[string]int64{}, map[string]int64{}, map[string]int64{}
	for _, m := range matches {
		for _, side := range []struct {
			team             string
			scored, conceded int64
		}{{m.Home, m.HomeGoals, m.AwayGoals}, {m.Away, m.AwayGoals, m.HomeGoals}} {
			p, w := int64(0), int64(0)
			if side.scored > side.conceded {
				p, w = 3, 3
			} else if side.scored == side.conceded {
				p = 1
			}
			ever[side.team] += p
			if m.Date.Year() == 2019 {
				points[side.team] += p
				if w > 0 {
					wins[side.team] += w
				}
				if m.Date.Month() == 12 {
					december[side.team] += p
				}
			}
		}
	}
	if points["Japan"] != 48 || len(points) != 255 {
		t.Fatalf("the recount of 2019 gives Japan %d points, and has %d teams; want 48 and 255", points["Japan"], len(points))
	}
	text := out.String()
	for line := range strings.Lines(text) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("a line of the demo is %d columns wide, want at most 80: %s", n, line)
		}
	}
	checkContains(t, text, "    http://127.0.0.1:", "/#board=football-yearly&season=latest", "leaderboard watch --server", "1990  1. ", "2019  1. Japan 48  2. Mexico 46  3. Qatar 44  4. Algeria 40")
	_, rest, _ := strings.Cut(text, "leaderboard watch --server ")
	s := &testServer{grpc: strings.Fields(rest)[0]}
	checkScores := func(want map[string]int64, args ...string) {
		t.Helper()
		got := map[string]int64{}
		for _, line := range standings(t, s, args...) {
			e := parseObject(t, line)
			got[e["user_id"].(string)] = int64(e["score"].(float64))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("scores of the board %v (-want +got):\n%s", args, diff)
		}
	}
	checkScores(points, "--board", "football-yearly", "--season", "2019")
	checkScores(wins, "--board", "football-wins", "--season", "2019")
	checkScores(december, "--board", "football-monthly", "--season", "201912")
	checkScores(ever, "--board", "football")
	checkContains(t, s.ok(t, "board", "show", "football"), "linked boards", "football-yearly", "football-monthly", "football-wins")

	_, rest, _ = strings.Cut(text, "curl ")
	if code, body := get(t, http.DefaultClient, strings.Fields(rest)[0]); code != http.StatusOK || strings.Count(body, `"user_id"`) != 10 {
		t.Errorf("GET of the URL in the first printed curl command: %d %s, want 200 with 10 entries", code, body)
	}
	_, rest, _ = strings.Cut(text, "curl '")
	link, _, _ := strings.Cut(rest, "'")
	if code, body := get(t, http.DefaultClient, link); code != http.StatusOK || !strings.Contains(body, `"season":"2019"`) || strings.Count(body, `"user_id"`) != 10 {
		t.Errorf("GET %s: %d %s, want 200 with 10 entries of 2019", link, code, body)
	}
	before := s.ok(t, "export", "results", "--board", "football-yearly")
	if err := stop(); err != nil {
		t.Errorf("the demo ended with the error %v, want nil", err)
	}

	out, stop = startDemo(t, data, matches)
	_, rest, _ = strings.Cut(out.String(), "leaderboard watch --server ")
	s.grpc = strings.Fields(rest)[0]
	checkScores(points, "--board", "football-yearly", "--season", "2019")
	checkScores(ever, "--board", "football")
	if diff := cmp.Diff(before, s.ok(t, "export", "results", "--board", "football-yearly")); diff != "" {
		t.Errorf("a second demo with the same data changed results, want no change (-before +after):\n%s", diff)
	}
	if err := stop(); err != nil {
		t.Errorf("the demo ended with the error %v, want nil", err)
	}
}

func TestDemoUsesAFreePortIfTheDefaultIsInUse(t *testing.T) {
	s := startInsecure(t)
	if got := freeAddress(false, s.http); got != "127.0.0.1:0" {
		t.Errorf("freeAddress of a default address in use = %q, want port 0", got)
	}
	if got := freeAddress(true, s.http); got != s.http {
		t.Errorf("freeAddress of a chosen address in use = %q, want %q", got, s.http)
	}
	s.stop()
	if got := freeAddress(false, s.http); got != s.http {
		t.Errorf("freeAddress of a free address = %q, want %q", got, s.http)
	}
}
