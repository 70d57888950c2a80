package official

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// seedVariable names the environment variable that repeats a run's random
// choices.
const seedVariable = "LEADERBOARD_TEST_SEED"

// seed returns the seed of a test's random choices, a new one unless the
// environment names it, and logs how to repeat it.
func seed(t *testing.T) uint64 {
	t.Helper()
	s := rand.Uint64()
	if text := os.Getenv(seedVariable); text != "" {
		var err error
		if s, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", seedVariable, err)
		}
	}
	t.Logf("seed %d; repeat with %s=%d go test -run '^%s$' ./test/official", s, seedVariable, s, t.Name())
	return s
}
