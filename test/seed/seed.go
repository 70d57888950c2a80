// Package seed gives tests the seed of their random choices.
package seed

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// Variable names the environment variable that repeats a run's random choices.
const Variable = "LEADERBOARD_TEST_SEED"

// New returns the seed of a test's random choices, a new one unless the
// environment names it, and logs how to repeat it.
func New(t testing.TB) uint64 {
	t.Helper()
	n := rand.Uint64()
	if text := os.Getenv(Variable); text != "" {
		var err error
		if n, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", Variable, err)
		}
	}
	dir, err := os.Getwd() // a test runs in its package's folder
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("seed %d; repeat with %s=%d go test -run '^%s$' %s", n, Variable, n, t.Name(), dir)
	return n
}
