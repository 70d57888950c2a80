package pipeline

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard/test/deployment"
)

// While "board update --shards" changes the number of shards, reads have ranks. With several shards, dense ranks
// are 400 METHOD_UNAVAILABLE.
func TestShardsOfABoard(t *testing.T) {
	d := deployment.New(t, deployment.Options{})
	api := d.Serve(t)
	board := api.Board(t, "shards", map[string]any{"policy": "BEST", "order": "HIGHER_FIRST", "shards": 2})
	for i := range 30 {
		user := fmt.Sprint("u", i)
		if status, err := api.Call(t.Context(), http.MethodPost, "/v1/boards/"+board+"/scores", map[string]any{"user_id": user, "match_id": "m", "score": i / 2}, nil); err != nil || status != http.StatusOK {
			t.Fatalf("submit of %s: status %d, error %v", user, status, err)
		}
	}
	want := ladderText(t, api, board)
	if !strings.Contains(want, "u29") || strings.Contains(want, `"rank":null`) {
		t.Fatalf("the board has the ladder\n%s\nwant 30 users with ranks", want)
	}
	client := goredis.NewClient(&goredis.Options{Addr: d.Redis[0]})
	defer client.Close()
	wait := func(shards string) {
		t.Helper()
		deployment.Eventually(t, func(ctx context.Context) error {
			if got := ladderText(t, api, board); got != want {
				t.Fatalf("the board has the ladder\n%s\nwant\n%s", got, want)
			}
			got, err := client.HGet(ctx, d.RedisPrefix+"{"+board+"/all/0}", "S").Result()
			if err == nil && got != shards {
				err = fmt.Errorf("the season has %s shards, want %s", got, shards)
			}
			return err
		})
	}
	dense := func(want string) {
		t.Helper()
		var answer struct {
			Data    struct{ Leaderboard []struct{ Rank int64 } }
			Details []struct{ Reason string }
		}
		status, err := api.Call(t.Context(), http.MethodGet, "/v1/boards/"+board+"/scores?method=dense&limit=30", nil, &answer)
		if err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprint(status, " ")
		for _, d := range answer.Details {
			got += d.Reason
		}
		if n := len(answer.Data.Leaderboard); n > 0 {
			got += fmt.Sprint(answer.Data.Leaderboard[n-1].Rank)
		}
		if got != want {
			t.Errorf("dense ranks: %s, want %s", got, want)
		}
	}
	wait("2")
	dense("400 METHOD_UNAVAILABLE")
	for _, shards := range []string{"3", "1"} {
		if out, err := api.Command(t, "board", "update", board, "--shards", shards).CombinedOutput(); err != nil || !strings.Contains(string(out), "shards") {
			t.Fatalf("board update --shards %s: %v: %s", shards, err, out)
		}
		wait(shards)
	}
	dense("200 15")
	out, err := api.Command(t, "board", "update", board, "--shards", "2", "--dry-run").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "dense ranks") {
		t.Errorf("board update --shards 2 --dry-run: error %v, output %q; want a sentence about dense ranks", err, out)
	}
	dense("200 15")
}
