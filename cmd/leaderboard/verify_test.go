package main

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/cmd/leaderboard/client"
	"github.com/open-leaderboard/leaderboard/internal/config"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/embedded"
)

// startWithStores also returns the store and the index, so that a test can change them directly.
func startWithStores(t *testing.T) (*testServer, leaderboard.Store, leaderboard.Index) {
	t.Helper()
	store, index := embedded.Open(t)
	return startOnStores(t, store, index), store, index
}

func startOnStores(t *testing.T, store leaderboard.Store, index leaderboard.Index) *testServer {
	t.Helper()
	c := config.Default()
	c.Insecure = true
	s := &server{
		config: &c, log: slog.New(slog.DiscardHandler), store: store, metrics: prometheus.NewRegistry(),
		service: ranking.New(store, index, ranking.Options{}),
	}
	s.closeLater(s.finishWrites)
	var err error
	if s.rest, err = listen("http", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	if s.grpc, err = listen("grpc", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	if err := s.service.EnsureDefaultBoard(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.api, err = s.newAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	ts := &testServer{http: s.rest.Addr().String(), grpc: s.grpc.Addr().String()}
	ctx, cancel := context.WithCancel(context.Background())
	loaded, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- s.serve(ctx, nil, func() { close(loaded) }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	<-loaded
	return ts
}

func TestVerifyReportsAndRepairs(t *testing.T) {
	s, store, index := startWithStores(t)
	for user, points := range map[string]string{"ada": "3", "bob": "5", "eve": "4"} {
		s.ok(t, "submit", user, "--points", points, "--match", "m1")
	}
	checkContains(t, s.ok(t, "verify"), "compared 3 entries in 1 season with 3 results: 0 differences")
	season, err := leaderboard.Schedule{Kind: leaderboard.Monthly}.At(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	key := leaderboard.SeasonKey{Board: leaderboard.DefaultBoard, Season: season.ID}
	damageIndex := func() {
		t.Helper()
		bob, err := store.Entry(t.Context(), key, "bob")
		if err != nil {
			t.Fatal(err)
		}
		bob.Key, bob.Version = leaderboard.RankKey(strings.Repeat("\x00", len(bob.Key))), bob.Version+1
		stranger := bob
		stranger.User = "mallory"
		if err := index.Update(t.Context(), key, time.Now(), []leaderboard.Entry{bob, stranger}); err != nil {
			t.Fatal(err)
		}
	}
	damageIndex()
	for _, tt := range []struct {
		args []string
		code int
		want []string
	}{
		{[]string{"verify"}, exitDifferences, []string{"INDEX_", "default/" + string(season.ID), "0 repaired"}},
		{[]string{"verify", "--board", "default", "--season", string(season.ID)}, exitDifferences, []string{"INDEX_"}},
		{[]string{"verify", "--repair"}, exitOK, []string{"INDEX_", "(repaired)"}},
		{[]string{"verify"}, exitOK, []string{"3 entries", "0 differences"}},
	} {
		r := s.do(t, tt.args...)
		if r.code != tt.code {
			t.Errorf("%v exited with %d, want %d: %s%s", tt.args, r.code, tt.code, r.stdout, r.stderr)
		}
		checkContains(t, r.stdout, tt.want...)
		if advises := strings.Contains(r.stderr, "verify --repair repairs them"); advises != (tt.code == exitDifferences) {
			t.Errorf("%v writes %q to stderr, want the advice to repair: %v", tt.args, r.stderr, tt.code == exitDifferences)
		}
	}
	checkContains(t, s.ok(t, "top"), "bob", "5")
	damageIndex()
	checkContains(t, s.ok(t, "rebuild"), "rebuilt 3 entries")
	checkContains(t, s.ok(t, "verify"), "0 differences")

	damageIndex()
	r := s.do(t, "verify", "--json")
	if r.code != exitDifferences {
		t.Errorf("verify --json exited with %d, want 3", r.code)
	}
	differences, summaries := 0, 0
	for line := range strings.Lines(r.stdout) {
		var res struct{ Difference, Summary map[string]any }
		if err := json.Unmarshal([]byte(line), &res); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if res.Difference != nil {
			differences++
		}
		if res.Summary != nil {
			summaries++
			if got := res.Summary["differences"]; got != float64(differences) || differences == 0 {
				t.Errorf("the summary has %v differences, but %d were reported", got, differences)
			}
		}
	}
	if summaries != 1 {
		t.Errorf("verify --json prints %d summaries, want 1: %s", summaries, r.stdout)
	}
}

type damagedStore struct{ leaderboard.Store }

func (s damagedStore) Results(ctx context.Context, key leaderboard.SeasonKey, user leaderboard.UserID) iter.Seq2[leaderboard.MatchResult, error] {
	if user == "bad" {
		return func(yield func(leaderboard.MatchResult, error) bool) {
			yield(leaderboard.MatchResult{}, fmt.Errorf("test: %w", leaderboard.ErrFormat))
		}
	}
	return s.Store.Results(ctx, key, user)
}

func TestVerifyAdvisesToRestoreDamagedData(t *testing.T) {
	store, index := embedded.Open(t)
	s := startOnStores(t, damagedStore{store}, index)
	s.ok(t, "submit", "ada", "--points", "3")
	s.ok(t, "submit", "bad", "--points", "3")
	for _, args := range [][]string{{"verify"}, {"verify", "--repair"}} {
		r := s.do(t, args...)
		if r.code != exitDifferences {
			t.Errorf("%v exited with %d, want %d", args, r.code, exitDifferences)
		}
		checkContains(t, r.stdout, "DATA_DAMAGED", "1 difference, 0 repaired")
		checkContains(t, r.stderr, "restore it from a backup")
		if strings.Contains(r.stderr, "--repair repairs them") {
			t.Errorf("%v advises a repair, which cannot help:\n%s", args, r.stderr)
		}
	}
}

func TestVerifyAndRebuildReportProgress(t *testing.T) {
	s, _, _ := startWithStores(t)
	s.ok(t, "submit", "ada", "--points", "3")
	conn, closeConn, err := client.Dial(t.Context(), testApp(), client.Connection{Server: s.grpc, Timeout: waitLimit})
	if err != nil {
		t.Fatal(err)
	}
	defer closeConn()
	verify, err := conn.Admin.Verify(t.Context(), &pb.VerifyRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if first, err := verify.Recv(); err != nil || first.GetProgress().GetDone() != 1 || first.GetProgress().GetBoard() != "default" {
		t.Errorf("the first message of Verify is %v, %v; want the progress of board default with 1 user", first, err)
	}
	rebuild, err := conn.Admin.Rebuild(t.Context(), &pb.RebuildRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if first, err := rebuild.Recv(); err != nil || first.GetProgress().GetDone() != 1 {
		t.Errorf("the first message of Rebuild is %v, %v; want the progress with 1 user", first, err)
	}
}
