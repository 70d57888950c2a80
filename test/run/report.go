package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/plan"
)

// A step is one line of the table at the end.
type step struct {
	name      string
	began     time.Duration // since the report began
	wall, cpu time.Duration
	err       error
	output    *output
}

// output collects what the processes of a step print.
type output struct {
	mu   sync.Mutex
	text []byte
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, p...)
	return len(p), nil
}

func (s *step) add(p *os.ProcessState) { s.cpu += p.UserTime() + p.SystemTime() }

// A report collects what the steps and the tests took.
type report struct {
	packages []plan.Package
	start    time.Time
	out      io.Writer
	self     string // this program, which goTest runs

	mu    sync.Mutex
	steps []*step
	times []packageTime
}

type packageTime struct {
	result
	folder string
	race   bool
	cpu    time.Duration
}

func newReport(all []plan.Package) *report {
	self, err := os.Executable()
	if err != nil {
		panic(err) // Linux always knows it
	}
	return &report{packages: all, start: time.Now(), out: os.Stdout, self: self}
}

func runLanes(lanes ...func()) {
	var wait sync.WaitGroup
	for _, lane := range lanes {
		wait.Go(lane)
	}
	wait.Wait()
}

// step runs do, then prints its output.
func (r *report) step(name string, do func(*step) error) {
	s := &step{name: name, began: time.Since(r.start), output: new(output)}
	s.err = do(s)
	s.wall = time.Since(r.start) - s.began
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps = append(r.steps, s)
	verdict := "passed"
	if s.err != nil {
		verdict = "FAILED: " + s.err.Error()
	}
	fmt.Fprintf(r.out, "\n== %s: %s after %.0f s\n%s", s.name, verdict, s.wall.Seconds(), s.output.text)
}

// commands runs commands as one step, until the first one fails.
func (r *report) commands(ctx context.Context, name string, commands ...[]string) {
	r.step(name, func(s *step) error {
		for _, args := range commands {
			cmd := command(ctx, nil, args[0], args[1:]...)
			cmd.Stdout, cmd.Stderr = s.output, s.output
			err := cmd.Run()
			if cmd.ProcessState != nil {
				s.add(cmd.ProcessState)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", strings.Join(args, " "), err)
			}
		}
		return nil
	})
}

// command returns a command that ctx ends with SIGTERM.
func command(ctx context.Context, env []string, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	return cmd
}

// addPackages notes the times of the tests of a step.
func (r *report) addPackages(race bool, results []result, cpu map[string]time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range results {
		folder := cmp.Or(strings.TrimPrefix(strings.TrimPrefix(p.pkg, plan.Module), "/"), ".")
		r.times = append(r.times, packageTime{p, folder, race, cpu[folder]})
	}
}

// The table has the slowest packages.
const slowestPackages = 10

// A package that takes longer without the race detector says why in its first lines.
const longPackage = time.Minute

// end prints the tables. It returns the errors of the steps.
func (r *report) end() error {
	var errs []error
	var cpu time.Duration
	slices.SortFunc(r.steps, func(a, b *step) int { return cmp.Compare(a.began, b.began) })
	table := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', 0)
	fmt.Fprint(table, "\nstep\tstart\ttime\tCPU\t\n")
	for _, s := range r.steps {
		result := ""
		if s.err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.name, s.err))
			result = "FAILED"
		}
		cpu += s.cpu
		fmt.Fprintf(table, "%s\t%.0f s\t%.0f s\t%.0f s\t%s\n", s.name, s.began.Seconds(), s.wall.Seconds(), s.cpu.Seconds(), result)
	}
	fmt.Fprintf(table, "all\t\t%.0f s\t%.0f s\t\n", time.Since(r.start).Seconds(), cpu.Seconds())

	slices.SortFunc(r.times, func(a, b packageTime) int { return cmp.Compare(b.elapsed, a.elapsed) })
	fmt.Fprint(table, "\nslowest packages\t\ttime\tCPU\tslowest test\n")
	for _, p := range r.times[:min(slowestPackages, len(r.times))] {
		mode := ""
		if p.race {
			mode = "race"
		}
		fmt.Fprintf(table, "%s\t%s\t%.0f s\t%.0f s\t%s\n", p.folder, mode, p.elapsed.Seconds(), p.cpu.Seconds(), p.slowest)
	}
	errs = append(errs, table.Flush())
	return errors.Join(errs...)
}

// longWithoutReason prints the packages whose tests took longer than longPackage without the race
// detector, and whose files do not say why.
func (r *report) longWithoutReason() {
	for _, t := range r.times {
		i := slices.IndexFunc(r.packages, func(p plan.Package) bool { return p.Folder == t.folder })
		if !t.race && t.elapsed > longPackage && i >= 0 && r.packages[i].LongBecause == "" {
			fmt.Fprintf(r.out, "\n%s took %.0f s: make its tests shorter, or say why in a line \"// Long: …\" above a package clause of the tests\n",
				t.folder, t.elapsed.Seconds())
		}
	}
}

// servers are one Cassandra node, one Kafka broker and one Redis, which start in the background.
type servers struct {
	report   *report
	ready    chan struct{}
	clusters []*cluster.Cluster
	names    []string
}

// startServers starts the servers that the environment does not name.
func startServers(ctx context.Context, r *report) *servers {
	s := &servers{report: r, ready: make(chan struct{})}
	kinds := []struct {
		env   string
		start func(context.Context) (*cluster.Cluster, error)
	}{
		{cluster.EnvCassandra, func(ctx context.Context) (*cluster.Cluster, error) {
			return cluster.StartCassandra(ctx, cluster.CassandraConfig{Quick: true})
		}},
		{cluster.EnvKafka, func(ctx context.Context) (*cluster.Cluster, error) {
			return cluster.StartKafka(ctx, cluster.KafkaConfig{Quick: true})
		}},
		{cluster.EnvRedis, func(ctx context.Context) (*cluster.Cluster, error) {
			return cluster.StartRedis(ctx, cluster.RedisConfig{})
		}},
	}
	go func() {
		defer close(s.ready)
		r.step("servers", func(*step) error {
			var group errgroup.Group
			var mu sync.Mutex
			for _, kind := range kinds {
				if os.Getenv(kind.env) != "" {
					continue
				}
				group.Go(func() error {
					c, err := kind.start(ctx)
					if err != nil {
						return err
					}
					mu.Lock()
					defer mu.Unlock()
					s.clusters, s.names = append(s.clusters, c), append(s.names, kind.env+"="+c.List())
					return nil
				})
			}
			return group.Wait()
		})
	}()
	return s
}

// env waits until the servers are ready, and returns the variables that name them. If a server did
// not start, its tests fail.
func (s *servers) env() []string {
	<-s.ready
	return s.names
}

func (s *servers) stop() {
	<-s.ready
	s.report.step("servers stop", func(*step) error {
		var errs []error
		for _, c := range s.clusters {
			errs = append(errs, c.Close())
		}
		return errors.Join(errs...)
	})
}
