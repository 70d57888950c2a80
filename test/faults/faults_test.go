package faults

import (
	"os"
	"testing"

	"github.com/open-leaderboard/leaderboard/test/deployment"
)

func TestMain(m *testing.M) { os.Exit(deployment.Main(m)) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
