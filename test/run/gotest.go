package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/open-leaderboard/leaderboard/test/plan"
)

// longWeight is more than the number of tests of any package.
const longWeight = 1 << 20

// goTest runs tests of a module as one step.
func (r *report) goTest(ctx context.Context, name, module string, run plan.Run, env []string) {
	if len(run.Packages) == 0 {
		return
	}
	r.step(name, func(s *step) error {
		dir, err := os.MkdirTemp("", "leaderboard-tests-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		selection, err := json.Marshal(run.Packages)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, selectionFile), selection, 0o600); err != nil {
			return err
		}
		root, err := os.Getwd()
		if err != nil {
			return err
		}
		// The linters vet all packages.
		args := []string{"test", "-json", "-vet=off", "-shuffle=on", "-timeout=" + testTimeout(env).String(),
			"-exec", strings.Join([]string{r.self, wrapCommand, root, dir}, " ")}
		if run.Race {
			args, env = append(args, "-race"), append(slices.Clip(env), "CGO_ENABLED=1")
		} else {
			// This run is the longer one, and its tests often wait for servers.
			args = append(args, fmt.Sprintf("-p=%d", runtime.GOMAXPROCS(0)+1))
		}
		if module != "." {
			args = append(args, "-count=1") // A child process runs the service, so Go does not notice that it has changed.
		}
		cmd := command(ctx, env, "go", append(args, r.folders(module, run)...)...)
		cmd.Dir = module
		cmd.Stderr = s.output
		pipe, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		results := readEvents(pipe, s.output)
		err = cmd.Wait()
		s.add(cmd.ProcessState)
		r.addPackages(run.Race, results, readUsage(dir))
		return err
	})
}

// folders returns the packages of a run, the longest first: those that say why they are long, then
// those with most tests.
func (r *report) folders(module string, run plan.Run) []string {
	weights := map[string]int{}
	for _, p := range r.packages {
		weights["./"+p.Folder] = len(p.Tests)
		if p.LongBecause != "" {
			weights["./"+p.Folder] += longWeight
		}
	}
	folders := run.Folders()
	slices.SortStableFunc(folders, func(a, b string) int { return weights[b] - weights[a] })
	for i, folder := range folders {
		if module != "." {
			folders[i] = "." + strings.TrimPrefix(folder, "./"+module)
		}
	}
	return folders
}

// An event is a line of go test -json.
type event struct {
	Action, Package, Test, Output, ImportPath string
	Elapsed                                   float64
}

type result struct {
	pkg     string
	elapsed time.Duration
	slowest string // the slowest top-level test, with its time
}

// readEvents writes to w a line per package, and the output of tests that fail.
func readEvents(events io.Reader, w io.Writer) (results []result) {
	type key struct{ pkg, test string }
	output, slowest, passed := map[key][]string{}, map[string]event{}, map[key]bool{}
	reader := bufio.NewReader(events)
	for {
		line, err := reader.ReadBytes('\n')
		if len(line) == 0 && err != nil {
			return results
		}
		var e event
		if json.Unmarshal(line, &e) != nil {
			_, _ = w.Write(line)
			continue
		}
		k := key{e.Package, e.Test}
		switch {
		case e.Action == "build-output":
			_, _ = io.WriteString(w, e.Output)
		case e.Action == "output":
			output[k] = append(output[k], e.Output)
		case e.Test != "" && (e.Action == "pass" || e.Action == "skip"):
			passed[k] = true
			delete(output, k)
			fallthrough
		case e.Test != "" && e.Action == "fail":
			if !strings.Contains(e.Test, "/") && e.Elapsed > slowest[e.Package].Elapsed {
				slowest[e.Package] = e
			}
		case e.Test == "" && (e.Action == "pass" || e.Action == "fail" || e.Action == "skip"):
			if e.Action == "fail" {
				for k, lines := range output {
					if k.pkg == e.Package && !passed[k] && k.test != "" {
						_, _ = io.WriteString(w, strings.Join(lines, ""))
					}
				}
			}
			lines := output[k]
			if e.Action != "fail" && len(lines) > 0 {
				lines = lines[len(lines)-1:] // the verdict
			}
			_, _ = io.WriteString(w, strings.Join(lines, ""))
			r := result{pkg: e.Package, elapsed: seconds(e.Elapsed)}
			if top := slowest[e.Package]; top.Test != "" {
				r.slowest = fmt.Sprintf("%s %.0f s", top.Test, top.Elapsed)
			}
			results = append(results, r)
		}
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// go test runs each test binary through this program: run wrap ROOT DIR BINARY FLAGS. It adds the
// selection of the package's tests, and notes the CPU time of the binary.
const (
	wrapCommand   = "wrap"
	selectionFile = "selection.json"
	usagePrefix   = "usage-"
)

// cpuUse is what wrap notes.
type cpuUse struct {
	Folder string
	CPU    time.Duration
}

func wrap(args []string) int {
	root, dir, binary, flags := args[0], args[1], args[2], args[3:]
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, "run:", err)
		return 1
	}
	text, err := os.ReadFile(filepath.Join(dir, selectionFile))
	if err != nil {
		return fail(err)
	}
	selection := map[string]string{}
	if err := json.Unmarshal(text, &selection); err != nil {
		return fail(err)
	}
	wd, err := os.Getwd()
	if err != nil {
		return fail(err)
	}
	folder, err := filepath.Rel(root, wd)
	if err != nil {
		return fail(err)
	}
	folder = filepath.ToSlash(folder)
	if tests := selection[folder]; tests != "" {
		flags = append(flags, "-test.run="+tests)
	}
	cmd := exec.Command(binary, flags...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return fail(err)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT)
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s)
		}
	}()
	_ = cmd.Wait() // ProcessState has the result.
	note, err := json.Marshal(cpuUse{folder, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, fmt.Sprint(usagePrefix, os.Getpid())), note, 0o600)
	}
	if err != nil {
		return fail(err)
	}
	return max(cmd.ProcessState.ExitCode(), -cmd.ProcessState.ExitCode())
}

// readUsage returns the CPU time of the packages, by folder.
func readUsage(dir string) map[string]time.Duration {
	all := map[string]time.Duration{}
	files, _ := filepath.Glob(filepath.Join(dir, usagePrefix+"*"))
	for _, file := range files {
		var u cpuUse
		if text, err := os.ReadFile(file); err == nil && json.Unmarshal(text, &u) == nil {
			all[u.Folder] = u.CPU
		}
	}
	return all
}
