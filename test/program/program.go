// Package program has the program leaderboard for tests that run it.
package program

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Variable is the environment variable with the path of a program that is already built.
const Variable = "LEADERBOARD_TEST_PROGRAM"

// Path returns the path that [Variable] has. If it is not set, Path builds the program into the
// folder dir, without the race detector. The folder module is in the module of the program; empty
// means the working directory.
func Path(ctx context.Context, module, dir string) (string, error) {
	if path := os.Getenv(Variable); path != "" {
		return path, nil
	}
	path := filepath.Join(dir, "leaderboard")
	build := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", path, "github.com/open-leaderboard/leaderboard/cmd/leaderboard")
	build.Dir = module
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("program: go build: %w\n%s", err, out)
	}
	return path, nil
}
