package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/cmd/leaderboard/client"
	"github.com/open-leaderboard/leaderboard/internal/config"
	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

const (
	killWriters = 8
	killUsers   = 50
)

type child struct {
	cmd               *exec.Cmd
	stderr            *output
	http, grpc, admin string
}

func startChild(t *testing.T, data string) *child { return startChildWith(t, data) }

func startChildWith(t *testing.T, data string, args ...string) *child {
	t.Helper()
	c := &child{stderr: &output{}}
	c.cmd = exec.Command(os.Args[0], "serve", "--insecure", "--data", data, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
	c.cmd.Args = append(c.cmd.Args, args...)
	c.cmd.Env = []string{childEnv + "=1"}
	c.cmd.Stderr = c.stderr
	// If this process ends, the pipe closes, and the child exits: see TestMain.
	if _, err := c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.kill)
	eventually(t, "the server is ready", func() bool {
		_, ready := findLogEntry(c.stderr.String(), "ready")
		return ready
	})
	entry, _ := findLogEntry(c.stderr.String(), "listening")
	c.http, c.grpc, c.admin = entry["http"].(string), entry["grpc"].(string), entry["admin"].(string)
	return c
}

func (c *child) kill() {
	if c.cmd.ProcessState == nil {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	}
}

type ledger struct {
	mu    sync.Mutex
	sent  map[string]int64 // points by user/match
	acked map[string]bool
}

func (k *ledger) send(r *pb.Result) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sent[r.GetUserId()+"/"+r.GetMatchId()] = r.GetPoints()
}

func (k *ledger) ack(user, match string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.acked[user+"/"+match] = true
}

func (k *ledger) write(ctx context.Context, c *client.Client, round, writer int, r *rand.Rand) {
	for n := 0; ; n++ {
		results := make([]*pb.Result, 1+r.IntN(20)*(n%2))
		for i := range results {
			points := r.Int64N(100)
			results[i] = &pb.Result{
				UserId: fmt.Sprintf("user-%d", r.IntN(killUsers)), MatchId: fmt.Sprintf("%d-%d-%d-%d", round, writer, n, i), Points: &points,
				Attributes: map[string]string{"team": string(rune('a' + r.IntN(3)))},
			}
			k.send(results[i])
		}
		if len(results) == 1 {
			res, err := c.Scores.SubmitScore(ctx, &pb.SubmitScoreRequest{Board: "kill", Result: results[0]})
			if err != nil {
				return
			}
			k.ack(results[0].GetUserId(), res.GetMatchId())
			continue
		}
		res, err := c.Scores.BatchSubmitScores(ctx, &pb.BatchSubmitScoresRequest{Board: "kill", Results: results})
		if err != nil {
			return
		}
		for i, o := range res.GetOutcomes() {
			if o.GetStatus() == pb.Outcome_APPLIED {
				k.ack(results[i].GetUserId(), o.GetMatchId())
			}
		}
	}
}

// After each kill, the server has every acknowledged result, no result that was not sent, and the
// ranks of a recount.
func TestKilledServerKeepsAcknowledgedResults(t *testing.T) {
	runSeed, kills := seed.New(t), needs.More(t, 7)
	data := filepath.Join(t.TempDir(), "data")
	known := &ledger{sent: map[string]int64{}, acked: map[string]bool{}}
	app := testApp()
	for round := range kills {
		server := startChild(t, data)
		c, closeConn, err := client.Dial(t.Context(), app, client.Connection{Server: server.grpc, Timeout: waitLimit})
		if err != nil {
			t.Fatal(err)
		}
		if round == 0 {
			_, err := c.Scores.CreateBoard(t.Context(), &pb.CreateBoardRequest{Board: &pb.Board{BoardId: "kill", Policy: pb.Board_SUM, Divisions: []string{"team"}}})
			if err != nil {
				t.Fatal(err)
			}
		}
		known.check(t, c)
		before := len(known.acked)
		var writers sync.WaitGroup
		for i := range killWriters {
			writers.Go(func() {
				known.write(t.Context(), c, round, i, rand.New(rand.NewPCG(runSeed, uint64(round*killWriters+i))))
			})
		}
		enough := before + 50 + rand.New(rand.NewPCG(runSeed, uint64(round))).IntN(400)
		eventually(t, "enough results are acknowledged", func() bool {
			known.mu.Lock()
			defer known.mu.Unlock()
			return len(known.acked) >= enough
		})
		server.kill()
		writers.Wait()
		closeConn()
	}
	last := startChild(t, data)
	c, closeConn, err := client.Dial(t.Context(), app, client.Connection{Server: last.grpc, Timeout: waitLimit})
	if err != nil {
		t.Fatal(err)
	}
	defer closeConn()
	known.check(t, c)
	t.Logf("%d kills, %d results sent, %d acknowledged", kills, len(known.sent), len(known.acked))
	if r := command(t, "", []string{"LEADERBOARD_SERVER=" + last.grpc}, "verify"); !strings.Contains(r.stdout, " 0 differences") {
		t.Errorf("verify after the last restart: %s%s, want 0 differences", r.stdout, r.stderr)
	}
}

// check compares the server with the ledger. Then it marks every stored result as acknowledged,
// because the next kill must not lose it.
func (k *ledger) check(t *testing.T, c *client.Client) {
	t.Helper()
	stored := map[string]int64{}
	sums := map[string]int64{}
	stream, err := c.Admin.ExportResults(t.Context(), &pb.ExportResultsRequest{Board: "kill"})
	for err == nil {
		var res *pb.ExportResultsResponse
		if res, err = stream.Recv(); err == nil {
			r := res.GetResult()
			stored[r.GetUserId()+"/"+r.GetMatchId()] = r.GetPoints()
			sums[r.GetUserId()] += r.GetPoints()
			if r.GetAttributes()["team"] == "" {
				t.Errorf("the stored result %v has no attribute team, want it stored", r)
			}
		}
	}
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	lost, invented := 0, 0
	for key := range k.acked {
		if _, ok := stored[key]; !ok {
			lost++
		}
	}
	for key, points := range stored {
		if sent, ok := k.sent[key]; !ok || sent != points {
			invented++
		}
	}
	if lost > 0 || invented > 0 {
		t.Fatalf("%d acknowledged results are lost, and %d of %d stored results were not sent with their points; want none", lost, invented, len(stored))
	}
	limit := int32(1000)
	top, err := c.Scores.ListScores(t.Context(), &pb.ListScoresRequest{Board: "kill", Limit: &limit})
	if err != nil {
		t.Fatal(err)
	}
	if got := top.GetData().GetTotal(); got != int64(len(sums)) {
		t.Errorf("%d users have an entry, want %d", got, len(sums))
	}
	for _, e := range top.GetData().GetLeaderboard() {
		better := int64(0)
		for _, sum := range sums {
			if sum > sums[e.GetUserId()] {
				better++
			}
		}
		if e.GetScore() != sums[e.GetUserId()] || e.GetRank() != better+1 {
			b, _ := json.Marshal(e)
			t.Errorf("entry %s, want score %d and rank %d", b, sums[e.GetUserId()], better+1)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for key := range stored {
		k.acked[key] = true
	}
}

func TestStoppedServerKeepsAcknowledgedResults(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	server := startChild(t, data)
	app := testApp()
	c, closeConn, err := client.Dial(t.Context(), app, client.Connection{Server: server.grpc, Timeout: waitLimit})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Scores.CreateBoard(t.Context(), &pb.CreateBoardRequest{Board: &pb.Board{BoardId: "kill", Policy: pb.Board_SUM, Divisions: []string{"team"}}}); err != nil {
		t.Fatal(err)
	}
	known := &ledger{sent: map[string]int64{}, acked: map[string]bool{}}
	var writers sync.WaitGroup
	for i := range killWriters {
		writers.Go(func() { known.write(t.Context(), c, 0, i, rand.New(rand.NewPCG(1, uint64(i)))) })
	}
	eventually(t, "enough results are acknowledged", func() bool {
		known.mu.Lock()
		defer known.mu.Unlock()
		return len(known.acked) >= 200
	})
	if err := server.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := server.cmd.Wait(); err != nil {
		t.Errorf("serve ended with the error %v, want nil: %s", err, server.stderr)
	}
	if took := time.Since(start); took >= config.Default().ShutdownGrace {
		t.Errorf("stopping the server took %v, want less than shutdown_grace", took)
	}
	writers.Wait()
	closeConn()
	restarted := startChild(t, data)
	c, closeConn, err = client.Dial(t.Context(), app, client.Connection{Server: restarted.grpc, Timeout: waitLimit})
	if err != nil {
		t.Fatal(err)
	}
	defer closeConn()
	known.check(t, c)
}
