// Package seed provides the seed of random tests.
package seed

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// Variable is the environment variable that sets the seed.
const Variable = "LEADERBOARD_TEST_SEED"

// New returns the value of LEADERBOARD_TEST_SEED, or a random seed. It logs the command that
// repeats the test with the same seed.
func New(t testing.TB) uint64 {
	t.Helper()
	n := rand.Uint64()
	if text := os.Getenv(Variable); text != "" {
		var err error
		if n, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", Variable, err)
		}
	}
	dir, err := os.Getwd() // the package's folder
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("seed %d; repeat with %s=%d go test -run '^%s$' %s", n, Variable, n, t.Name(), dir)
	return n
}
