package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/open-leaderboard/leaderboard/test/deployment"
	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

func TestEmbeddedHistoriesAreLinearizable(t *testing.T) {
	needs.Slow(t, "faults")
	s := seed.New(t)
	n := deployment.Embedded(t, filepath.Join(t.TempDir(), "data"))
	h := recordHistories(t, s, n, n.Client)
	random := rand.New(rand.NewPCG(s, 3))
	for range 3 {
		h.waitForMore(200 + random.IntN(200))
		must(t, n.Kill())
		must(t, n.Start(t.Context()))
	}
	h.waitForMore(200)
	h.check(t)
}

// While the disk is full, submits get 503, and reads succeed. After a restart with more space, all
// acknowledged results are there.
func TestEmbeddedDiskFull(t *testing.T) {
	needs.Slow(t, "faults")
	s := seed.New(t)
	d := newSmallDisk(t, 160<<20)
	n := deployment.Embedded(t, filepath.Join(d.path, "data"))
	board := n.Board(t, "full", object{"policy": "SUM", "order": "HIGHER_FIRST", "season": object{"schedule": "NONE"}})
	f := &filler{api: n.Client, board: board, points: map[string]int64{}}
	var writers sync.WaitGroup
	for i := range 4 {
		writers.Go(func() { f.fill(t, i, rand.New(rand.NewPCG(s, uint64(i)))) })
	}
	writers.Wait()
	t.Logf("the disk is full: %d results acknowledged, then %s", len(f.points), strings.Join(f.refusals, "; "))
	if len(f.points) == 0 {
		t.Fatal("no result was acknowledged")
	}
	for _, r := range f.refusals {
		if !strings.Contains(r, "status 503") {
			t.Errorf("on a full disk, a submit returned %s, want status 503", r)
		}
	}
	if log, err := n.Log(); err != nil || !strings.Contains(log, "free disk space") {
		t.Errorf("the log does not contain \"free disk space\" (error %v):\n%s", err, log)
	}
	f.check(t, n.Client)

	must(t, n.Kill())
	d.resize(t, 512<<20)
	must(t, n.Start(t.Context()))
	f.check(t, n.Client)
	must(t, f.submit(t.Context(), "after", rand.New(rand.NewPCG(s, 9))))
	f.check(t, n.Client)
	if out, err := n.Command(t, "verify", "--board", board).CombinedOutput(); err != nil || !strings.Contains(string(out), " 0 differences") {
		t.Errorf("verify: %v, want 0 differences; it printed:\n%s", err, out)
	}
}

// filler fills a disk with results. Random metadata makes them hard to compress.
type filler struct {
	api   *deployment.Client
	board string

	mu       sync.Mutex
	points   map[string]int64 // acknowledged
	refusals []string         // the error that ended each call of the method fill
}

func (f *filler) fill(t *testing.T, writer int, random *rand.Rand) {
	for i := 0; ; i++ {
		if err := f.submit(t.Context(), fmt.Sprintf("user-%d-%d", writer, i), random); err != nil {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.refusals = append(f.refusals, err.Error())
			return
		}
	}
}

func (f *filler) submit(ctx context.Context, prefix string, random *rand.Rand) error {
	var results []object
	for i := range 40 {
		noise := make([]byte, 3000)
		for n := range noise {
			noise[n] = "0123456789abcdef"[random.IntN(16)]
		}
		results = append(results, object{
			"user_id": fmt.Sprintf("%s-%d", prefix, i), "match_id": "m", "points": 1 + random.Int64N(1000), "metadata": object{"noise": string(noise)},
		})
	}
	var answer struct {
		Outcomes []struct {
			Status   string `json:"status"`
			NewScore int64  `json:"new_score"`
		} `json:"outcomes"`
		Message string `json:"message"`
	}
	status, err := f.api.Call(ctx, http.MethodPost, "/v1/boards/"+f.board+"/scores:batch", object{"results": results}, &answer)
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return fmt.Errorf("status %d, %s", status, answer.Message)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, o := range answer.Outcomes {
		if points := results[i]["points"].(int64); o.Status == "APPLIED" && o.NewScore == points {
			f.points[results[i]["user_id"].(string)] = points
		} else {
			err = fmt.Errorf("status %d and outcome %+v, want %d points applied", status, o, points)
		}
	}
	return err
}

func (f *filler) check(t *testing.T, api *deployment.Client) {
	t.Helper()
	lost := 0
	for user, want := range f.points {
		var answer struct {
			Data struct {
				Score json.Number `json:"score"`
				Rank  *int64      `json:"rank"`
			} `json:"data"`
		}
		status, err := api.Call(t.Context(), http.MethodGet, "/v1/boards/"+f.board+"/scores/"+user+"?season=all&neighbors=0", nil, &answer)
		if err != nil || status != http.StatusOK || answer.Data.Score.String() != fmt.Sprint(want) || answer.Data.Rank == nil {
			if lost++; lost <= 5 {
				t.Errorf("%s: status %d, score %s, with a rank: %t, error %v; want the acknowledged score %d and a rank", user, status, answer.Data.Score, answer.Data.Rank != nil, err, want)
			}
		}
	}
	t.Logf("read %d acknowledged results: %d lost", len(f.points), lost)
}
