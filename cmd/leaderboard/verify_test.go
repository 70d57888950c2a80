package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/cache/memory"
	"github.com/open-leaderboard/leaderboard/internal/config"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/storage/pebble"
)

// startOver serves over a store and an index that the test can reach. The
// commands ask it as they ask any server: where its store and index are is no
// matter of theirs.
func startOver(t *testing.T) (*server, leaderboard.Store, leaderboard.Index) {
	t.Helper()
	store, err := pebble.Open(filepath.Join(t.TempDir(), "data"), pebble.Options{})
	if err != nil {
		t.Fatal(err)
	}
	index := memory.New()
	c := config.Default()
	c.Insecure = true
	n := &node{
		config: &c, log: slog.New(slog.DiscardHandler), store: store, metrics: prometheus.NewRegistry(),
		service: ranking.New(store, index, ranking.Options{}), closers: []func() error{store.Close},
	}
	n.closeLater(n.finishWrites)
	if n.rest, err = listen("http", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	if n.grpc, err = listen("grpc", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	if err := n.service.EnsureDefaultBoard(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n.server, err = n.newServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := &server{http: n.rest.Addr().String(), grpc: n.grpc.Addr().String(), metrics: n.metrics}
	ctx, cancel := context.WithCancel(context.Background())
	loaded, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- n.serve(ctx, nil, func() { close(loaded) }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := n.close(); err != nil {
			t.Error(err)
		}
	})
	<-loaded
	return s, store, index
}

// verify names what is wrong, ends with 1 while anything is left, and with
// --repair leaves nothing.
func TestVerifyTellsAndMends(t *testing.T) {
	s, store, index := startOver(t)
	for user, points := range map[string]string{"ada": "3", "bob": "5", "eve": "4"} {
		s.ok(t, "submit", user, "--points", points, "--match", "m1")
	}
	contains(t, s.ok(t, "verify"), "3 entries in 1 season compared from 3 results: 0 differences")
	season, err := leaderboard.Schedule{Kind: leaderboard.Monthly}.At(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	scope := leaderboard.Scope{Board: leaderboard.DefaultBoard, Season: season.ID}
	plant := func() {
		t.Helper()
		bob, err := store.Entry(t.Context(), scope, "bob")
		if err != nil {
			t.Fatal(err)
		}
		bob.Key, bob.Version = leaderboard.RankKey(strings.Repeat("\x00", len(bob.Key))), bob.Version+1
		stranger := bob
		stranger.User = "mallory"
		if err := index.Update(t.Context(), scope, time.Now(), []leaderboard.Entry{bob, stranger}); err != nil {
			t.Fatal(err)
		}
	}
	plant()
	for _, tt := range []struct {
		args []string
		code int
		want []string
	}{
		{[]string{"verify"}, exitDifferences, []string{"INDEX_", "default/" + string(season.ID), "0 mended"}},
		{[]string{"verify", "--board", "default", "--season", string(season.ID)}, exitDifferences, []string{"INDEX_"}},
		{[]string{"verify", "--repair"}, exitOK, []string{"INDEX_", "(mended)"}},
		{[]string{"verify"}, exitOK, []string{"3 entries", "0 differences"}},
	} {
		r := s.do(t, tt.args...)
		if r.code != tt.code {
			t.Errorf("%v exited with %d, want %d: %s%s", tt.args, r.code, tt.code, r.stdout, r.stderr)
		}
		contains(t, r.stdout, tt.want...)
		if says := strings.Contains(r.stderr, "verify --repair mends them"); says != (tt.code == exitDifferences) {
			t.Errorf("%v says %q", tt.args, r.stderr)
		}
	}
	contains(t, s.ok(t, "top"), "bob", "5")
	plant()
	contains(t, s.ok(t, "rebuild"), "3 entries remade")
	contains(t, s.ok(t, "verify"), "0 differences")

	// For scripts, each line is one object, and how far it is stays out of them.
	plant()
	r := s.do(t, "verify", "--json")
	if r.code != exitDifferences {
		t.Errorf("verify --json exited with %d", r.code)
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
				t.Errorf("the summary counts %v, after %d", got, differences)
			}
		}
	}
	if summaries != 1 {
		t.Errorf("%d summaries in %s", summaries, r.stdout)
	}
}

// How far verify and rebuild are is shown as often as they tell it.
func TestVerifyTellsHowFarItIs(t *testing.T) {
	s, _, _ := startOver(t)
	s.ok(t, "submit", "ada", "--points", "3")
	client, closeConn, err := testWorld().dial(connection{server: s.grpc, timeout: waitLimit})
	if err != nil {
		t.Fatal(err)
	}
	defer closeConn()
	verify, err := client.admin.Verify(t.Context(), &pb.VerifyRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if first, err := verify.Recv(); err != nil || first.GetProgress().GetDone() != 1 || first.GetProgress().GetBoard() != "default" {
		t.Errorf("verify begins with %v, %v", first, err)
	}
	rebuild, err := client.admin.Rebuild(t.Context(), &pb.RebuildRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if first, err := rebuild.Recv(); err != nil || first.GetProgress().GetDone() != 1 {
		t.Errorf("rebuild begins with %v, %v", first, err)
	}
}
