// Package faults hurts the servers that the distributed engine runs on, and its
// own processes, while results come in: it kills and pauses them, empties Redis,
// and plants differences. In the end every board must equal an independent
// recount of what was acknowledged, rank for rank.
package faults

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard/test/deployment"
)

func TestMain(m *testing.M) { os.Exit(deployment.Main(m)) }

// patience is for machines that have much else to do: what is waited for here
// takes seconds on one that has not.
const patience = 10 * time.Minute

// eventually waits until try returns nil.
func eventually(t *testing.T, try func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		err := try(ctx)
		if err == nil {
			return
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("after %v still: %v", patience, last)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
