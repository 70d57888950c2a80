package pipeline

import (
	"fmt"
	"testing"

	"github.com/open-leaderboard/leaderboard/test/deployment"
)

// Together, the two consumers apply each message once.
func TestConsumerHandsOverItsPartitions(t *testing.T) {
	d := deployment.New(t, deployment.Options{})
	api := serveAPI(t, d)
	board := api.Board(t, "handover", sumBoard)
	leaving := d.Serve(t, "--roles=consumer", "--kafka-batch=5")
	s := newStream(t, d)
	const results, users = 600, 30
	all := make([]result, results)
	for i := range all {
		user, id := fmt.Sprint("u", i%users), fmt.Sprint("m", i)
		all[i] = result{user, id, map[string]any{"user_id": user, "match_id": id, "points": 1}}
	}
	sent := make(chan error, 1)
	go func() { sent <- s.send(t.Context(), board, all) }()
	s.waitForUpdates(t, results/4)
	staying := d.Serve(t, "--roles=consumer", "--kafka-batch=5")
	stop(t, leaving)
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	if n := s.count(); n != results {
		t.Errorf("%d updates for %d results, want one per result", n, results)
	}
	checkScore(t, api, board, "u0", results/users, 1)
	stop(t, staying)
}
