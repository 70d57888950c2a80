// Command run runs make check and the parts of make slow. It prints the output of each step when
// the step ends, then the times of all steps and of the slowest packages.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/plan"
	"github.com/open-leaderboard/leaderboard/test/program"
)

const usage = `usage, in the root of the repository:
  run check          run all that CI runs at every change
  run slow [PART...] run parts of make slow, by default all
  run parts          list the parts
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	args := append(os.Args[1:], "")
	if args[0] == wrapCommand {
		os.Exit(wrap(os.Args[2:]))
	}
	var err error
	switch args[0] {
	case "check":
		err = check(ctx)
	case "slow":
		err = slow(ctx, os.Args[2:])
	case "parts":
		printParts(os.Stdout)
	default:
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "run:", err)
		os.Exit(1)
	}
}

func printParts(w io.Writer) {
	for _, p := range plan.Parts {
		fmt.Fprintf(w, "%-14s %s\n", p.Name, p.Runs)
	}
}

// check runs three lanes at a time: the checks that need no servers, and the tests with and without
// the race detector. The servers start while the first lane runs. The tests share one build of the
// program.
func check(ctx context.Context) error {
	all, err := plan.Read(".")
	if err != nil {
		return err
	}
	r := newReport(all)
	env := []string{needs.Variable + "=" + needs.Check, needs.EnvServers + "=1"}
	servers := startServers(ctx, r)
	dir, err := os.MkdirTemp("", "leaderboard-check-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "leaderboard")
	r.commands(ctx, "program", []string{"go", "build", "-ldflags=-s -w", "-o", path, "./cmd/leaderboard"})
	env = append(env, program.Variable+"="+path)
	race, plain := plan.Check(all, ".")
	runLanes(
		func() { static(ctx, r, all, env) },
		func() { r.goTest(ctx, "tests, race detector", ".", race, append(env, servers.env()...)) },
		func() { r.goTest(ctx, "tests, no detector", ".", plain, append(env, servers.env()...)) },
	)
	servers.stop()
	err = r.end()
	r.longWithoutReason()
	return err
}

// static runs what needs no server, the cheapest first.
func static(ctx context.Context, r *report, all []plan.Package, env []string) {
	r.commands(ctx, "format", []string{"bash", "-euc", `files=$(gofmt -l $(git ls-files '*.go'))
		[ -z "$files" ] || { echo "not formatted, run gofmt -w on:"; echo "$files"; exit 1; }`})
	modules := modules(all)
	r.commands(ctx, "generated code",
		[]string{"go", "-C", "tools", "tool", "buf", "lint", "../api"},
		[]string{"go", "-C", "tools", "tool", "buf", "breaking", "../api/proto", "--against", "../api/proto-baseline.binpb"},
		[]string{"scripts/generate.sh", "--check"})
	r.commands(ctx, "linters", []string{"scripts/lint.sh"})
	r.commands(ctx, "modules", []string{"bash", "-euc", `for module in $(git ls-files | sed -n 's,go\.mod$,.,p'); do
		go -C "$module" mod tidy -diff
	done`})
	for _, module := range modules[1:] {
		_, plain := plan.Check(all, module)
		r.goTest(ctx, module, module, plain, env)
	}
}

// modules returns the folders of the modules with tests; the root comes first.
func modules(all []plan.Package) (folders []string) {
	for _, p := range all {
		folders = append(folders, p.Module)
	}
	slices.Sort(folders)
	return slices.Compact(folders)
}

func slow(ctx context.Context, names []string) error {
	all, err := plan.Read(".")
	if err != nil {
		return err
	}
	r := newReport(all)
	for _, name := range names {
		if !slices.ContainsFunc(plan.Parts, func(p plan.Part) bool { return p.Name == name }) {
			return fmt.Errorf("no part %q; the parts are:\n%s", name, partNames())
		}
	}
	for _, p := range plan.Parts {
		if len(names) == 0 || slices.Contains(names, p.Name) {
			r.part(ctx, all, p)
		}
	}
	return r.end()
}

func partNames() string {
	var b strings.Builder
	printParts(&b)
	return b.String()
}

func (r *report) part(ctx context.Context, all []plan.Package, p plan.Part) {
	if p.Name == plan.Fuzz {
		duration := os.Getenv("FUZZTIME")
		if duration == "" {
			duration = "60s"
		}
		r.commands(ctx, p.Name, []string{"scripts/fuzz.sh", duration})
		return
	}
	env := []string{needs.Variable + "=" + p.Name, needs.EnvServers + "=1"}
	if p.OneServer {
		servers := startServers(ctx, r)
		defer servers.stop()
		env = append(env, servers.env()...)
	}
	for _, module := range modules(all) {
		race, plain := plan.Slow(all, module, p.Name)
		r.goTest(ctx, p.Name+", race detector", module, race, env)
		r.goTest(ctx, p.Name, module, plain, env)
	}
}

// testTimeout bounds the tests of one package. A part of make slow has tests of hours.
func testTimeout(env []string) time.Duration {
	if slices.Contains(env, needs.Variable+"="+needs.Check) {
		return 15 * time.Minute
	}
	return 3 * time.Hour
}
