package manifests

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/open-leaderboard/leaderboard/internal/config"
	"github.com/open-leaderboard/leaderboard/test/program"
)

var leaderboard string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "leaderboard-manifests-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		leaderboard, err = program.Path(context.Background(), "../..", dir)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// batchTime is the longest time that a stopping consumer needs to finish its batch: the default of
// consumer.Options.ApplyTimeout.
const batchTime = 30 * time.Second

func checkKnown(t *testing.T, args []string) {
	t.Helper()
	// The program prints help only if it knows the arguments before --help.
	if out, err := exec.Command(leaderboard, append(slices.Clone(args), "--help")...).CombinedOutput(); err != nil {
		t.Errorf("leaderboard %v: %v: %s", args, err, out)
	}
}

// load returns the settings of a process with the environment environ.
func load(t *testing.T, environ []string) *config.Config {
	t.Helper()
	fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	config.AddFlags(fs)
	c, err := config.Load(fs, environ)
	if err != nil {
		t.Fatal(err)
	}
	return &c.Config
}
