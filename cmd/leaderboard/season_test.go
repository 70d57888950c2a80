package main

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
	apiserver "github.com/open-leaderboard/leaderboard/api/server"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/embedded"
)

func TestSeasonEnd(t *testing.T) {
	s := startInsecure(t)
	s.ok(t, "board", "create", "cup", "--policy", "sum", "--season", "yearly")
	season := time.Now().UTC().Format("2006")
	checkContains(t, s.ok(t, "submit", "ada", "--points", "3", "--match", "m1", "--board", "cup"), "ada")
	end := []string{"season", "end", season, "--board", "cup"}
	s.fails(t, exitUsage, []string{"--reason is missing"}, end...)
	end = append(end, "--reason", "exploit", "--at", time.Now().UTC().Add(-time.Minute).Format(time.RFC3339))
	s.fails(t, exitUsage, []string{"--yes"}, end...)
	checkContains(t, s.ok(t, append(end, "--dry-run")...), "season "+season+" would end at", "excluded: 1 stored result of 1 user", "nothing changed")
	checkContains(t, s.ok(t, "top", "--board", "cup"), "ada")
	checkContains(t, s.ok(t, append(end, "--yes")...), "season "+season+" ended at", "accepts earlier results until", "excluded: 1 stored result of 1 user", "the next season, ")
	s.fails(t, exitFailure, []string{"an administrator ended season", "the next season, "}, "submit", "bob", "--points", "3", "--board", "cup")
	checkContains(t, s.ok(t, "season", "list", "--board", "cup"), "grace")
}

type clockedServer struct {
	*testServer
	*ranking.Service
	clock  atomic.Pointer[time.Time]
	onSeal atomic.Pointer[func(leaderboard.SeasonKey)] // called after a seal
}

func startClocked(t *testing.T, now time.Time) *clockedServer {
	t.Helper()
	s := &clockedServer{}
	s.clock.Store(&now)
	clock := func() time.Time { return *s.clock.Load() }
	store, index := embedded.Open(t)
	s.Service = ranking.New(store, index, ranking.Options{Now: clock, BoardTTL: time.Millisecond, LinkTTL: time.Millisecond, Sealed: func(key leaderboard.SeasonKey) {
		if f := s.onSeal.Load(); f != nil {
			(*f)(key)
		}
	}})
	t.Cleanup(s.Service.Close)
	api, err := apiserver.New(t.Context(), s.Service, store, apiserver.Options{Now: clock, Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	listeners := make([]net.Listener, 2)
	for i := range listeners {
		if listeners[i], err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- api.Serve(ctx, listeners[0], listeners[1]) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	s.testServer = &testServer{http: listeners[0].Addr().String(), grpc: listeners[1].Addr().String()}
	return s
}

func (s *clockedServer) pass(t *testing.T, d time.Duration) {
	t.Helper()
	now := s.clock.Load().Add(d)
	s.clock.Store(&now)
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Export and import keep the checksum of an amended season that ended early. The command in
// docs/api.md computes the same checksum.
func TestChecksumAfterExportAndImport(t *testing.T) {
	now := time.Date(2026, 1, 1, 10, 0, 0, 0, time.UTC)
	create := []string{"board", "create", "cup", "--policy", "sum", "--tie-breaker", "wins", "--season", "yearly", "--grace", "24h"}
	source := startClocked(t, now)
	source.ok(t, create...)
	var rows strings.Builder
	rows.WriteString("user_id,match_id,points,tie_breakers,achieved_at\n")
	for i := range 60 {
		fmt.Fprintf(&rows, "é' %d,m%d,%d,[%d],%s\n", i%20, i, i%7, i%2, now.Add(-time.Duration(i+12)*time.Hour-time.Duration(i)*time.Microsecond).Format(time.RFC3339Nano))
	}
	source.ok(t, "import", writeFile(t, "rows.csv", rows.String()), "--board", "cup")
	if got, err := source.EndSeason(t.Context(), "cup", leaderboard.EarlyEnd{ID: "2025", At: now.Add(-30 * time.Hour)}); err != nil || got.Results == 0 {
		t.Fatalf("EndSeason: %+v, %v; want excluded results", got, err)
	}
	source.pass(t, 48*time.Hour)
	checksum := func(s *clockedServer) string {
		t.Helper()
		sum := parseObject(t, s.ok(t, "season", "show", "2025", "--board", "cup", "--checksum", "--json"))["data"].(map[string]any)["checksum"].(string)
		checkContains(t, s.ok(t, "season", "show", "2025", "--board", "cup", "--checksum"), "season 2025 is sealed", "checksum: "+sum)
		return sum
	}
	sealed := checksum(source)
	b, err := source.Board(t.Context(), "cup")
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range []leaderboard.MatchID{"m33", "m34"} {
		user := leaderboard.UserID("")
		for _, r := range strings.Split(source.ok(t, "export", "results", "--board", "cup", "--format", "csv"), "\n") {
			if fields := strings.Split(r, ","); len(fields) > 1 && fields[1] == string(match) {
				user = leaderboard.UserID(fields[0])
			}
		}
		if _, err := source.Retract(t.Context(), &b, leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Season: "2025"}, User: user, Match: match}, nil); err != nil {
			t.Fatal(err)
		}
		source.pass(t, time.Minute)
	}
	amended := checksum(source)
	if amended == sealed {
		t.Errorf("the checksum after the amendments is %s as before, want another checksum", sealed)
	}
	file := filepath.Join(t.TempDir(), "results.ndjson.gz")
	exported := source.do(t, "export", "results", "--board", "cup", "-o", file)
	checkContains(t, exported.stderr, "season 2025 is sealed, checksum "+amended)
	target := startClocked(t, *source.clock.Load())
	target.ok(t, create...)
	target.ok(t, "import", file, "--board", "cup")
	target.pass(t, 48*time.Hour)
	if got := checksum(target); got != amended {
		t.Errorf("checksum after the import: %s, want %s", got, amended)
	}
	if _, err := exec.LookPath("jq"); err == nil {
		recipe := `jq -r '[.user_id, .score, ((.tie_breakers // []) | map(tostring) | join(",")), .achieved_at] | join("\t")' | sha256sum`
		cmd := exec.CommandContext(t.Context(), "sh", "-c", recipe)
		cmd.Stdin = strings.NewReader(target.ok(t, "export", "entries", "--board", "cup", "--season", "2025"))
		if out, err := cmd.Output(); err != nil || !strings.HasPrefix(string(out), amended) {
			t.Errorf("%s prints %s, %v; want %s", recipe, out, err, amended)
		}
	}
}
