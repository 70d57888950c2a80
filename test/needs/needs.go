// Package needs lets a test state what it needs and when it runs. Package plan reads these
// statements from the test files, so it knows what make check and each part of make slow run.
//
// A test without a statement runs at every change under the race detector.
package needs

import (
	"os"
	"os/exec"
	"testing"
)

// Variable is the environment variable that names what runs: a part of make slow, or [Check].
const Variable = "LEADERBOARD_TEST_PART"

// Check is the value of Variable while make check runs.
const Check = "check"

const (
	histories = "histories" // the part in which More is more
	detector  = "race"      // the part in which NoRace skips nothing
)

// moreTimes is the factor of More.
const moreTimes = 20

// EnvServers is the environment variable that makes a test fail, if it is 1, because a server or
// a program is missing. Otherwise the test is skipped.
const EnvServers = "REQUIRE_INTEGRATION"

// Slow skips t, unless the given part of make slow runs. The test or subtest that calls Slow must
// contain the call, and the part must be a constant string: package plan reads both.
func Slow(t testing.TB, part string) {
	t.Helper()
	if !Running(part) {
		t.Skipf("make check leaves the test out; run it with: make slow PART=%s", part)
	}
}

// NoRace skips t under the race detector, except in the part race of make slow. The reason says
// why the detector would find little. The rules of [Slow] apply to the call.
func NoRace(t testing.TB, reason string) {
	t.Helper()
	if race && !Running(detector) {
		t.Skipf("the test runs without the race detector: %s", reason)
	}
}

// Race states that make check runs t under the race detector, in a package without it. The rules
// of [Slow] apply to the call.
func Race(t testing.TB) {
	t.Helper()
	if !race && Running(Check) {
		t.Skip("the test runs under the race detector")
	}
}

// PackageWithoutRace states that make check runs the tests of a package without the race detector,
// except those with [Race]:
//
//	var _ = needs.PackageWithoutRace("the rules start no goroutines")
func PackageWithoutRace(reason string) string { return reason }

// Also states that a part of make slow runs t too, on more servers or at a larger size. The rules of
// [Slow] apply to the call. [Running] reports whether the part runs.
func Also(testing.TB, string) {}

// Running reports whether a part of make slow runs.
func Running(part string) bool { return os.Getenv(Variable) == part }

// More returns n, the number of runs of a random test. In the part histories of make slow, it
// returns a multiple of n. The rules of [Slow] apply to the call.
func More(_ testing.TB, n int) int {
	if Running(histories) {
		return moreTimes * n
	}
	return n
}

// Servers skips t unless REQUIRE_INTEGRATION is 1. A test that starts servers of its own calls it.
func Servers(t testing.TB) {
	t.Helper()
	if !Required() {
		t.Skipf("the test starts servers of its own; set %s=1 to run it", EnvServers)
	}
}

// Programs skips t if a program is not installed, or fails it if REQUIRE_INTEGRATION is 1.
func Programs(t testing.TB, programs ...string) {
	t.Helper()
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			Missing(t, err)
		}
	}
}

// Missing skips t because of err, or fails it if REQUIRE_INTEGRATION is 1.
func Missing(t testing.TB, err error) {
	t.Helper()
	if Required() {
		t.Fatal(err)
	}
	t.Skip(err)
}

// Required reports whether REQUIRE_INTEGRATION is 1.
func Required() bool { return os.Getenv(EnvServers) == "1" }
